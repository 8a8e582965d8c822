"""Parameter counts against formulas, and against every count of DEACON's Table 3."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT

from headdiv import params
from headdiv.cli import cli
from headdiv.errors import ConfigError
from headdiv.papers import load_task
from headdiv.report.tables import parameter_table

VARIANTS = ["baseline", "direct-8", "direct-3", "average-8", "average-3", "nonlinear-8", "nonlinear-3"]


def formula(variant, source, target, d, h, ff, layers):
    """Counted by hand: embeddings, projections, feed-forward, norms, and what stands after the heads."""
    K = d // h
    architecture, _, m = variant.partition("-")
    m = int(m or 0)
    k = {"nonlinear": h * (h + 3) // 2}.get(architecture, h)
    channels = k if architecture == "nonlinear" else d
    pca = 2 * channels + k * m + m  # batch normalisation, w, b
    output = {
        "baseline": d * d + d,
        "direct": pca + m * K * d + d,
        "average": pca + m * d + d,
        "nonlinear": pca + m * K * d + d,
    }[architecture]
    attention = 3 * d * d + output + 2 * d  # and its layer norm
    feed_forward = d * ff + ff + ff * d + d + 2 * d
    return (source + 2 * target) * d + layers * (3 * attention + 2 * feed_forward)


def test_audit_of_a_toy_profile_is_the_formula(project):
    config = project.config()
    project.write_profile("all", variants=None)
    from headdiv.data.corpus import load_corpus

    corpus = load_corpus(config.data)
    told = params.audit("all", EXPERIMENT)
    sizes = (len(corpus.source), len(corpus.target), 16, 8, 16, 1)
    assert {name: row["parameters"] for name, row in told.items()} == {
        variant: formula(variant, *sizes) for variant in VARIANTS
    }
    assert not (project.home / "work").exists()


def test_a_variant_of_ones_own_has_no_count_in_the_paper(project):
    project.write_profile("own", define={"direct-5": {"name": "deacon", "architecture": "direct", "m": 5}},
                          variants=["baseline", "direct-5"])  # fmt: skip
    told = params.audit("own", EXPERIMENT)
    assert told["direct-5"]["paper"] is None
    assert told["baseline"]["paper"] == 5370112
    table = parameter_table("own", EXPERIMENT)
    assert table.loc["baseline", "difference"] == told["baseline"]["parameters"] - 5370112
    assert table["difference"].isna().tolist() == [False, True]
    result = CliRunner().invoke(cli, ["params", EXPERIMENT, "--profile", "own"])
    counts = [f"{told[name]['parameters']:>12,}" for name in ("baseline", "direct-5")]
    assert result.output.splitlines() == [
        f"baseline      {counts[0]}  paper    5,370,112",
        f"direct-5      {counts[1]}  paper            –",
    ]


@pytest.fixture
def papers_vocabularies(project, monkeypatch):
    """The sizes of Multi30k's vocabularies at a minimal frequency of 5, without the data."""
    words = SimpleNamespace(source=range(3369), target=range(3665))
    monkeypatch.setattr(params, "load_corpus", lambda config: words)
    project.write_config(
        "paper",
        "title: paper\nseeds: [1]\nexperiments:\n"
        f"  {EXPERIMENT}:\n    data: {{name: multi30k, test: test_2016_flickr}}\n",
    )


def test_every_count_of_table_3_comes_out_exactly(papers_vocabularies):
    result = CliRunner().invoke(cli, ["params", EXPERIMENT, "--profile", "paper", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    reported = {name: row.reported["parameters"] for name, row in load_task("deacon", "translation").variants.items()}
    assert list(told) == VARIANTS
    assert {name: row["parameters"] for name, row in told.items()} == reported
    assert {name: row["paper"] for name, row in told.items()} == reported
    assert reported == {variant: formula(variant, 3369, 3665, 256, 8, 512, 2) for variant in VARIANTS}
    assert (parameter_table("paper", EXPERIMENT)["difference"] == 0).all()


def test_another_experiment_is_named(project):
    with pytest.raises(ConfigError, match=r"^profile tiny: no experiment 'deacon/x'; known here: deacon/translation$"):
        params.audit("tiny", "deacon/x")
