"""Which stored runs decide a claim, and each verdict on what was measured."""

import pytest
from claimed import at, hours, store, translation

from headdiv.experiments.claims.ledger import NOT_REPRODUCED, NOT_RUN, REPRODUCED

BLEU = "Table 3, {}, BLEU"
HIGHER = "§5.1, Direct-8, a higher BLEU than the baseline's, measured"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is stored but what a test stores."""
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    return tmp_path


def test_near_enough_is_reproduced_and_further_is_not(home):
    store(home, translation("baseline", bleu=27.5), translation("direct-8", bleu=30.0))
    near, far = at(BLEU.format("Baseline Transformer")), at(BLEU.format("Direct-8"))
    scale = "profile full: multi30k, 29,000 of 29,000 training examples, 30 of 30 epochs, seed 1"
    assert (near.verdict, near.ours) == (REPRODUCED, 27.5)
    assert (near.profile, [(run.variant, run.seed) for run in near.runs]) == ("full", [("baseline", 1)])
    assert near.working == f"27.5 (tolerance 1); {scale}"
    assert (far.verdict, far.ours, far.working) == (NOT_REPRODUCED, 30, f"30 (tolerance 1); {scale}")
    assert at(BLEU.format("Direct-3")).verdict == NOT_RUN


def test_a_relation_is_decided_by_what_was_measured(home):
    store(home, translation("baseline", bleu=31.0), translation("direct-8", bleu=32.2))
    assert (at(HIGHER).verdict, at(HIGHER).ours, at(HIGHER).value) == (REPRODUCED, True, True)
    store(home, translation("direct-8", bleu=29.9))
    assert at(HIGHER).verdict == NOT_REPRODUCED
    assert at(HIGHER).working.startswith("29.9 > 31 is false; profile full: ")


@pytest.mark.parametrize("bleu", [30.1, 31.9])
def test_a_relation_that_chance_may_turn_is_not_decided(home, bleu):
    """Two numbers of one seed each must differ by more than the tolerance, 1 BLEU; of four seeds by half of it."""
    store(home, translation("baseline", bleu=31.0), translation("direct-8", bleu=bleu))
    row = at(HIGHER)
    assert (row.verdict, row.ours) == (NOT_RUN, bleu > 31)
    assert row.working.startswith(
        f"more seeds would have to decide: {bleu} > 31 is {str(bleu > 31).lower()}, by less than chance may move these "
        "numbers; profile full: multi30k"
    )
    store(home, *(translation(variant, seed, bleu=b) for seed in (2, 3, 4) for variant, b in (("baseline", 31.0),
                  ("direct-8", bleu))))  # fmt: skip
    assert at(HIGHER).verdict == (REPRODUCED if bleu > 31 else NOT_REPRODUCED)


def test_scores_are_means_over_the_seeds_that_all_rows_have(home):
    store(home, *(translation("direct-8", seed, bleu=bleu) for seed, bleu in ((1, 30.0), (2, 31.0), (3, 20.0))))
    store(home, *(translation("baseline", seed, bleu=29.4) for seed in (1, 2)))
    assert at(HIGHER).working.startswith("30.5 > 29.4 is true; ")
    assert at(HIGHER).working.endswith("seeds 1, 2")
    assert at(BLEU.format("Direct-8")).ours == 27


@pytest.mark.parametrize(
    "change",
    [
        {"data": "toy"},
        {"data": "multi30k-sample"},
        {"examples": 1014},
        {"d_model": 64},
        {"encoder_layers": 1},
        {"epochs": 9},
        {"method": {"delta_p": 0.05}},
    ],
)
def test_what_is_not_the_papers_decides_nothing_but_is_named(home, change):
    store(home, translation("direct-8", bleu=28.9, **change), profile="other")
    row = at(BLEU.format("Direct-8"))
    assert (row.verdict, row.ours) == (NOT_RUN, None)
    assert row.working == (
        "nothing stored is near enough to the paper's data, sizes, method, length or machine; "
        f"there is: other ({change.get('data', 'multi30k')}, {change.get('epochs', 30)} epochs)"
    )


def test_the_profile_nearest_to_the_paper_decides(home):
    store(home, translation("direct-8", bleu=28.9, epochs=10), profile="short")
    store(home, translation("direct-8", bleu=25.0, epochs=20), profile="longer")
    assert at(BLEU.format("Direct-8")).working.startswith("25 (tolerance 1); profile longer: ")


def test_runs_of_different_length_are_not_compared(home):
    store(home, translation("baseline", bleu=30.0), translation("direct-8", bleu=32.0, epochs=20))
    assert at(HIGHER).verdict == NOT_RUN


@pytest.mark.parametrize(("section", "key", "value"), [("train", "learning_rate", 0.5), ("decode", "beam", 1)])
def test_runs_of_other_settings_are_not_compared(home, section, key, value):
    base, other = translation("baseline", bleu=30.0), translation("direct-8", bleu=32.0)
    store(home, base, other)
    assert at(HIGHER).verdict == REPRODUCED
    base["config"]["decode"] = {"beam": 5}
    other["config"]["decode"] = {"beam": 5}
    other["config"][section] |= {key: value}
    store(home, base, other)
    assert at(HIGHER).verdict == NOT_RUN
    assert at(BLEU.format("Direct-8")).ours == 32


def test_a_run_reproduces_a_setting_that_it_had(home):
    store(home, translation("baseline", epochs=20), translation("direct-8", epochs=20))
    assert at("§5.1, settings, δP").verdict == REPRODUCED
    epochs = at("§5.1, settings, epochs")
    assert (epochs.verdict, epochs.ours) == (NOT_REPRODUCED, 20)


def test_what_the_heads_do_decides_too(home):
    store(home, translation("direct-8"))
    row = at("§5.1, Figure 6, length of the columns of w in Direct-8")
    assert row.verdict == NOT_RUN  # these metrics do not have it
    run = translation("direct-8")
    run["heads"]["pca_weights"] = {
        "encoder.0": {"column_lengths": [0.9, 1.0]},
        "cross.0": {"column_lengths": [1.1, 1.0]},
    }
    store(home, run)
    assert at(row.place).ours == pytest.approx(1.0)


def test_times_are_compared_on_one_machine_and_hours_on_the_papers_alone(home):
    store(home, hours("baseline", 2.0), hours("dpp-a", 4.2), hours("dpp-v", 4.2, device="another GPU"))
    place = "Results, between the columns, time of {} against vanilla, measured"
    row = at(place.format("DPP (A)"), "dpp")
    assert (row.verdict, row.ours, row.kind) == (REPRODUCED, 2.1, "cost")
    assert row.working.startswith("4.2 / 2 = 2.1 (tolerance 0.202); profile full: iwslt14, ")
    assert row.working.endswith(", seed 1, a GPU")
    assert at(place.format("DPP (V)"), "dpp").verdict == NOT_RUN
    assert at("Results, DPP (A), Time", "dpp").verdict == NOT_RUN
