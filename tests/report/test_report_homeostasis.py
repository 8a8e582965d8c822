"""Figures of the homeostasis paper and its table, from metrics written by hand."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from reported import HOMEOSTASIS, homeostatic, put, write_profile

from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report import figures, homeostasis
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import ConfigError, NotStoredError

MEMORISATION, SMALL, BASE, BIG = HOMEOSTASIS


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", *HOMEOSTASIS)


def curves(figure):
    return {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}


# ---- BLEU by epoch


@pytest.mark.parametrize(
    ("name", "split", "per_epoch"), [("homeostasis_figure1", "training", 20), ("homeostasis_figure2", "validation", 10)]
)
def test_figures_1_and_2_are_means_over_seeds_of_what_memorises(name, split, per_epoch):
    runs = (("kwta-50", 1), ("baseline", 1), ("baseline", 2), ("kwta-20", 2))
    put(*(homeostatic(*run, experiment=MEMORISATION, epochs=3) for run in runs))
    figure = figures.draw(name, "p")
    means = {"Small": 1.5, "Small, kWTA, s = 0.2": 2, "Small, kWTA, s = 0.5": 1}  # seeds are added to every BLEU
    assert curves(figure) == {label: [per_epoch * n + seed for n in (1, 2, 3)] for label, seed in means.items()}
    assert figure.axes[0].get_ylabel() == f"{split} BLEU (0 to 100)"


def test_figure_4_names_the_sizes_of_models_of_every_experiment_that_the_profile_has():
    put(homeostatic("rfb-50", 1), homeostatic("baseline", 1, parameters=23_125_760), homeostatic("rfb-80", 1))
    assert "(A) Small, 23.1 M parameters" in curves(figures.draw("homeostasis_figure4", "p"))
    put(homeostatic("baseline", 1, experiment=BIG, parameters=224_623_616))
    assert list(curves(figures.draw("homeostasis_figure4", "p"))) == [
        "small: (A) Small, 23.1 M parameters",
        "small: (B) RFB-kWTA and dropout, s = 0.5, 0.0 M parameters",
        "big: (A) Big, 224.6 M parameters",
    ]


def test_a_profile_that_scores_no_epochs_has_no_such_figure():
    put(homeostatic("baseline", 1, scored=False))
    with pytest.raises(NotStoredError, match=r"Figure 3: .*train.epoch_scores is 0"):
        figures.draw("homeostasis_figure3", "p")


def test_a_profile_without_the_figures_experiment_is_refused(project):
    write_profile(project, "larger", BASE)
    put(homeostatic("baseline", 1, experiment=BASE), profile="larger")
    with pytest.raises(ConfigError, match=f"profile larger: no experiment '{SMALL}'"):
        figures.draw("homeostasis_figure4", "larger")


def test_what_is_not_stored_is_left_out_and_named():
    put(homeostatic("rfb-90", 1), homeostatic("baseline", 1, experiment=BASE))
    with pytest.raises(NotStoredError, match="Figure 4 needs baseline or rfb-50 among"):
        figures.draw("homeostasis_figure4", "p")
    put(homeostatic("rfb-50", 1))
    figure = figures.draw("homeostasis_figure4", "p")
    assert len(curves(figure)) == 2
    title = " ".join(figure.get_suptitle().split())
    assert title.endswith("Incomplete; not stored in this profile: (A) Small, homeostasis/big")


# ---- activity


def test_activity_is_of_all_units_of_all_modules_and_seeds():
    runs = [homeostatic("rfb-50", seed) for seed in (1, 2)]
    activity = homeostasis.activity_of([RunResult.parse(run) for run in runs], blocks=False)
    assert (activity.mechanism, activity.s) == ("rfb-kwta", 0.5)
    expected = [run["heads"]["activations"][f"encoder {layer}"]["shares"] for run in runs for layer in (1, 2)]
    assert activity.shares.tolist() == np.array(expected).ravel().tolist()
    assert homeostasis.activity_of([RunResult.parse(run) for run in runs], blocks=True) is None
    assert homeostasis.activity_of([RunResult.parse(homeostatic("baseline", 1))], blocks=False) is None


def test_activity_stands_by_mechanism_and_place():
    put(*(homeostatic(variant, 1) for variant in ("rfb-80", "rfb-50", "baseline")))
    put(homeostatic("smart-16", 1, experiment=BASE), homeostatic("dropout", 1, experiment=BASE))
    heads, blocks = figures.draw("homeostasis_activations", "p").axes
    assert [text.get_text() for text in heads.get_yticklabels()] == [
        "small: (B) RFB-kWTA and dropout, s = 0.5",
        "small: (B) RFB-kWTA and dropout, s = 0.8",
        "base: (D) Smart inhibition at both places, Q_BO = 16",
    ]
    assert len(heads.lines) == 3 * 5  # three spans, a median and s, of each
    assert len(blocks.lines) == 5  # smart alone is at the blocks
    black = [line.get_xdata()[0] for line in heads.lines if to_hex(line.get_color()) == "#000000"]
    assert black == [0.5, 0.8, 0.9]
    shares = homeostasis.activity_of([RunResult.parse(homeostatic("rfb-50", 1))], blocks=False).shares
    assert f"{shares.std():.3f}" in [text.get_text() for text in heads.texts]
    assert tuple(heads.lines[0].get_xdata()) == (shares.min(), shares.max())


# ---- tables


def test_a_score_that_no_run_has_is_named_and_one_that_a_run_lacks_is_missing_in_its_row():
    put(homeostatic("baseline", 1, experiment=MEMORISATION, training_bleu=90.0))
    put(homeostatic("kwta-20", 1, experiment=MEMORISATION))
    table = table_data("p", MEMORISATION).numbers
    assert table["training_bleu"].isna().tolist() == [False, True]
    assert table["training_imi_paper"].tolist() == [0.705, 0.728]
    assert "Not measured in these runs: Validation BLEU, Training IMI." in table_data("p", MEMORISATION).markdown()
