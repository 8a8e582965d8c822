"""Figures of the homeostasis paper and its tables, from metrics written by hand."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from reported import HOMEOSTASIS, homeostatic, write_profile

from headdiv.core.errors import DataError
from headdiv.experiments import results as store
from headdiv.experiments.results import RunResult
from headdiv.methods.kwta import boost, keep_probabilities
from headdiv.report import figures, homeostasis, illustrations
from headdiv.report.tables import as_markdown, results_table

MEMORISATION, SMALL, BASE, BIG = HOMEOSTASIS
BLEU = [f"homeostasis_figure{number}" for number in (1, 2, 3, 4)]


@pytest.fixture
def write(project):
    """Writes profile "p" with these experiments, and records runs: (variant, seed, what `homeostatic` takes)."""

    def make(*experiments, runs=(), **sections):
        write_profile(project, "p", *experiments, **sections)
        for variant, seed, values in runs:
            store.record(homeostatic(variant, seed, **values), "p")

    return make


def lines(figure):
    return {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}


# ---- BLEU by epoch


@pytest.mark.parametrize(("name", "split", "per_epoch"), [(BLEU[0], "training", 20), (BLEU[1], "validation", 10)])
def test_figures_1_and_2_are_means_over_seeds_of_what_memorises(write, name, split, per_epoch):
    values = {"experiment": MEMORISATION, "epochs": 3}
    write(
        MEMORISATION,
        runs=[("kwta-50", 1, values), ("baseline", 1, values), ("baseline", 2, values), ("kwta-20", 2, values)],
    )
    figure = figures.draw(name, "p")
    means = {"Small": 1.5, "Small, kWTA, s = 0.2": 2, "Small, kWTA, s = 0.5": 1}  # seeds are added to every BLEU
    assert lines(figure) == {label: [per_epoch * n + seed for n in (1, 2, 3)] for label, seed in means.items()}
    assert figure.axes[0].get_ylabel() == f"{split} BLEU (0 to 100)"
    assert figure.axes[0].get_ylim()[0] == 0
    assert f"{split.capitalize()} BLEU of 100 pairs: toy, 3 epochs, mean over 1 or 2 seeds" in figure.get_suptitle()
    assert len({(to_hex(line.get_color()), line.get_marker()) for line in figure.axes[0].lines}) == 3


def test_figure_4_names_the_sizes_of_models_of_every_experiment_that_the_profile_has(write):
    runs = [("rfb-50", 1, {}), ("baseline", 1, {"parameters": 23_125_760}), ("rfb-80", 1, {})]
    write(SMALL, BIG, runs=[*runs, ("baseline", 1, {"experiment": BIG, "parameters": 224_623_616})])
    assert list(lines(figures.draw("homeostasis_figure4", "p"))) == [
        "small: (A) Small, 23.1 M parameters",
        "small: (B) RFB-kWTA and dropout, s = 0.5, 0.0 M parameters",
        "big: (A) Big, 224.6 M parameters",
    ]


def test_a_long_training_keeps_its_markers_apart(write):
    write(SMALL, runs=[("baseline", 1, {"epochs": 400})])
    (line,) = figures.draw("homeostasis_figure3", "p").axes[0].lines
    assert 400 / line.get_markevery() <= 25


def test_a_profile_that_scores_no_epochs_gets_a_sentence(write):
    write(SMALL, runs=[("baseline", 1, {"scored": False})])
    figure = figures.draw("homeostasis_figure3", "p")
    assert figure.axes == []
    assert "train.epoch_scores is 0" in figure.texts[0].get_text()


def test_what_is_not_stored_is_left_out_and_named_if_nothing_is(write):
    write(SMALL, BASE, BIG, runs=[("rfb-90", 1, {}), ("dropout", 1, {"experiment": BASE})])
    with pytest.raises(DataError) as found:
        figures.draw("homeostasis_figure4", "p")
    assert "homeostasis/small (baseline, rfb-50), homeostasis/base (baseline), " in str(found.value)
    store.record(homeostatic("rfb-50", 1), "p")
    assert list(lines(figures.draw("homeostasis_figure4", "p"))) == [
        "(B) RFB-kWTA and dropout, s = 0.5, 0.0 M parameters"
    ]


# ---- activity


def parsed(*runs):
    return [RunResult.parse(run) for run in runs]


def test_activity_is_of_all_units_of_all_modules_and_seeds():
    runs = [homeostatic("rfb-50", seed) for seed in (1, 2)]
    found = homeostasis.activity_of(parsed(*runs), blocks=False)
    assert (found.mechanism, found.s) == ("rfb-kwta", 0.5)
    expected = [run["heads"]["activations"][f"encoder {layer}"]["shares"] for run in runs for layer in (1, 2)]
    assert found.shares.tolist() == np.array(expected).ravel().tolist()
    assert homeostasis.activity_of(parsed(*runs), blocks=True) is None
    assert homeostasis.activity_of(parsed(homeostatic("baseline", 1)), blocks=False) is None


def test_activity_stands_by_mechanism_and_place(write):
    runs = [
        ("rfb-80", 1, {}), ("rfb-50", 1, {}), ("baseline", 1, {}), ("baseline", 1, {"experiment": BASE}),
        ("smart-16", 1, {"experiment": BASE}), ("dropout", 1, {"experiment": BASE}),
        ("kwta-50", 1, {"experiment": MEMORISATION}),
    ]  # fmt: skip
    write(MEMORISATION, SMALL, BASE, runs=runs)
    figure = figures.draw("homeostasis_activations", "p")
    heads, blocks = figure.axes
    assert [text.get_text() for text in heads.get_yticklabels()] == [
        "memorisation: Small, kWTA, s = 0.5",
        "small: (B) RFB-kWTA and dropout, s = 0.5",
        "small: (B) RFB-kWTA and dropout, s = 0.8",
        "base: (D) Smart inhibition at both places, Q_BO = 16",
    ]
    assert len(heads.lines) == 4 * 5  # three spans, a median and s, of each
    assert len(blocks.lines) == 5  # smart alone is at the blocks
    black = [line.get_xdata()[0] for line in heads.lines if to_hex(line.get_color()) == "#000000"]
    assert black == [0.5, 0.5, 0.8, 0.9]
    shares = homeostasis.activity_of(parsed(homeostatic("rfb-50", 1)), blocks=False).shares
    assert f"{shares.std():.3f}" in [text.get_text() for text in heads.texts]
    least, most = heads.lines[5].get_xdata()
    assert (least, most) == (shares.min(), shares.max())


def test_activity_needs_a_mechanism_that_counts(write):
    write(SMALL, BASE, runs=[("baseline", 1, {}), ("dropout", 1, {"experiment": BASE})])
    with pytest.raises(DataError, match="needs a run of kwta, rfb-kwta or smart among the stored runs of profile p"):
        figures.draw("homeostasis_activations", "p")


# ---- tables


def test_a_score_that_no_run_has_is_named_and_one_that_a_run_lacks_is_missing_in_its_row(write):
    values = {"experiment": MEMORISATION}
    write(MEMORISATION, runs=[("baseline", 1, values | {"training_bleu": 90.0}), ("kwta-20", 1, values)])
    table = results_table("p", MEMORISATION)
    assert table["training_bleu"].isna().tolist() == [False, True]
    assert table["training_imi_paper"].tolist() == [0.705, 0.728]
    assert "Not measured in these runs: Validation BLEU, Training IMI." in as_markdown("p", MEMORISATION)


# ---- illustrations


def test_the_interpretations_of_smart_inhibition_are_those_of_the_method():
    figure = illustrations.inhibition_readings(s=0.5, units=11)
    keeps, boosts = figure.axes
    drawn = {line.get_label(): line for line in keeps.lines if not line.get_label().startswith("_")}
    for name in ("inhibition", "inverted", "printed"):
        (line,) = (line for label, line in drawn.items() if label.startswith(name))
        shares = np.array(line.get_xdata())
        counts = np.round(shares * 10_000).astype(int)
        assert np.allclose(line.get_ydata(), keep_probabilities(torch.tensor(counts), 0.5, name))
    for line in boosts.lines:
        if line.get_label().startswith("s ="):
            k = round(float(line.get_label().split("= ")[1]) * 11)
            counts = np.round(np.array(line.get_xdata()) * 10_000).astype(int)
            assert np.allclose(line.get_ydata(), boost(torch.tensor(counts), k))
    figure.canvas.draw()
    assert plt.get_fignums() == []
