"""Figures and tables of heads, swaps and routers, from metrics written by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from reported import headed, metrics, put, swap, write_profile
from tracked import ROOT

from headdiv.companion.analysis.statistics import interval
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report import figures, groups, head_history, heads, moa
from headdiv.companion.report.groups import KIND_LABELS
from headdiv.companion.report.plotting import BLUE, ORANGE
from headdiv.core.errors import DataError

MHR, DPP = "mhr/translation", "dpp/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", MHR, DPP, "translation", "moa/translation", seeds=(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deacon_figure6", "needs direct-8 or average-8 or nonlinear-8 among"),
        ("moa_translation_words", "needs moa-.* among the stored runs of profile p"),
    ],
)
def test_a_figure_without_its_variants_says_so(name, message):
    put(headed("baseline", 1), metrics("baseline", 1), metrics("baseline", 1, experiment="moa/translation"))
    with pytest.raises(DataError, match=message):
        figures.draw(name, "p")


@pytest.mark.parametrize("layers", [1, 3])
def test_variants_may_have_layers_of_their_own(layers):
    """As `settings`, or a tuning, gives them: each is drawn with its own, and compared where both have one."""
    swapped = {1: ([swap("encoder", (layers, 1), (layers, 2))], False)}
    put(*(headed(variant, 1) for variant in ("baseline", "cosine", "soft")))
    put(headed("alphas", 1, layers=layers, heads=4), headed("manual", 1, layers=layers, heads=4, swaps=swapped))
    put(*(headed(variant, 1, experiment=DPP, layers=n) for variant, n in (("baseline", 2), ("dpp-o", layers))))
    layer = {"decoder.0": {"place": "decoder 1", "cosines": [[1.0, 0.0], [0.0, 1.0]], "mean_absolute_cosine": 0.0}}
    deep = metrics("nonlinear-8", 1)
    deep["heads"]["pca_weights"] |= layer
    put(metrics("baseline", 1), *((metrics("direct-8", 1), deep) if layers > 1 else (deep, metrics("average-8", 1))))
    for name in ("deacon_figure6", "dpp_heads", "mhr_figure6", "mhr_figure7"):
        figures.draw(name, "p")
    upper = figures.draw("mhr_figure5", "p").axes[0]
    assert upper.get_xticks().tolist() == list(range(1, max(layers, 2) + 1))
    manual, soft = figures.draw("mhr_swaps", "p").axes[:4:3]
    assert [tick for tick in soft.get_xticks() if 1.4 < tick < 2.6] == [2]  # of two epochs
    assert [len(ax.patches) for ax in (manual, soft)] == [layers, 2]
    common = heads.changes(groups.by_variant("p", MHR), "cosine")["alphas"]
    assert {layer for _, layer in common} == set(range(1, min(layers, 2) + 1))


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


def test_alphas_are_drawn_as_their_difference_from_the_identity(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    figure = figures.draw("mhr_figure4", "tables")
    first, *_ = groups.by_variant("tables", "mhr/translation")["alphas"]
    stored = first.heads["alphas"]
    alphas = {place: stored[place] for kind in KIND_LABELS for place in stored if place.startswith(kind)}
    panels = figure.axes[: len(alphas)]
    arrays = [np.array(ax.images[0].get_array()) for ax in panels]
    for array, module in zip(arrays, alphas.values(), strict=True):
        assert np.allclose(array, np.array(module["alphas"]) - np.eye(len(array)))
    assert {ax.images[0].get_clim() for ax in panels} == {(-np.abs(arrays).max(), np.abs(arrays).max())}


def test_alphas_that_never_moved_are_white_and_missing_modules_have_no_panel():
    run = headed("alphas-plain", 1)
    places = ("encoder 1", *(f"{kind} {layer}" for kind in ("decoder", "cross") for layer in (1, 2, 3)))
    run["heads"]["alphas"] = {place: {"alphas": np.eye(3).tolist(), "nuclear_norm": 3.0} for place in places}
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
    assert [ax.get_title() for ax in figure.axes[:3]] == list(KIND_LABELS.values())
    assert figure.axes[2].lines[1].get_ydata() == pytest.approx(np.mean([first, second], axis=0))
    deviations, _, (bars,) = figure.axes[5].containers[0]
    expected = interval([np.std(first), np.std(second)])
    assert deviations.get_ydata()[1] == pytest.approx(expected.mean)
    assert bars.get_segments()[1][:, 1] == pytest.approx((expected.low, expected.high))
    assert list(deviations.get_xdata()) == [1, 2]


# ---- distances


def widened(variant, seed, factor):
    """A run whose heads are so much further apart than those of the baseline of its seed."""
    run = headed(variant, seed)
    for module in run["heads"]["measures"].values():
        module["l2"] = (factor * np.array(module["l2"])).tolist()
        module["cosine"] = (1 - factor * (1 - np.array(module["cosine"]))).tolist()
    return run


def test_changes_are_formed_seed_by_seed_of_those_that_a_variant_and_the_baseline_share():
    base, wide = [headed("baseline", seed) for seed in (1, 2, 3)], [widened("alphas", 2, 3), widened("alphas", 3, 2)]
    groups = {"baseline": list(map(RunResult.parse, base)), "alphas": list(map(RunResult.parse, wide))}
    expected = interval([200, 100])
    for distance in ("l2", "cosine"):
        changes = heads.changes(groups, distance)["alphas"].values()
        assert [(change.mean, change.half) for change in changes] == [pytest.approx((150, expected.half))] * 6
    put(*base, *wide, headed("cosine", 4))
    figure = figures.draw("mhr_figure7", "p")
    assert "mean over 2 seeds; 95 % intervals over seeds" in figure.get_suptitle()
    for ax in figure.axes:
        bars, none = (artist for artist in ax.containers if isinstance(artist, BarContainer))
        assert [bar.get_height() for bar in bars] == pytest.approx([150, 150])
        assert none.get_label().endswith(": no seed in common")
        (ends,) = bars.errorbar[2]
        assert ends.get_segments()[0][:, 1] == pytest.approx((expected.low, expected.high))


# ---- all measures


def test_measures_are_means_over_pairs_and_modules_with_intervals_over_seeds():
    runs = [[headed(variant, seed, experiment=DPP) for seed in (1, 2)] for variant in ("baseline", "dpp-o")]
    put(*runs[0], *runs[1])
    cosine = figures.draw("dpp_heads", "p").axes[0]
    matrices = np.array(  # (variants, seeds, modules, heads, heads)
        [[[module["cosine"] for module in run["heads"]["measures"].values()] for run in seeds] for seeds in runs]
    )
    expected = matrices[..., ~np.eye(3, dtype=bool)].mean(axis=3)  # (variants, seeds, modules)
    assert [bar.lines[0].get_xdata()[0] for bar in cosine.containers] == pytest.approx(expected.mean(axis=(1, 2)))
    points = [line.get_xdata()[0] for line in cosine.lines if line.get_markersize() == 3]
    assert points == pytest.approx(expected.mean(axis=1).ravel())
    assert [text.get_text() for text in cosine.get_yticklabels()] == ["Vanilla", "DPP (O)"]


# ---- swaps


def test_swaps_are_read_with_the_epoch_before_which_they_were_made():
    pairs = [swap("cross", (1, 2), (5, 2)), swap("encoder", (1, 1), (2, 3))]
    run = RunResult.parse(headed("soft", 1, epochs=4, swaps={1: (pairs, False), 3: (pairs[::-1], True)}))
    swaps = [(event.epoch, event.kind, event.one, event.other, event.back) for event in head_history.swaps_of(run)]
    assert swaps == [
        (2, "cross", (1, 2), (5, 2), False),
        (2, "encoder", (1, 1), (2, 3), False),
        (4, "encoder", (1, 1), (2, 3), True),
        (4, "cross", (1, 2), (5, 2), True),
    ]
    assert head_history.swaps_of(RunResult.parse(headed("soft", 1))) == []
    combined = headed("soft", 1, epochs=4, swaps={1: (pairs, False)})
    combined["config"]["method"] = {"name": "combined", "methods": [{"name": "dynamic-rotation"}, {"name": "hsic"}]}
    combined["curve"] = [
        point | {"method": {"dynamic-rotation": point["method"]} if point.get("method") else {}}
        for point in combined["curve"]
    ]
    assert [event.epoch for event in head_history.swaps_of(RunResult.parse(combined))] == [2, 2]


def test_the_timeline_has_a_row_for_every_variant_that_moves_heads():
    pairs = [swap("cross", (1, 2), (2, 3))]
    swapped = {1: (pairs, False), 3: (pairs, True)}
    put(*(headed(variant, 1, epochs=4) for variant in ("manual", "baseline", "alphas")))
    put(headed("soft", 1, epochs=4, swaps=swapped))
    figure = figures.draw("mhr_swaps", "p")
    assert [ax.get_ylabel().split()[0] for ax in figure.axes[::3]] == ["Manual", "Dynamic,"]
    assert [len(ax.lines) for ax in figure.axes] == [0, 0, 0, 0, 0, 2]
    swaps, returns = figure.axes[5].lines
    assert (list(swaps.get_xdata()), list(returns.get_xdata())) == ([2, 2], [4, 4])
    assert list(swaps.get_ydata()) == list(returns.get_ydata()) == [2, 5 + 3]  # three heads a layer and a gap
    assert (to_hex(swaps.get_color()), to_hex(returns.get_color())) == (BLUE, ORANGE)


# ---- routers


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=1, max_size=9))
def test_importance_is_each_experts_share_of_all_gates(pairs):
    load, gate = zip(*pairs, strict=True)
    total = sum(a * b for a, b in pairs)
    router = {"load": load, "gate": gate}
    assert moa.importance(router) == pytest.approx([a * b / total for a, b in pairs])
    assert moa.busiest(router) == sorted(range(len(load)), key=lambda expert: (-load[expert], expert))
    assert moa.importance({"load": [0, 0], "gate": [0, 0]}).tolist() == [0, 0]  # none is ever chosen


@pytest.fixture
def routers(monkeypatch):
    """Of a stored run with 4 of 32 experts, by attention module."""
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    return groups.by_variant("samples", "moa/translation")["moa-32-4"][0].heads["router"]


def test_load_importance_and_entropy_of_every_router_are_drawn(routers):
    load, weight, entropy = figures.draw("moa_translation_routers", "samples").axes[3:6]  # below those of 8 experts
    for row, stored in enumerate(routers.values()):
        for ax, shares in ((load, stored["load"]), (weight, moa.importance(stored))):
            assert ax.images[0].get_array().data[row] == pytest.approx(sorted(np.array(shares) * 32, reverse=True))
    assert [bar.get_width() for bar in entropy.patches] == [stored["entropy"] for stored in routers.values()]
    assert entropy.lines[0].get_xdata()[0] == pytest.approx(np.log(32))
