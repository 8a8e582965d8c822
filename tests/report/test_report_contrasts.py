"""What one change does: differences seed by seed, as a table and as a figure."""

import numpy as np
import pytest
from reported import headed, put, worked_out, write_profile

from headdiv.companion.report import figures
from headdiv.companion.report.families import seed_by_seed
from headdiv.companion.report.groups import by_variant
from headdiv.companion.report.plotting import BLUE, GREY, ORANGE

EXPERIMENT = "deacon/dissection"
LOSS = {
    "baseline": (2.0, 2.1, 2.2),
    "direct-8": (2.5, 2.65, 2.7),
    "gamma-03": (1.5, 1.61, 1.69),
    "optimiser": (2.55, 2.6, 2.75),
}
OF_LOSS = {variant: dict(enumerate(losses, start=1)) for variant, losses in LOSS.items()} | {"frozen": {2: 2.08}}
AGAINST_BASELINE = [(variant, "baseline") for variant in ("direct-8", "gamma-03", "optimiser", "frozen")]
ASKED = [("gamma-03", "direct-8"), ("direct-8", "optimiser"), ("direct-8", "frozen")]  # and direct-8, the baseline


@pytest.fixture
def recorded(project):
    write_profile(project, "p", EXPERIMENT, variants=[*OF_LOSS], seeds=(1, 2, 3))
    for variant, by_seed in OF_LOSS.items():
        for seed, loss in by_seed.items():
            put(headed(variant, seed, experiment=EXPERIMENT, validation_nll_best=loss, bleu=30 - 10 * loss))


def test_the_figure_has_a_line_for_each_pair_in_the_colour_of_its_verdict(recorded):
    loss = figures.draw("deacon_dissection", "p").axes[1]
    means = [bar[0].get_xdata()[0] for bar in loss.containers]
    by_loss = [(variant, "baseline") for variant in ("gamma-03", "direct-8", "optimiser", "frozen")]  # one seed: last
    expected = worked_out(OF_LOSS, *by_loss)
    assert means == pytest.approx([mean for mean, *_ in expected.values()])
    sides = [0 if abs(mean) < half else np.sign(mean) for mean, half, _ in expected.values()]
    colours = [bar[0].get_color() for bar in loss.containers]
    assert colours == [{0: GREY, 1: ORANGE, -1: BLUE}[side] for side in sides]
    assert set(colours) == {GREY, ORANGE, BLUE}
    points = [line.get_xdata().tolist() for line in loss.lines if line.get_markersize() == 2.5]
    assert points[1] == pytest.approx([0.5, 0.55, 0.5])
    assert points[3] == pytest.approx([-0.02])


def test_what_cannot_be_compared_has_no_difference(project):
    write_profile(project, "p", "deacon/translation", variants=["baseline", "direct-3"])
    put(headed("baseline", 1, experiment="deacon/translation"), headed("direct-3", 2, experiment="deacon/translation"))
    figure = figures.draw("deacon_table3", "p")  # no seed in common
    assert all(np.isnan(ax.containers[0].lines[0].get_xdata()[0]) for ax in figure.axes)
    put(headed("baseline", 2, experiment="deacon/translation"))
    groups = by_variant("p", "deacon/translation")
    assert seed_by_seed(groups, "direct-3", "baseline", "rouge_l") == []  # no run has it
    assert seed_by_seed(groups, "direct-3", "baseline", "training_hours") == [0.0]


def test_rings_are_the_papers_differences_to_its_own_baseline(project):
    write_profile(project, "p", "deacon/translation", variants=["baseline", "direct-3", "own"])
    put(*(headed(variant, 1, experiment="deacon/translation") for variant in ("baseline", "direct-3", "own")))
    figure = figures.draw("deacon_table3", "p")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Direct-3"]
    rings = [[line.get_xydata().tolist() for line in ax.lines if line.get_markersize() == 7] for ax in figure.axes]
    assert rings == [[[[pytest.approx(paper), 0]]] for paper in (0.9887 - 0.8211, 68.30 - 68.63, 28.3 - 28.4)]
