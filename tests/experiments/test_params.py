"""Parameter counts against formulas, against DEACON's tables, and what follows from the architecture."""

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT

from headdiv.companion.command_line import cli
from headdiv.companion.experiments import parameters as params
from headdiv.companion.experiments import running as training
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.tuning import Arm
from headdiv.companion.report.tables import parameter_table
from headdiv.companion.tasks import TASKS

VARIANTS = ["baseline", "direct-8", "direct-3", "average-8", "average-3", "nonlinear-8", "nonlinear-3"]
PAPERS_LM = ["baseline", "direct-16", "direct-8", "average-16", "average-8", "nonlinear-16", "nonlinear-8"]


def after_the_heads(variant, d, h):
    """What stands between the heads and the residual, counted by hand."""
    K = d // h
    architecture, _, m = variant.partition("-")
    m = int(m or 0)
    k = {"nonlinear": h * (h + 3) // 2}.get(architecture, h)
    channels = k if architecture == "nonlinear" else d
    pca = 2 * channels + k * m + m  # batch normalisation, w, b
    return {
        "baseline": d * d + d,
        "direct": pca + m * K * d + d,
        "average": pca + m * d + d,
        "nonlinear": pca + m * K * d + d,
    }[architecture]


def formula(variant, source, target, d, h, ff, layers, outputs=None):
    """Of the encoder-decoder: embeddings, projections, feed-forward, norms, and what stands after the heads."""
    attention = 3 * d * d + after_the_heads(variant, d, h) + 2 * d  # and its layer norm
    feed_forward = d * ff + ff + ff * d + d + 2 * d
    return (source + target + (outputs or target)) * d + layers * (3 * attention + 2 * feed_forward)


def lm_formula(variant, words, positions, d, h, ff, layers):
    """Of the language model: biases everywhere, the output tied to the embedding."""
    attention = 3 * d * d + 3 * d + after_the_heads(variant, d, h) + 2 * d
    feed_forward = d * ff + ff + ff * d + d + 2 * d
    return (words + positions) * d + layers * (attention + feed_forward)


def test_a_variant_of_ones_own_has_no_count_in_the_paper(project):
    project.write_profile("own", define={"direct-5": {"name": "deacon", "architecture": "direct", "m": 5}},
                          variants=["baseline", "direct-5"])  # fmt: skip
    audit = params.audit("own", EXPERIMENT)
    assert (audit["direct-5"]["paper"], audit["direct-5"]["follows"]) == (None, None)
    assert audit["baseline"] | {"parameters": 0} == {
        "parameters": 0, "at_paper_sizes": 5370112, "paper": 5370112, "follows": "yes"
    }  # fmt: skip
    assert parameter_table("own", EXPERIMENT)["difference"].isna().tolist() == [False, True]
    done = CliRunner().invoke(cli, ["params", EXPERIMENT, "--profile", "own"], catch_exceptions=False)
    lines = done.output.splitlines()
    count = f"{audit['direct-5']['parameters']:,}"
    assert [line.split() for line in lines[1:]] == [
        ["baseline", f"{audit['baseline']['parameters']:,}", "5,370,112", "5,370,112", "yes"],
        ["direct-5", count, "5,225,998", "–", "–"],
    ]


def test_an_arm_counts_with_its_choice_and_before_there_is_one_with_the_profiles_settings(project, monkeypatch):
    plain = params.audit("tiny", EXPERIMENT)
    wider = {"seeds": [101], "rungs": [1], "keep": [1], "settings": [{"model.d_ff": 32}], "arms": {"direct-8": []}}
    project.write_profile("tuned", tune=wider)
    assert params.audit("tuned", EXPERIMENT) == plain
    monkeypatch.setattr(Arm, "tuned", lambda arm, seed: arm.config(0, seed))
    added = {
        name: row["parameters"] - plain[name]["parameters"] for name, row in params.audit("tuned", EXPERIMENT).items()
    }
    assert added == {"baseline": 0, "direct-8": 2 * (16 * 16 + 16 + 16 * 16)}  # in encoder and decoder


def vocabulary_is(monkeypatch, task, *sizes):
    """These sizes, without the data."""
    monkeypatch.setattr(type(TASKS[task]), "vocabulary", lambda self, config: sizes)


PAPERS_SIZES = """\
title: paper
seeds: [1]
experiments:
  deacon/translation: {data: {name: multi30k, test: test_2016_flickr}}
  deacon/summarisation: {data: {name: toy}}
  deacon/qa: {data: {name: toy}}
  deacon/lm: {data: {name: toy, epoch_tokens: 1000}}
"""


@pytest.fixture
def papers_sizes(project):
    """The paper's sizes, which are the defaults."""
    return project.write_config("paper", PAPERS_SIZES)


def test_every_count_of_table_3_comes_out_exactly(papers_sizes, monkeypatch):
    """With the vocabularies of Multi30k at a minimal frequency of 5."""
    vocabulary_is(monkeypatch, "translation", 3369, 3665)
    audit = params.audit(papers_sizes, EXPERIMENT)
    output = CliRunner().invoke(cli, ["params", EXPERIMENT, "--profile", papers_sizes]).output
    assert f"{audit['direct-8']['parameters']:,}" in output
    reported = {name: row.reported["parameters"] for name, row in task_of("deacon/translation").variants.items()}
    assert list(audit) == VARIANTS
    assert {name: row["parameters"] for name, row in audit.items()} == reported
    assert {name: row["paper"] for name, row in audit.items()} == reported
    assert {row["follows"] for row in audit.values()} == {"yes"}
    assert reported == {variant: formula(variant, 3369, 3665, 256, 8, 512, 2) for variant in VARIANTS}
    assert (parameter_table(papers_sizes, EXPERIMENT)["difference"] == 0).all()


@pytest.mark.parametrize(("task", "vocabulary", "outputs"), [("summarisation", 30000, 30000), ("qa", 8000, 2)])
def test_with_another_vocabulary_the_differences_follow_and_the_count_does_not(
    papers_sizes, monkeypatch, task, vocabulary, outputs
):
    """Tables 4 and 5 repeat Table 3's counts, for data with other vocabularies; a span needs two rows of output."""
    vocabulary_is(monkeypatch, task, *[vocabulary] * (1 if task == "qa" else 2))
    audit = params.audit(papers_sizes, f"deacon/{task}")
    assert audit["baseline"]["follows"] == "no"
    assert {audit[variant]["follows"] for variant in VARIANTS[1:]} == {"difference from the baseline only"}
    for variant, row in audit.items():
        assert row["parameters"] == formula(variant, vocabulary, vocabulary, 256, 8, 512, 2, outputs=outputs)
    assert parameter_table(papers_sizes, f"deacon/{task}")["difference"].nunique() == 1


def test_of_table_6_the_baseline_alone_follows(papers_sizes, monkeypatch):
    """On the meta device: 354 million parameters are counted and none is allocated."""
    monkeypatch.setattr(training, "initialise", None)
    audit = params.audit(papers_sizes, "deacon/lm")
    assert list(audit) == PAPERS_LM
    assert set(audit["baseline"].values()) == {354_818_048, "yes"}
    assert {audit[variant]["follows"] for variant in PAPERS_LM[1:]} == {"no"}
    for variant, row in audit.items():
        assert row["parameters"] == lm_formula(variant, 50254, 1024, 1024, 16, 4096, 24)


def test_counts_that_are_printed_rounded_follow_when_they_round_to_them(project, monkeypatch):
    task = task_of("deacon/translation")
    rough = task.variants["baseline"].model_copy(update={"reported": {"parameters": 5_400_000}})
    sizes = task.sizes.model_copy(update={"printed_to": 100_000})
    rounded = task.model_copy(update={"variants": {"baseline": rough}, "sizes": sizes})
    monkeypatch.setattr(params, "task_of", lambda experiment: rounded)
    project.write_profile("alone", variants=["direct-8"])
    assert list(params.audit("alone", EXPERIMENT)) == ["direct-8"]  # without a baseline to differ from
    project.write_profile("alone", variants=["baseline"])
    assert params.audit("alone", EXPERIMENT)["baseline"]["follows"] == "yes"
