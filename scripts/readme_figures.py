"""The picture of the README, from stored results: ``python scripts/readme_figures.py docs/figures/finding.png``."""

from __future__ import annotations

import sys

import matplotlib
from matplotlib.figure import Figure

from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report.differences import PANELS, draw_rows, shaded
from headdiv.companion.report.families import differences_of
from headdiv.companion.report.groups import by_variant, title
from headdiv.companion.report.plotting import (
    STYLE,
    add_grid,
    add_handles,
    name_rows,
    new_figure,
    verdict_handles,
    wrapped,
)
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS

PROFILE, EXPERIMENT = "contest", "headtohead/tuned"
TITLE = "Three papers' methods did not beat a tuned Transformer\nin 4,680 updates, with the settings tried"
CONTROLS = {"batch-norm", "layer-dropout"}
DPI = 160


def draw_finding() -> Figure:
    """Loss and BLEU of each arm minus the tuned Transformer's, with simultaneous intervals; equivalence shaded."""
    groups, task = by_variant(PROFILE, EXPERIMENT), task_of(EXPERIMENT)
    differences = {name: differences_of(groups, name) for name in PANELS}
    order = sorted(differences[LOWEST_LOSS], key=lambda variant: differences[LOWEST_LOSS][variant].mean)
    figure, (axes,) = new_figure(9, 4.2, 1, 2, sharey=True)
    labels = [task.label(variant) + (" (control)" if variant in CONTROLS else "") for variant in order]
    name_rows(axes[0], [wrapped(label, 24) for label in labels])
    verdicts = []
    for ax, (name, panel) in zip(axes, PANELS.items(), strict=True):
        verdicts += draw_rows(
            ax, [differences[name][variant] for variant in order], panel.better == "higher", MARGINS[name]
        )
        ax.set_xlabel(f"{panel.label} minus the Transformer's\n({panel.unit})", fontsize=11)
        ax.tick_params(labelsize=11)
        add_grid(ax, "x")
    add_handles(figure, [*verdict_handles(verdicts), shaded()], 4, 10)
    figure.legends[0].set_title(f"{title(task.table, groups)}; simultaneous 95 % intervals", prop={"size": 10})
    figure.suptitle(TITLE, fontsize=15, fontweight="bold", x=0.02, ha="left")
    return figure


if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        draw_finding().savefig(sys.argv[1], format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.15)
