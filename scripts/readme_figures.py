"""The two pictures of the README: ``python scripts/readme_figures.py docs/figures``.

The first is drawn from stored results. The second is of a model that `headdiv demo` or `headdiv reproduce` leaves.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report.contrasts import differences_of
from headdiv.companion.report.differences import PANELS, draw_rows, shaded
from headdiv.companion.report.explorer_panels import look_at, show_attention, show_likeness
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
from headdiv.core.files import replacing

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
        verdicts += draw_rows(ax, [differences[name][variant] for variant in order], panel.higher, MARGINS[name])
        ax.set_xlabel(f"{panel.label} minus the Transformer's\n({panel.unit})", fontsize=11)
        ax.tick_params(labelsize=11)
        add_grid(ax, "x")
    add_handles(figure, [*verdict_handles(verdicts), shaded()], 4, 10)
    figure.legends[0].set_title(f"{title(task.table, groups)}; simultaneous 95 % intervals", prop={"size": 10})
    figure.suptitle(TITLE, fontsize=15, fontweight="bold", x=0.02, ha="left")
    return figure


def draw_explorer() -> Image.Image:
    """Two of the explorer's panels, side by side: one head's attention, and how alike all heads of the module are."""
    view = look_at("quick", "deacon/translation", "direct-8", place="cross 2", head=3)
    panels = (show(view) for show in (show_attention, show_likeness))
    pictures = [_picture(panel) for panel in panels if isinstance(panel, Figure)]
    height = min(picture.height for picture in pictures)
    pictures = [picture.resize((picture.width * height // picture.height, height)) for picture in pictures]
    whole = Image.new("RGB", (sum(picture.width for picture in pictures), height), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width
    return whole


def _picture(figure: Figure) -> Image.Image:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI, facecolor="white", bbox_inches="tight")
    return Image.open(content).convert("RGB")


def write_pictures(folder: Path) -> None:
    """``finding.png`` and ``explorer.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE), replacing(folder / "finding.png") as temporary:
        draw_finding().savefig(temporary, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.15)
    with replacing(folder / "explorer.png") as temporary:
        draw_explorer().save(temporary, format="png")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
