"""What one change does: differences seed by seed, as a table and as a figure."""

import numpy as np
import pytest
from reported import headed, put, worked_out, write_profile

from headdiv.companion.analysis import comparison
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report import figures, tables
from headdiv.companion.report.families import scores_of, seed_by_seed, single_changes
from headdiv.companion.report.formats import signed
from headdiv.companion.report.groups import by_variant
from headdiv.companion.report.plotting import BLUE, GREY, ORANGE
from headdiv.core.errors import DataError

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


def test_differences_are_of_one_model_with_intervals_that_hold_together(recorded):
    groups, task = by_variant("p", EXPERIMENT), task_of(EXPERIMENT)
    assert seed_by_seed(groups, "gamma-03", "baseline", "validation_nll_best") == pytest.approx([-0.5, -0.49, -0.51])
    assert seed_by_seed(groups, "frozen", "direct-8", "validation_nll_best") == pytest.approx([-0.57])
    differences = comparison.against(scores_of(groups, "validation_nll_best"), "baseline")
    against = {(name, "baseline"): difference for name, difference in differences.items()}
    changes = single_changes(task, groups)
    estimates = changes.estimate(scores_of(groups, "validation_nll_best"))
    by_pair = {tuple(row.weights): difference for row, difference in zip(changes.rows, estimates, strict=True)}
    assert by_pair.pop(("direct-8", "baseline")) == against["direct-8", "baseline"]  # one interval in all of a table
    for pairs, estimated in ((AGAINST_BASELINE, against), (ASKED, by_pair)):
        assert set(estimated) == set(pairs)
        for pair, (mean, half, _) in worked_out(OF_LOSS, *pairs).items():
            assert (estimated[pair].mean, estimated[pair].half) == pytest.approx((mean, half), rel=2e-3)


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


def test_a_figure_of_differences_needs_the_baseline(project):
    write_profile(project, "q", EXPERIMENT, variants=["direct-8"])
    put(headed("direct-8", 1, experiment=EXPERIMENT), profile="q")
    with pytest.raises(DataError, match="deacon_dissection needs baseline among"):
        figures.draw("deacon_dissection", "q")


def test_two_tables_of_the_same_baseline_have_one_model(project):
    """Those of a profile and a paper: a row has one interval, whichever table shows it."""
    losses = {"baseline": OF_LOSS["baseline"], "direct-8": OF_LOSS["direct-8"], "own": {1: 1.0, 2: 4.0, 3: 2.0}}
    write_profile(project, "p", "deacon/translation", EXPERIMENT, variants=[*losses], seeds=(1, 2, 3))
    for experiment, variants in (("deacon/translation", losses), (EXPERIMENT, ("baseline", "direct-8"))):
        runs = [(variant, seed, loss) for variant in variants for seed, loss in losses[variant].items()]
        put(*(headed(v, seed, experiment=experiment, training_loss=loss, bleu=loss) for v, seed, loss in runs))
    mean, half, _ = worked_out(losses, *((name, "baseline") for name in losses if name != "baseline"))[
        "direct-8", "baseline"
    ]
    translation, dissection = (tables.table_data("p", name).tables for name in ("deacon/translation", EXPERIMENT))
    differences = translation["differences from the baseline"].set_index("Minus the baseline")
    assert differences.loc["Direct-8", "Training loss"] == signed(mean, 4, half)
    training = dissection["training, and differences from the baseline"]
    assert training.loc["direct-8", "Training loss, difference"] == signed(mean, 3, half)
    scores = dissection["score, and its difference from the baseline"]
    assert scores.loc["direct-8", "Against the baseline"] == signed(mean, 2, half)


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
