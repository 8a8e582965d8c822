"""Drawings of heads, from metrics written by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from reported import headed, metrics, write_profile

from headdiv.core.errors import DataError
from headdiv.experiments import results as store
from headdiv.report import figures, heads

MHR, DPP = "mhr/translation", "dpp/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", MHR, DPP)


def put(*told):
    for m in told:
        store.record(m, "p")


def places(figure, count):
    return [ax.get_title() for ax in figure.axes[:count]]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mhr_figure3", "Figure 3 needs one of alphas-plain among the stored runs of profile p"),
        ("mhr_figure4", "Figure 4 needs one of alphas among the stored runs of profile p"),
        ("mhr_figure5", "Figure 5 needs one of baseline, alphas, manual among the stored runs of profile p"),
        ("mhr_figure6", "Figure 6 needs one of baseline, alphas, cosine among the stored runs of profile p"),
        ("mhr_swaps", "mhr_swaps needs a run of rotation or dynamic-rotation among the stored runs of profile p"),
    ],
)
def test_a_figure_without_its_variants_says_so(name, message):
    put(headed("baseline-16", 1))
    with pytest.raises(DataError) as found:
        figures.draw(name, "p")
    assert str(found.value) == message


@pytest.mark.parametrize("there", [["baseline"], ["alphas"]])
def test_a_change_needs_something_to_compare_and_to_compare_with(there):
    put(*(headed(variant, 1) for variant in there))
    with pytest.raises(DataError) as found:
        figures.draw("mhr_figure7", "p")
    assert str(found.value) == ("Figure 7 needs baseline and one of alphas, cosine among the stored runs of profile p")


@pytest.mark.parametrize("old", [{}, {"measures": {}}])
def test_results_without_measures_are_named(old):
    put(headed("baseline", 1), headed("alphas", 1) | {"heads": old}, headed("alphas", 2), headed("manual", 2))
    put(headed("manual", 2) | {"heads": old})
    for name in ("mhr_figure5", "mhr_swaps"):
        with pytest.raises(DataError) as found:
            figures.draw(name, "p")
        lacking = {"mhr_figure5": "alphas (seed 1), manual (seed 2)", "mhr_swaps": "manual (seed 2)"}[name]
        title = {"mhr_figure5": "Figure 5", "mhr_swaps": "mhr_swaps"}[name]
        assert str(found.value) == (
            f"{title}: the stored results of {lacking} have no heads.measures; remove their metrics.json, and "
            "`snakemake reproduce-all --config profile=p` makes them anew"
        )


def test_results_of_before_are_named_by_every_figure_of_measures():
    put(*(metrics(v, 1) | {"paper": "dpp"} for v in ("baseline", "dpp-o")))
    with pytest.raises(DataError) as found:
        figures.draw("dpp_heads", "p")
    assert str(found.value).startswith("dpp_heads: the stored results of baseline (seed 1), dpp-o (seed 1) have no")


def test_a_variant_keeps_its_colour_in_every_figure():
    put(*(headed(variant, 1) for variant in ("baseline", "alphas", "manual", "cosine")))
    lines = {line.get_label(): line for line in figures.draw("mhr_figure5", "p").axes[3].lines}
    (mixed, parted) = figures.draw("mhr_figure6", "p").axes[0].containers
    assert to_hex(lines[mixed.get_label()].get_color()) == to_hex(mixed[0].get_facecolor())
    assert to_hex(parted[0].get_facecolor()) not in {to_hex(line.get_color()) for line in lines.values()}


# ---- Alphas


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


def test_alphas_are_shown_as_what_was_added_to_the_identity():
    told = [headed("alphas", seed, heads=4, layers=3) for seed in (1, 2)]
    put(*told, headed("alphas-plain", 1))
    figure = figures.draw("mhr_figure4", "p")
    alphas = told[0]["heads"]["alphas"]
    shown = [np.array(ax.images[0].get_array()) for ax in figure.axes[:9]]
    for array, place in zip(shown, alphas.values(), strict=True):
        assert np.allclose(array, np.array(place["alphas"]) - np.eye(4))
    assert {ax.images[0].get_clim() for ax in figure.axes[:9]} == {(-np.abs(shown).max(), np.abs(shown).max())}
    norm = np.linalg.norm(alphas["encoder 1"]["alphas"], "nuc")
    share = heads.skew_share(np.array(alphas["encoder 1"]["alphas"]))
    assert figure.axes[0].get_title() == f"layer 1: ‖A‖∗ = {norm:.2f}\nskew share {share:.2f}"
    assert figure.get_suptitle() == "Figure 4 · Alphas (mixing with nuclear loss): toy, 2 epochs, seed 1"
    assert [ax.get_ylabel().split("\n")[0] for ax in figure.axes[:9:3]] == ["encoder", "decoder", "encoder-decoder"]


def test_alphas_that_never_moved_are_white():
    told = headed("alphas-plain", 1)
    for place in told["heads"]["alphas"].values():
        place["alphas"] = np.eye(3).tolist()
    put(told)
    figure = figures.draw("mhr_figure3", "p")
    assert figure.axes[0].images[0].get_clim() == (-1, 1)
    assert figure.axes[0].get_title().endswith("skew share –")


def test_a_module_that_is_not_there_has_no_panel():
    told = headed("alphas", 1, layers=3)
    del told["heads"]["alphas"]["encoder 3"], told["heads"]["alphas"]["encoder 2"]
    put(told)
    panels = figures.draw("mhr_figure4", "p").axes[:9]
    assert [ax.axison for ax in panels] == [True, False, False] + [True] * 6


# ---- confidence


def test_heads_of_two_seeds_are_averaged_by_rank():
    runs = [headed("baseline", seed, heads=4) for seed in (1, 2)]
    first, second = (sorted(run["heads"]["measures"]["cross 2"]["confidence"]) for run in runs)
    assert heads.ranked(runs, "confidence")["cross", 2].tolist() == [first, second]
    put(*runs)
    figure = figures.draw("mhr_figure5", "p")
    assert [ax.get_title() for ax in figure.axes[:3]] == list(heads.KINDS.values())
    dots = figure.axes[2].lines[1]
    assert dots.get_ydata() == pytest.approx(np.mean([first, second], axis=0))
    spread = figure.axes[5].lines[0]
    assert spread.get_ydata()[1] == pytest.approx((np.std(first) + np.std(second)) / 2)
    assert list(spread.get_xdata()) == [1, 2]
    assert legend(figure) == ["Baseline"]


# ---- distances


def test_total_discrepancy_is_the_sum_over_all_pairs():
    told = headed("baseline", 1, heads=4)["heads"]["measures"]["encoder 1"]
    cosine = sum(1 - told["cosine"][i][j] for i in range(4) for j in range(4))
    assert heads.discrepancy(told, "cosine", "there") == pytest.approx(cosine)
    l2 = sum(told["l2"][i][j] for i in range(4) for j in range(4))
    assert heads.discrepancy(told, "l2", "there") == pytest.approx(l2)


def test_changes_are_percentages_of_means_over_seeds_and_positive_where_heads_part():
    base, wide = ([headed(v, seed) for seed in (1, 2)] for v in ("baseline", "alphas"))
    for run in wide:
        for place in run["heads"]["measures"].values():
            place["l2"] = (3 * np.array(place["l2"])).tolist()
            place["cosine"] = (1 - 0.75 * (1 - np.array(place["cosine"]))).tolist()
    groups = {"baseline": base, "alphas": wide}
    assert list(heads.changes(groups, "baseline", "l2")["alphas"].values()) == pytest.approx([200] * 6)
    assert list(heads.changes(groups, "baseline", "cosine")["alphas"].values()) == pytest.approx([-25] * 6)
    totals = [heads.discrepancy(run["heads"]["measures"]["cross 1"], "l2", "") for run in base]
    alone = heads.changes({"baseline": base, "alphas": wide[:1]}, "baseline", "l2")["alphas"]["cross", 1]
    assert alone == pytest.approx(100 * (3 * totals[0] / np.mean(totals) - 1))
    put(*base, *wide)
    figure = figures.draw("mhr_figure7", "p")
    for ax in figure.axes:
        assert [bar.get_height() for bar in ax.containers[0]] == pytest.approx([200, 200])
    assert figure.axes[0].get_ylabel() == "change of the total Euclidean distance\nagainst the baseline (%)"
    assert legend(figure) == ["Alphas (mixing with nuclear loss)"]


@pytest.mark.parametrize(("name", "experiment"), [("mhr_figure6", MHR), ("dpp_heads", DPP)])
def test_a_single_head_has_no_distance_from_others(name, experiment):
    variant = "alphas" if experiment == MHR else "dpp-o"
    put(*(headed(v, 1, heads=1, experiment=experiment) for v in ("baseline", variant)))
    with pytest.raises(DataError) as found:
        figures.draw(name, "p")
    assert str(found.value) == "baseline, encoder 1 has a single head; distances are between two or more"


# ---- likeness and sharpness


def test_likeness_and_sharpness_are_means_over_pairs_heads_and_layers():
    told = {(v, seed): headed(v, seed, experiment=DPP) for v in ("baseline", "dpp-o") for seed in (1, 2)}
    put(*told.values())

    def mean(variant, kind, layer, of):
        return np.mean([of(told[variant, seed]["heads"]["measures"][f"{kind} {layer}"]) for seed in (1, 2)])

    def likeness(m):
        return np.mean([m["cosine"][i][j] for i in range(3) for j in range(3) if i != j])

    figure = figures.draw("dpp_heads", "p")
    assert len(figure.axes) == 6
    for row, of in enumerate((likeness, lambda m: np.mean(m["entropy"]))):
        for column, kind in enumerate(heads.KINDS):
            ax = figure.axes[3 * row + column]
            first, second, over_layers, dashed = ax.lines
            expected = np.array([[mean(v, kind, layer, of) for layer in (1, 2)] for v in ("baseline", "dpp-o")])
            assert first.get_xdata() == pytest.approx(expected[:, 0])
            assert second.get_xdata() == pytest.approx(expected[:, 1])
            assert over_layers.get_xdata() == pytest.approx(expected.mean(axis=1))
            assert dashed.get_xdata()[0] == pytest.approx(expected[0].mean())
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["Vanilla", "DPP (O)"]
    assert figure.get_suptitle() == "Likeness and sharpness of the heads: toy, 2 epochs, mean over 2 seeds"
