"""What came out, in words and as a summary for a terminal."""

import json
import math
import re
import runpy
from pathlib import Path
from statistics import mean, stdev

import pytest
from reported import metrics, store_all, worked_out, write_profile
from scipy import stats

from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.results import with_results
from headdiv.companion.report.outcomes import outcomes, summary_text, verdict_counts
from headdiv.companion.report.verdicts import NOT_JUDGED
from headdiv.core.errors import DataError
from headdiv.core.files import read_json

ROOT = Path(__file__).parents[2]
TOY = "A toy corpus: this shows that the pipeline works and reproduces nothing of the paper."


@pytest.fixture(autouse=True)
def profile(project):
    write_profile(project, "p")


def of(experiment="deacon/translation"):
    return next(outcome for outcome in outcomes("p", with_results("p")) if outcome.experiment == experiment)


def record(*runs):
    for run in runs:
        store.record(run, "p")


def record_rows(rows, task="translation", score="bleu"):
    """Scores by variant, of seeds from 1 on."""
    for variant, of_seeds in rows.items():
        record(*(metrics(variant, seed, task=task, **{score: float(y)}) for seed, y in enumerate(of_seeds, start=1)))
    return {variant: dict(enumerate(map(float, of_seeds), start=1)) for variant, of_seeds in rows.items()}


def test_one_training_of_each_decides_nothing_and_ranks_nothing():
    record_rows({"baseline": [28.0], "direct-8": [28.6], "direct-3": [27.0]})
    found = of()
    assert (found.best, found.papers_difference, found.versus_baseline()) == (None, None, "–")
    assert {found.verdict(one) for one in found.variants} == {NOT_JUDGED}
    assert "none is ranked: BLEU 27.0 to 28.6, the baseline 28.0" in found.sentences()
    assert "One run of each model" in found.finding()
    assert TOY in found.scale
    assert found.toy


@pytest.mark.parametrize(
    ("rows", "verdict", "beginning"),
    [
        ([29.0, 30.1, 31.0], "better", "Direct-8 is better than the baseline and has the highest mean: "),
        ([28.3, 28.6, 30.9], "undecided", "No variant is shown to be better than the baseline; the highest mean has D"),
        ([27.1, 27.9, 29.0], "worse", "No variant is shown to be better than the baseline; the highest mean has D"),
        ([28.0, 29.0, 30.0], "equal, undecided", "No variant is shown to be better "),
    ],
)
def test_the_interval_decides_what_is_said_of_the_best_variant(project, rows, verdict, beginning):
    """Of two variants it is Student's of the differences."""
    write_profile(project, "p", seeds=(1, 2, 3))
    scores = record_rows({"baseline": [28.0, 29.0, 30.0], "direct-8": rows})
    found = of()
    gains = [scores["direct-8"][seed] - scores["baseline"][seed] for seed in (1, 2, 3)]
    half = stats.t.ppf(0.975, 2) * stdev(gains) / math.sqrt(3)
    assert (found.best.difference.mean, found.best.difference.half) == pytest.approx((mean(gains), half), abs=1e-9)
    assert found.versus_baseline().endswith(verdict)
    assert found.sentences().startswith(beginning)


@pytest.mark.parametrize(
    ("task", "score", "variants", "sign"),
    [
        ("translation", "bleu", ["direct-8", "direct-3", "average-8", "nonlinear-8"], 1),
        ("lm", "perplexity", ["direct-8", "direct-16", "average-16", "nonlinear-16"], -1),
    ],
)
def test_the_finding_counts_simultaneous_intervals(project, task, score, variants, sign):
    """Seeds differ by more than variants do, which cancels; a row of one seed has an interval, and no verdict."""
    write_profile(project, "p", task, seeds=(1, 2, 3))
    gains = [(0, 0, 0), (1, 1.1, 0.9), (2, 2.2, 1.9), (-1, -1.2, -1), (0.1, 0, 0.2), (3,)]
    names = ["baseline", *variants, "own"]
    rows = {name: [26 + 2 * seed + sign * gain for seed, gain in enumerate(of_seeds, start=1)]
            for name, of_seeds in zip(names, gains, strict=True)}  # fmt: skip
    scores = record_rows(rows, task, score)
    expected = worked_out(scores, *((name, "baseline") for name in names[1:]))
    found = of(f"deacon/{task}")
    by_label = {one.label: one for one in found.variants}
    judged = {name: by_label[task_of(f"deacon/{task}").label(name)] for name in names[1:]}
    for (name, _), (difference, half, _) in expected.items():
        assert judged[name].difference.mean == pytest.approx(difference)
        assert judged[name].difference.half == pytest.approx(half, rel=1e-3)
    assert [found.verdict(one) for one in judged.values()] == ["better", "better", "worse", "undecided", NOT_JUDGED]
    assert judged["own"].difference.half > judged["direct-8"].difference.half
    assert [found.count(verdict) for verdict in ("better", "worse", "undecided")] == [2, 1, 1]
    assert found.finding().startswith("2 of 4 variants are better than the baseline, 1 worse, 1 undecided")
    assert "simultaneous" in found.finding()
    assert "over 3 seeds; 1 of one seed, not judged" in found.finding()
    assert found.variants[0] is judged["own"]
    assert found.best is judged[variants[1]]  # of several seeds


def test_less_is_better_where_the_score_is_a_perplexity():
    record_rows({"baseline": [9.5, 9.6], "direct-8": [9.0, 9.4], "direct-16": [10.0, 10.3]}, "lm", "perplexity")
    found = of("deacon/lm")
    assert [one.label for one in found.variants] == ["Direct-8", "Direct-16"]
    assert found.versus_baseline().startswith("−0.35 ± ")
    assert "the lowest mean has Direct-8: Perplexity (less is better) 9.20" in found.sentences()


def test_a_score_has_students_interval_of_its_own_seeds():
    record_rows({"baseline": [28, 28], "direct-8": [29, 30]})
    found = of()
    assert (found.shown(found.best), found.shown(found.baseline)) == ("29.5 ± 6.4", "28.0")
    assert (found.seeds, found.runs) == ((1, 2), 4)
    assert "BLEU 29.5 ± 6.4 against 28.0, difference +1.5 ± 6.4, undecided" in found.sentences()


@pytest.mark.parametrize("seeds", [(1, 2), (1,)])
def test_without_several_seeds_in_common_nothing_is_ranked(seeds):
    record(*(metrics("baseline", seed, bleu=28.0 + seed) for seed in seeds))
    record(metrics("direct-8", 2, bleu=31.0))
    found = of()
    (one,) = found.variants
    assert one.difference.count == len(seeds) - 1
    assert (found.best, found.verdict(one), found.versus_baseline()) == (None, NOT_JUDGED, "–")
    assert "none is ranked: BLEU 31.0, the baseline" in found.sentences()
    assert "for intervals" in found.finding()


def test_what_is_missing_for_a_comparison_is_said():
    record(metrics("baseline", 1, bleu=28.0))
    assert of().sentences() == "The baseline alone has been run: BLEU 28.0."
    assert of().finding().startswith("One run of each model: ")
    record(metrics("direct-8", 1, task="qa"))
    found = of("deacon/qa")
    assert found.sentences() == "No run of the baseline is stored, so there is nothing to compare with."
    assert (found.papers_difference, found.count("better"), found.versus_baseline()) == (None, 0, "–")


def test_nothing_stored_says_how_to_make_it(project):
    with pytest.raises(DataError, match=r"no stored results; `snakemake reproduce-all --config profile=p` makes them"):
        summary_text("p")


def test_a_summary_has_a_line_an_experiment_and_the_verdicts():
    store_all("p", metrics("baseline", 1, bleu=28.0), metrics("direct-8", 1, bleu=28.6))
    lines = summary_text("p").splitlines()
    assert [re.split(" {2,}", line) for line in lines[:3]] == [
        ["experiment", "score", "baseline", "best mean of several seeds", "runs"],
        ["deacon/translation", "BLEU ↑ (u)", "28.0", "one seed, none is ranked", "2 runs, 1 seed"],
        ["deacon/summarisation", "ROUGE-L ↑ (u)", "1.00", "nothing but the baseline", "1 run, 1 seed"],
    ]
    record(metrics("direct-8", 2, bleu=28.7))  # a second seed, which the baseline lacks
    assert re.split(" {2,}", summary_text("p").splitlines()[1])[-2:] == ["none is ranked", "3 runs, 2 seeds"]
    counts = verdict_counts(claims.ledger())
    assert list(counts) == list(claims.VERDICTS)
    assert sum(counts.values()) == len(claims.ledger())
    said = ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count)
    assert lines[5].startswith("↑ more is better, ↓ less is better; ±: 95 % interval")
    assert lines[6:] == [f"the papers' claims: {said}", TOY]


def test_a_brief_summary_has_a_papers_first_experiment_of_each_kind_and_counts_the_others(project):
    experiments = ("deacon/translation", "deacon/dissection", "deacon/qa", "homeostasis/small", "homeostasis/base")
    write_profile(project, "p", *experiments)
    for name in experiments:
        record(metrics("baseline", 1, task="qa" if name == "deacon/qa" else "translation", experiment=name))
    lines = summary_text("p", brief=True).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["deacon/translation", "deacon/qa", "homeostasis/small"]
    assert lines[4] == "and 2 experiments more: headdiv summary --profile p"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("scores", "bleu", "value"), "scores.bleu.value: input should be a finite number, found nan"),
        (("curve", 1, "validation_bleu"), "curve.1.validation_bleu: input should be"),
        (("heads", "measures"), "heads.measures: input should be"),
    ],
)
def test_a_number_that_is_none_is_named_with_its_file_and_the_remedy(keys, said):
    path = store.record(metrics("direct-8", 1), "p")
    content = found = read_json(path)
    for key in keys[:-1]:
        found = found[key]
    found[keys[-1]] = math.nan
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError) as error:
        with_results("p")
    assert str(error.value).startswith(f"{path}: {said}")
    assert str(error.value).endswith("`headdiv train deacon/translation direct-8 --seed 1 --profile p` makes it anew")


def test_a_broken_run_of_another_profile_stops_no_summary_and_one_of_its_own_does(project, caplog):
    write_profile(project, "other")
    for profile in ("p", "other"):
        path = store.record(metrics("direct-8", 1), profile)
    path.write_text("{", encoding="utf-8")
    assert "deacon/translation" in summary_text("p")
    assert [message.partition(",")[0] for message in caplog.messages] == [str(path)]
    with pytest.raises(DataError, match=r"metrics.json, line 1: not valid JSON"):
        summary_text("other")


def test_the_readmes_picture_of_the_finding_has_a_row_for_each_arm_in_both_panels(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    axes = runpy.run_path(str(ROOT / "scripts" / "readme_figures.py"))["draw_finding"]().axes
    rows = [label.get_text() for label in axes[0].get_yticklabels()]
    assert [len(rows), len(axes)] == [5, 2]
    assert "DEACON, direct, m = 8" in rows
