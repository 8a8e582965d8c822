"""The gap to the baseline by epoch, for three variants and three seeds."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from reported import headed, put, write_profile

from headdiv.companion.analysis import comparison
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report import figures
from headdiv.companion.report.gap import gaps, lowest_so_far
from headdiv.core.errors import NotStoredError

TASK = "headtohead/tuned"
CURVES = {  # by variant, of three seeds: validation losses by epoch; two trainings end early
    "baseline": ([3.0, 2.0, 2.5, 1.9], [3.1, 2.2, 2.1, 2.0], [2.9, 2.1, 2.2]),
    "direct-8": ([3.4, 2.5, 2.2, 2.3], [3.3, 2.4, 2.2, 2.1], [3.5, 2.6, 2.4, 2.3]),
    "alphas": ([2.5, 2.2, 2.1, 2.2], [2.6, 2.4, 2.3], [2.7, 2.2, 2.3, 2.2]),
}
LOWEST = {
    "baseline": ([3.0, 2.0, 2.0, 1.9], [3.1, 2.2, 2.1, 2.0], [2.9, 2.1, 2.1, 2.1]),
    "direct-8": ([3.4, 2.5, 2.2, 2.2], [3.3, 2.4, 2.2, 2.1], [3.5, 2.6, 2.4, 2.3]),
    "alphas": ([2.5, 2.2, 2.1, 2.1], [2.6, 2.4, 2.3, 2.3], [2.7, 2.2, 2.2, 2.2]),
}


def made_up(variant, seed):
    run = headed(variant, seed, experiment=TASK)
    losses = CURVES[variant][seed - 1]
    run["config"]["train"]["epochs"] = 4
    run["curve"] = [
        {"epoch": n, "training_loss": 1.0, "validation_nll": loss, "validation_accuracy": 1.0}
        for n, loss in enumerate(losses, 1)
    ]
    run["scores"]["validation_nll_best"] = run["scores"]["validation_nll"] | {"value": min(losses)}
    return run


def test_each_epoch_has_dunnetts_intervals_of_the_lowest_losses_so_far():
    groups = {name: [RunResult.parse(made_up(name, seed)) for seed in (1, 2, 3)] for name in CURVES}
    for name, runs in groups.items():
        assert np.array([lowest_so_far(run, 4) for run in runs]) == pytest.approx(np.array(LOWEST[name]))
    by_variant = gaps(groups)
    assert list(by_variant) == ["direct-8", "alphas"]
    for epoch in range(4):
        losses = {name: {seed: curve[epoch] for seed, curve in enumerate(curves, 1)} for name, curves in LOWEST.items()}
        expected = comparison.against(losses, "baseline")
        for variant, by_epoch in by_variant.items():
            gap, twin = by_epoch[epoch], expected[variant]
            assert (gap.mean, gap.half) == pytest.approx((twin.mean, twin.half))


@pytest.fixture
def recorded(project):
    write_profile(project, "p", TASK, variants=[*CURVES], seeds=(1, 2, 3))
    put(*(made_up(variant, seed) for variant in CURVES for seed in (1, 2, 3)))


def test_the_figure_has_a_panel_for_each_variant_with_a_band_and_the_ended_trainings(recorded):
    figure = figures.draw("headtohead_tuned_gap", "p")
    direct, mixing = figure.axes
    assert direct.get_title().splitlines()[1].startswith("+0.200 ± ")
    assert direct.get_title().endswith("0 of 3 trainings ended by patience")
    assert mixing.get_title().endswith("1 of 3 trainings ended by patience")
    band = next(artist for artist in mixing.collections if isinstance(artist, PolyCollection))
    line = mixing.lines[0].get_ydata()
    gap = gaps({name: [RunResult.parse(made_up(name, seed)) for seed in (1, 2, 3)] for name in CURVES})["alphas"]
    assert line == pytest.approx([difference.mean for difference in gap])
    ends = band.get_paths()[0].vertices[:, 1]
    low, high = min(difference.low for difference in gap), max(difference.high for difference in gap)
    assert (ends.min(), ends.max()) == pytest.approx((low, high))


def test_a_gap_needs_another_variant_beside_the_baseline(project):
    write_profile(project, "p", TASK, variants=[*CURVES], seeds=(1, 2, 3))
    put(made_up("baseline", 1))
    with pytest.raises(NotStoredError, match="needs another variant than baseline"):
        figures.draw("headtohead_tuned_gap", "p")
