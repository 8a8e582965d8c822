"""What came out, in words and as a summary for a terminal."""

import json
import math
import re

import pytest
from reported import metrics, store_all, write_profile

from headdiv.core.errors import DataError
from headdiv.core.files import read_json
from headdiv.experiments import results as store
from headdiv.experiments.claims import ledger as claims
from headdiv.experiments.results import with_results
from headdiv.report.outcomes import outcomes, summary_text, verdict_counts

TOY = "A toy corpus: this shows that the pipeline works and reproduces nothing of the paper."


@pytest.fixture(autouse=True)
def profile(project):
    write_profile(project, "p")


def of(experiment="deacon/translation"):
    return next(outcome for outcome in outcomes("p", with_results("p")) if outcome.experiment == experiment)


def record(*runs):
    for run in runs:
        store.record(run, "p")


def test_the_best_variant_stands_against_its_baseline():
    record(metrics("baseline", 1, bleu=28.0), metrics("direct-8", 1, bleu=28.6), metrics("direct-3", 1, bleu=27.0))
    found = of()
    assert (found.best.label, found.better, found.difference) == ("Direct-8", 1, pytest.approx(0.6))
    assert found.papers_difference == pytest.approx(0.5)
    assert found.sentences() == (
        "Direct-8 is the best: BLEU 28.6 against 28.0, 0.6 better (the paper's for the same variant: 0.5 better). "
        "1 of 2 variants scores better than the baseline. With one seed nothing says how much of this is chance."
    )
    assert TOY in found.scale
    assert found.toy


@pytest.mark.parametrize(
    ("scores", "beginning", "end"),
    [
        ({"direct-8": [29]}, "Direct-8 scores better than the baseline: BLEU 29.0 against 28.0, ", "is chance."),
        ({"direct-8": [27]}, "Direct-8 scores no better than the baseline: BLEU 27.0 against 28.0, ", "is chance."),
        ({"direct-8": [28]}, "Direct-8 scores no better than the baseline: ", "is chance."),
        (
            {"direct-8": [27.5], "own": [27.8]},
            "None of 2 variants scores better than the baseline; the nearest is own",
            "",
        ),
        ({"direct-8": [29, 30], "own": [27, 27]}, "Direct-8 is the best: ", "by chance alone more often than not."),
    ],
)
def test_the_sentence_follows_the_scores(scores, beginning, end):
    seeds = len(scores["direct-8"])
    for variant, values in ({"baseline": [28] * seeds} | scores).items():
        record(*(metrics(variant, seed, bleu=float(bleu)) for seed, bleu in enumerate(values, start=1)))
    assert of().sentences().startswith(beginning)
    assert of().sentences().endswith(end)


@pytest.mark.parametrize(
    ("task", "score", "variants", "sign"),
    [
        ("translation", "bleu", ["direct-8", "direct-3", "average-8", "nonlinear-8"], 1),
        ("lm", "perplexity", ["direct-8", "direct-16", "average-16", "nonlinear-16"], -1),
    ],
)
def test_the_finding_counts_intervals_of_differences(project, task, score, variants, sign):
    """Seeds differ by more than variants do, which cancels within a seed."""
    write_profile(project, "p", task, seeds=(1, 2, 3))
    gains = [(0, 0, 0), (1, 1.1, 0.9), (2, 2.2, 1.9), (-1, -1.2, -1), (0.5, -0.4, 0.1), (3,)]
    for variant, of_seeds in zip(["baseline", *variants, "own"], gains, strict=True):
        for seed, gain in enumerate(of_seeds, start=1):
            record(metrics(variant, seed, task=task, **{score: 26.0 + 2 * seed + sign * gain}))
    found = of(f"deacon/{task}")
    assert found.finding() == (
        "2 of 5 variants are better than the baseline, 1 worse, 1 undecided, by 95 % intervals of the difference in "
        f"{found.measure} over 3 seeds; 1 without an interval."
    )
    assert (found.best.label, found.better) == ("own", 4)


def test_less_is_better_where_the_score_is_a_perplexity():
    record(metrics("baseline", 1, task="lm", perplexity=9.5), metrics("direct-8", 1, task="lm", perplexity=9.0))
    record(metrics("direct-16", 1, task="lm", perplexity=10.0))
    found = of("deacon/lm")
    assert [one.label for one in found.variants] == ["Direct-8", "Direct-16"]
    assert "Direct-8 is the best: Perplexity (less is better) 9.00 against 9.50, 0.50 better" in (found.sentences())


def test_seeds_give_a_mean_and_a_spread():
    record(*(metrics("baseline", seed, bleu=28.0) for seed in (1, 2)))
    record(*(metrics("direct-8", seed, bleu=28.0 + seed) for seed in (1, 2)))
    found = of()
    assert (found.shown(found.best), found.shown(found.baseline)) == ("29.5 ± 6.4", "28.0")
    assert found.seeds == (1, 2)
    assert found.runs == 4
    assert found.sentences() == (
        "Direct-8 scores better than the baseline: BLEU 29.5 ± 6.4 against 28.0 (±: 95 % interval over seeds), "
        "1.5 ± 6.4 better (the paper's for the same variant: 0.5 better)."
    )


def test_differences_are_of_equal_seeds():
    record(*(metrics("baseline", seed, bleu=28.0 + seed) for seed in (1, 2)))
    record(metrics("direct-8", 2, bleu=31.0))
    found = of()
    assert (found.shared, found.difference, found.better) == ([2], 1.0, 1)
    assert found.sentences() == (
        "Direct-8 scores better than the baseline: BLEU 31.0 against 29.5 ± 6.4 (±: 95 % interval over seeds), "
        "1.0 better over 1 seed that both have (the paper's for the same variant: 0.5 better). With one seed nothing "
        "says how much of this is chance."
    )


def test_without_a_seed_in_common_nothing_is_compared():
    record(metrics("baseline", 1, bleu=28.0), metrics("direct-8", 2, bleu=31.0))
    found = of()
    assert (found.shared, found.difference, found.better) == ([], None, 0)
    assert found.sentences() == "Direct-8 and the baseline have no seed in common: BLEU 31.0 against 28.0."
    assert found.finding().startswith("No variant has two seeds in common with the baseline, ")


def test_what_is_missing_for_a_comparison_is_said():
    record(metrics("baseline", 1, bleu=28.0))
    assert of().sentences() == "The baseline alone has been run: BLEU 28.0."
    assert of().finding().startswith("One training of each model: ")
    record(metrics("direct-8", 1, task="qa"))
    found = of("deacon/qa")
    assert found.sentences() == "No run of the baseline is stored, so there is nothing to compare with."
    assert (found.difference, found.papers_difference, found.better) == (None, None, 0)
    assert found.versus(found.difference) == "–"


def test_nothing_stored_says_how_to_make_it(project):
    with pytest.raises(DataError, match=r"no stored results; `snakemake reproduce-all --config profile=p` makes them"):
        summary_text("p")


def test_a_summary_has_a_line_an_experiment_and_the_verdicts():
    store_all("p", metrics("baseline", 1, bleu=28.0), metrics("direct-8", 1, bleu=28.6))
    lines = summary_text("p").splitlines()
    assert [re.split(" {2,}", line) for line in lines[:3]] == [
        ["experiment", "score", "baseline", "best variant", "runs"],
        ["deacon/translation", "BLEU ↑ (u)", "28.0", "Direct-8", "28.6 (0.6 better)", "2 runs, 1 seed"],
        ["deacon/summarisation", "ROUGE-L ↑ (u)", "1.00", "nothing but the baseline", "1 run, 1 seed"],
    ]
    counts = verdict_counts(claims.ledger())
    assert list(counts) == list(claims.VERDICTS)
    assert sum(counts.values()) == len(claims.ledger())
    said = ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count)
    assert lines[5].startswith("↑ more is better, ↓ less is better; ±: 95 % interval")
    assert lines[6:] == [f"the papers' claims: {said}", TOY]


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
