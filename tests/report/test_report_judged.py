"""The contest's first part: what is said of each arm, when, and what stands beside it."""

import math

import pytest
from reported import metrics, put, worked_out, write_profile

from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report import figures
from headdiv.companion.report.plotting import VERDICT_LOOKS
from headdiv.companion.report.tables import table_data
from headdiv.companion.report.verdicts import verdict

EXPERIMENT = "headtohead/tuned"
SEEDS = (201, 202, 203, 204)
GAINS = {"direct-8": -0.05, "batch-norm": -0.04, "alphas": 0.0005, "rfb-80": 0.03, "layer-dropout": 0.005}


def store(project, but=()):
    """Losses by variant and seed; the score goes with the loss."""
    write_profile(project, "p", EXPERIMENT, seeds=SEEDS, variants=["baseline", *GAINS])
    losses = {}
    for place, (variant, gain) in enumerate({"baseline": 0.0, **GAINS}.items()):
        for seed in SEEDS:
            if (variant, seed) not in but:
                jitter = 0.001 * ((7 * seed + 3 * place**2) % 5 - 2)
                losses.setdefault(variant, {})[seed] = 1.6 + 0.01 * (seed - 200) + gain + jitter
    for variant, by_seed in losses.items():
        for seed, loss in by_seed.items():
            values = {name: 70 - 20 * loss for name in task_of(EXPERIMENT).columns if name.startswith(("bleu", "chrf"))}
            put(metrics(variant, seed, experiment=EXPERIMENT, validation_nll_best=loss, **values))
    return losses


def test_the_validation_loss_decides_by_the_rules(project):
    store(project)
    _, against, _ = table_data("p", EXPERIMENT).tables.values()
    assert dict(zip(GAINS, against["Verdict"], strict=True)) == {
        "direct-8": "helps",
        "batch-norm": "helps",
        "alphas": "makes no difference that matters",
        "rfb-80": "hurts",
        "layer-dropout": "hurts",
    }
    assert list(against["By BLEU"]) == ["better", "better", "as good", "worse", "worse"]
    axes = figures.draw("headtohead_tuned_curves", "p").axes[3:]
    of_verdicts = {look["color"] for look in VERDICT_LOOKS.values()}
    assert {ax.lines[-1].get_color() for ax in axes[1::3]} <= of_verdicts  # of validation losses
    assert not {ax.lines[-1].get_color() for ax in axes[::3]} & of_verdicts  # training losses decide nothing


@pytest.mark.parametrize(
    ("mean", "half", "count", "decision"),
    [
        (0.02, 0.01, 3, "better"),
        (-0.02, 0.01, 3, "worse"),
        (0.001, 0.002, 3, "as good"),
        (0.02, 0.03, 3, "undecided"),
        (0.002, 0.015, 3, "undecided"),  # its equivalence has p = 0.07
        (0.02, 0.01, 1, "one seed, not judged"),
        (0.02, math.nan, 3, "one seed, not judged"),
    ],
)
def test_a_verdict_needs_an_interval_without_0_or_equivalence(mean, half, count, decision):
    difference = Difference(mean, half, count, error=half / 3, freedom=10)
    assert verdict(difference, margin=0.01) == decision
    swapped = {"better": "worse", "worse": "better"}
    assert verdict(difference, higher=False, margin=0.01) == swapped.get(decision, decision)
    assert verdict(difference) == decision.replace("as good", "undecided")


def test_nothing_is_judged_before_all_trainings_are_there(project):
    store(project, but=[("alphas", 203)])
    data, note = table_data("p", EXPERIMENT), "Not judged yet: 23 of 24 runs are stored."
    assert data.remarks[0] == note
    assert not any("Verdict" in table for table in data.tables.values())
    forest = figures.draw("headtohead_tuned_forest", "p")
    assert note in forest.get_suptitle()
    assert forest.legends[0].get_texts()[1].get_text() == "not judged yet"


def test_a_training_that_failed_is_no_longer_asked_for(project):
    store(project, but=[("alphas", 203)])
    text = (project.home / "config" / "p.yaml").read_text()
    project.write_config("p", text.replace(f"{EXPERIMENT}:", f"{EXPERIMENT}:\n    failed: {{alphas: [203]}}"))
    data = table_data("p", EXPERIMENT)
    assert "Verdict" in data.tables["minus the Transformer"]
    assert "Runs that failed twice, by seed: MHM (mixing) (203)." in data.remarks


def test_without_the_transformer_there_are_scores_and_no_verdicts(project):
    losses = store(project)
    write_profile(
        project, "p", EXPERIMENT, seeds=SEEDS, variants=[variant for variant in losses if variant != "baseline"]
    )
    arms, against, _ = table_data("p", EXPERIMENT).tables.values()
    assert len(arms) == 5
    assert set(against["Verdict"]) == {"–"}


def test_a_run_with_averaged_parameters_is_judged_by_the_mean_bleu_of_its_test_sets(project):
    write_profile(project, "p", EXPERIMENT, seeds=(401, 402, 403), variants=["baseline", "dis-o"])
    bleu = {"baseline": ((38.0, 30.0, 25.0), (38.5, 30.0, 25.6), (38.0, 30.4, 25.1)),
            "dis-o": ((38.0, 32.0, 27.0), (38.5, 32.3, 27.5), (38.1, 32.4, 27.0))}  # fmt: skip
    tests = ["test_2017_flickr", "test_2017_mscoco"]
    for averaged in (False, True):
        for variant, by_seed in bleu.items():
            for seed, values in zip((401, 402, 403), by_seed, strict=True):
                scores = dict(zip(["bleu", *(f"bleu_{test}" for test in tests)], values, strict=True))
                scores |= {f"chrf_{test}": 60.0 for test in tests}
                scores |= {"validation_nll_average": 1.6, "bleu_average": 39.0} if averaged else {}
                run = metrics(variant, seed, experiment=EXPERIMENT, validation_nll_best=1.6 + seed / 1e4, **scores)
                run["config"]["data"]["more_tests"] = tests
                if averaged:
                    run["scores"]["bleu_average"]["signature"] = f"the parameters of epochs {seed} to {seed + 9}"
                cka = 0.1 if variant == "dis-o" else 0.3
                run["heads"] = {"measures": {"encoder 1": {"cka": [[1.0, cka], [cka, 1.0]], "effective_rank": 7.0}}}
                put(run)
        data = table_data("p", EXPERIMENT)
        assert ("bleu_mean" in data.numbers) == ("BLEU, averaged" in data.tables["every model"]) == averaged
        assert data.tables["minus the Transformer"]["By BLEU"].item() == ("better" if averaged else "as good")
    assert data.signatures["BLEU, averaged"] == "the parameters of the last 10 epochs"
    means = {variant: [sum(values) / 3 for values in by_seed] for variant, by_seed in bleu.items()}
    numbers = data.numbers.set_index("variant")
    for variant, by_seed in means.items():
        assert numbers.loc[variant, "bleu_mean"] == pytest.approx(sum(by_seed) / 3)
    assert numbers["cka"].to_dict() == pytest.approx({"baseline": 0.3, "dis-o": 0.1})
    assert numbers.loc["dis-o", "cka_difference"] == pytest.approx(-0.2)
    scores = {variant: dict(enumerate(by_seed)) for variant, by_seed in means.items()}
    ((mean, half, _),) = worked_out(scores, ("dis-o", "baseline")).values()
    row = numbers.loc["dis-o"]
    assert (row["bleu_mean_difference"], row["bleu_mean_difference_high"] - mean) == pytest.approx(
        (mean, half), rel=1e-3
    )
