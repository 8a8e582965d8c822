"""Figures of heads, from metrics written by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from reported import headed, metrics, write_profile

from headdiv.core.errors import DataError
from headdiv.experiments import results as store
from headdiv.experiments.results import RunResult
from headdiv.report import figures, heads
from headdiv.report.groups import KINDS

MHR, DPP = "mhr/translation", "dpp/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", MHR, DPP, "translation")


def put(*runs):
    for run in runs:
        store.record(run, "p")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deacon_figure6", "needs one of direct-8, average-8, nonlinear-8 among"),
        ("mhr_figure3", "Figure 3 needs one of alphas-plain among the stored runs of profile p"),
        ("mhr_figure5", "Figure 5 needs one of baseline, alphas, manual among"),
        ("mhr_figure6", "Figure 6 needs one of baseline, alphas, cosine among"),
        ("mhr_swaps", "mhr_swaps needs a run of rotation or dynamic-rotation among"),
    ],
)
def test_a_figure_without_its_variants_says_so(name, message):
    put(headed("baseline-16", 1), metrics("baseline", 1))
    with pytest.raises(DataError, match=message):
        figures.draw(name, "p")


@pytest.mark.parametrize("stored", ["baseline", "alphas"])
def test_a_change_needs_something_to_compare_and_to_compare_with(stored):
    put(headed(stored, 1))
    with pytest.raises(DataError, match="needs baseline and one of alphas, cosine among the stored runs of profile p"):
        figures.draw("mhr_figure7", "p")


def test_results_without_measures_are_named():
    put(headed("baseline", 1), headed("alphas", 1) | {"heads": {}}, headed("manual", 2) | {"heads": {"measures": {}}})
    put(*(metrics(variant, 1) | {"paper": "dpp"} for variant in ("baseline", "dpp-o")))
    lacking = {
        "mhr_figure5": "alphas (seed 1), manual (seed 2)",
        "mhr_swaps": "manual (seed 2)",
        "dpp_heads": "baseline (seed 1), dpp-o (seed 1)",
    }
    for name, runs in lacking.items():
        with pytest.raises(DataError) as found:
            figures.draw(name, "p")
        assert f"results of {runs} have no heads.measures; remove their metrics.json" in str(found.value)


def test_a_variant_keeps_its_colour_in_every_figure():
    put(*(headed(variant, 1) for variant in ("baseline", "alphas", "manual", "cosine")))
    lines = {line.get_label(): line for line in figures.draw("mhr_figure5", "p").axes[3].lines}
    alphas, cosine = figures.draw("mhr_figure6", "p").axes[0].containers
    assert to_hex(lines[alphas.get_label()].get_color()) == to_hex(alphas[0].get_facecolor())
    assert to_hex(cosine[0].get_facecolor()) not in {to_hex(line.get_color()) for line in lines.values()}


# ---- PCA weights and Alphas


def test_pca_weights_of_the_stored_variants_are_drawn_with_their_first_seed():
    put(metrics("own", 1), metrics("direct-8", 1), metrics("direct-8", 2))
    figure = figures.draw("deacon_figure6", "p")
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert "Direct-8\ncomponent" in labels
    assert not any("Average" in label for label in labels)
    assert [ax.get_title() for ax in figure.axes[:2]] == ["encoder 1\noff-diagonal 0.50", "cross 1\noff-diagonal 0.50"]
    assert figure.get_suptitle().endswith("toy, 2 epochs, seed 1")


@given(st.integers(2, 6), st.integers(0, 1000))
def test_skew_share(size, seed):
    M = np.random.default_rng(seed).normal(size=(size, size))
    pairs = [(i, j) for i in range(size) for j in range(size) if i != j]
    expected = sum(((M[i, j] - M[j, i]) / 2) ** 2 for i, j in pairs) / sum(M[i, j] ** 2 for i, j in pairs)
    assert heads.skew_share(M) == pytest.approx(expected)
    assert heads.skew_share(M + 5 * np.eye(size)) == pytest.approx(expected)
    assert heads.skew_share(M - M.T) == pytest.approx(1)
    assert heads.skew_share(M + M.T) == pytest.approx(0)
    assert np.isnan(heads.skew_share(np.eye(size)))


def test_alphas_are_drawn_as_their_difference_from_the_identity():
    runs = [headed("alphas", seed, heads=4, layers=3) for seed in (1, 2)]
    put(*runs, headed("alphas-plain", 1))
    figure = figures.draw("mhr_figure4", "p")
    alphas = runs[0]["heads"]["alphas"]
    drawn = [np.array(ax.images[0].get_array()) for ax in figure.axes[:9]]
    for array, module in zip(drawn, alphas.values(), strict=True):
        assert np.allclose(array, np.array(module["alphas"]) - np.eye(4))
    assert {ax.images[0].get_clim() for ax in figure.axes[:9]} == {(-np.abs(drawn).max(), np.abs(drawn).max())}
    norm = np.linalg.norm(alphas["encoder 1"]["alphas"], "nuc")
    share = heads.skew_share(np.array(alphas["encoder 1"]["alphas"]))
    assert figure.axes[0].get_title() == f"layer 1: ‖A‖∗ = {norm:.2f}\nskew share {share:.2f}"


def test_alphas_that_never_moved_are_white_and_missing_modules_have_no_panel():
    run = headed("alphas-plain", 1, layers=3)
    for module in run["heads"]["alphas"].values():
        module["alphas"] = np.eye(3).tolist()
    del run["heads"]["alphas"]["encoder 3"], run["heads"]["alphas"]["encoder 2"]
    put(run)
    panels = figures.draw("mhr_figure3", "p").axes[:9]
    assert [ax.axison for ax in panels] == [True, False, False] + [True] * 6
    assert panels[0].images[0].get_clim() == (-1, 1)
    assert panels[0].get_title().endswith("skew share –")


# ---- confidence


def test_heads_of_two_seeds_are_averaged_by_rank():
    runs = [headed("baseline", seed, heads=4) for seed in (1, 2)]
    first, second = (sorted(run["heads"]["measures"]["cross 2"]["confidence"]) for run in runs)
    assert heads.ranked(list(map(RunResult.parse, runs)), "confidence")["cross", 2].tolist() == [first, second]
    put(*runs)
    figure = figures.draw("mhr_figure5", "p")
    assert [ax.get_title() for ax in figure.axes[:3]] == list(KINDS.values())
    assert figure.axes[2].lines[1].get_ydata() == pytest.approx(np.mean([first, second], axis=0))
    deviations = figure.axes[5].lines[0]
    assert deviations.get_ydata()[1] == pytest.approx((np.std(first) + np.std(second)) / 2)
    assert list(deviations.get_xdata()) == [1, 2]


# ---- distances


def test_total_discrepancy_is_the_sum_over_all_pairs():
    measures = headed("baseline", 1, heads=4)["heads"]["measures"]["encoder 1"]
    cosine = sum(1 - measures["cosine"][i][j] for i in range(4) for j in range(4))
    assert heads.discrepancy(np.array(measures["cosine"]), "cosine") == pytest.approx(cosine)
    l2 = sum(measures["l2"][i][j] for i in range(4) for j in range(4))
    assert heads.discrepancy(np.array(measures["l2"]), "l2") == pytest.approx(l2)


def test_changes_are_percentages_of_means_over_seeds():
    base, wide = ([headed(variant, seed) for seed in (1, 2)] for variant in ("baseline", "alphas"))
    for run in wide:
        for module in run["heads"]["measures"].values():
            module["l2"] = (3 * np.array(module["l2"])).tolist()
            module["cosine"] = (1 - 0.75 * (1 - np.array(module["cosine"]))).tolist()
    groups = {"baseline": list(map(RunResult.parse, base)), "alphas": list(map(RunResult.parse, wide))}
    assert list(heads.changes(groups, "baseline", "l2")["alphas"].values()) == pytest.approx([200] * 6)
    assert list(heads.changes(groups, "baseline", "cosine")["alphas"].values()) == pytest.approx([-25] * 6)
    totals = [np.sum(run["heads"]["measures"]["cross 1"]["l2"]) for run in base]
    alone = heads.changes(groups | {"alphas": groups["alphas"][:1]}, "baseline", "l2")["alphas"]["cross", 1]
    assert alone == pytest.approx(100 * (3 * totals[0] / np.mean(totals) - 1))
    put(*base, *wide)
    for ax in figures.draw("mhr_figure7", "p").axes:
        assert [bar.get_height() for bar in ax.containers[0]] == pytest.approx([200, 200])


@pytest.mark.parametrize(
    ("name", "experiment", "variant"), [("mhr_figure6", MHR, "alphas"), ("dpp_heads", DPP, "dpp-o")]
)
def test_a_single_head_has_no_distance_from_others(name, experiment, variant):
    put(*(headed(v, 1, heads=1, experiment=experiment) for v in ("baseline", variant)))
    with pytest.raises(DataError, match="baseline, encoder 1 has a single head"):
        figures.draw(name, "p")


# ---- similarity and sharpness


def test_similarity_and_sharpness_are_means_over_pairs_heads_and_layers():
    runs = {(v, seed): headed(v, seed, experiment=DPP) for v in ("baseline", "dpp-o") for seed in (1, 2)}
    put(*runs.values())

    def mean(variant, kind, layer, of):
        return np.mean([of(runs[variant, seed]["heads"]["measures"][f"{kind} {layer}"]) for seed in (1, 2)])

    def similarity(m):
        return np.mean([m["cosine"][i][j] for i in range(3) for j in range(3) if i != j])

    figure = figures.draw("dpp_heads", "p")
    assert len(figure.axes) == 6
    for row, of in enumerate((similarity, lambda m: np.mean(m["entropy"]))):
        for column, kind in enumerate(KINDS):
            first, second, over_layers, dashed = figure.axes[3 * row + column].lines
            expected = np.array([[mean(v, kind, layer, of) for layer in (1, 2)] for v in ("baseline", "dpp-o")])
            assert first.get_xdata() == pytest.approx(expected[:, 0])
            assert second.get_xdata() == pytest.approx(expected[:, 1])
            assert over_layers.get_xdata() == pytest.approx(expected.mean(axis=1))
            assert dashed.get_xdata()[0] == pytest.approx(expected[0].mean())
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["Vanilla", "DPP (O)"]
