"""What one change does: differences seed by seed, in words and as a figure."""

import numpy as np
import pytest
from reported import headed, put, write_profile

from headdiv.core.errors import DataError
from headdiv.experiments.papers import task_of
from headdiv.report import figures, tables
from headdiv.report.contrasts import differences, sentences
from headdiv.report.groups import by_variant
from headdiv.report.plotting import BLUE, GREY

EXPERIMENT = "deacon/dissection"
LOSS = {"baseline": (2.0, 2.1), "direct-8": (2.5, 2.7), "gamma-03": (1.5, 1.61), "optimiser": (2.4, 2.9)}


@pytest.fixture
def recorded(project):
    write_profile(project, "p", EXPERIMENT, variants=[*LOSS, "frozen"])
    for variant, losses in LOSS.items():
        for seed, loss in enumerate(losses, start=1):
            put(headed(variant, seed, experiment=EXPERIMENT, validation_nll=loss, bleu=30 - 10 * loss))
    put(headed("frozen", 2, experiment=EXPERIMENT, validation_nll=2.0))


def test_changes_are_judged_by_their_intervals_over_the_seeds_of_both(recorded):
    groups, task = by_variant("p", EXPERIMENT), task_of(EXPERIMENT)
    assert differences(groups, "gamma-03", "baseline", "validation_nll") == pytest.approx([-0.5, -0.49])
    assert differences(groups, "frozen", "direct-8", "validation_nll") == pytest.approx([-0.7])
    said = sentences(task, groups)
    assert len(said) == 3
    assert said[0].startswith("Judged by the validation loss")
    assert "Helps: γ from 0.3 instead of 1 (" in said[0]
    assert "(−1.045 ± 0.572, BLEU +10.4 ± 5.7)" in said[0]
    assert said[1].startswith("Not settled: DEACON as in the paper (")
    assert "Hebbian constraint instead of a frozen layer, γ from 1 (" in said[1]  # one seed has no interval
    assert said[2].startswith("The lowest validation loss of all rows but the Transformer: γ starts at 0.3; against")
    assert "against the Transformer −0.495 ± 0.064, BLEU" in said[2]
    assert said[2].endswith("BLEU +4.9 ± 0.6, 2 seeds.")
    data = tables.table_data("p", EXPERIMENT)
    assert set(said) < set(data.notes)
    assert data.captions[1].startswith("how it is learnt")
    row = data.tables[1].set_index("Method").loc["γ starts at 0.3"]
    assert row["Validation loss, difference"] == "−0.495 ± 0.064"
    assert list(data.tables[1].iloc[0])[2::2] == ["–"] * 3  # the Transformer itself


def test_the_figure_has_a_panel_for_each_score_and_a_line_for_each_pair(recorded, project):
    figure = figures.draw("deacon_dissection", "p")
    above, below = figure.axes[:4], figure.axes[4:]
    assert [ax.get_xlabel() for ax in below] == [
        "Training loss (nats/token)", "Validation loss (nats/token)", "Validation accuracy (%)", "BLEU"
    ]  # fmt: skip
    assert [label.get_text() for label in above[0].get_yticklabels()] == [
        "DEACON, as in the paper (Direct-8)", "γ starts at 0.3", "PCA layer trained by Adam", "PCA layer frozen"
    ]  # fmt: skip
    assert len(below[0].get_yticklabels()) == 3
    loss = above[1]
    means, colours = zip(*((drawn[0].get_xydata()[0], drawn[0].get_color()) for drawn in loss.containers), strict=True)
    assert [list(at) for at in means] == [
        [pytest.approx(0.55), 0], [pytest.approx(-0.495), 1], [pytest.approx(0.6), 2], [pytest.approx(-0.1), 3]
    ]  # fmt: skip
    assert colours == (GREY, BLUE, GREY, GREY)  # of two seeds or one
    points = [line.get_xydata().tolist() for line in loss.lines if line.get_markersize() == 2.5]
    assert points[0] == [[pytest.approx(0.5), 0], [pytest.approx(0.6), 0]]
    assert points[3] == [[pytest.approx(-0.1), 3]]
    write_profile(project, "q", EXPERIMENT, variants=["direct-8"])
    put(headed("direct-8", 1, experiment=EXPERIMENT), profile="q")
    with pytest.raises(DataError, match="deacon_dissection needs two variants to compare"):
        figures.draw("deacon_dissection", "q")


def test_what_cannot_be_compared_has_no_difference(project):
    write_profile(project, "p", "deacon/translation", variants=["baseline", "direct-3"])
    put(headed("baseline", 1, experiment="deacon/translation"), headed("direct-3", 2, experiment="deacon/translation"))
    figure = figures.draw("deacon_table3", "p")  # no seed in common
    assert all(np.isnan(ax.containers[0].lines[0].get_xdata()[0]) for ax in figure.axes)
    put(headed("baseline", 2, experiment="deacon/translation"))
    groups = by_variant("p", "deacon/translation")
    assert differences(groups, "direct-3", "baseline", "rouge_l") == []  # no run has it
    assert differences(groups, "direct-3", "baseline", "training_hours") == [0.0]


def test_rings_are_the_papers_differences_to_its_own_baseline(project):
    write_profile(project, "p", "deacon/translation", variants=["baseline", "direct-3", "own"])
    put(*(headed(variant, 1, experiment="deacon/translation") for variant in ("baseline", "direct-3", "own")))
    figure = figures.draw("deacon_table3", "p")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Direct-3"]
    rings = [[line.get_xydata().tolist() for line in ax.lines if line.get_markersize() == 7] for ax in figure.axes]
    assert rings == [[[[pytest.approx(paper), 0]]] for paper in (0.9887 - 0.8211, 68.30 - 68.63, 28.3 - 28.4)]
