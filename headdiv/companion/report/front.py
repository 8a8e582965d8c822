"""The two pictures of the README: ``python -m headdiv.companion.report.front docs/figures``.

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
from headdiv.companion.report.explorer_panels import look_at, show_attention, show_likeness
from headdiv.companion.report.groups import by_variant
from headdiv.companion.report.plotting import GREY, STYLE, VERDICT_LOOKS, add_grid, new_figure
from headdiv.companion.report.verdicts import LOWEST_LOSS, verdict
from headdiv.core.files import replacing

PROFILE, EXPERIMENT = "headtohead-10", "headtohead/translation"
TITLE = "No method that changes heads is shown to gain\nmore than a Transformer gains by more dropout"
DROPOUT = "more dropout, no such method"
SEEDS = 3  # rows with fewer are on the results page alone
DPI = 160


def draw_finding() -> Figure:
    """The lowest validation loss of each method minus the Transformer's, with its simultaneous interval."""
    groups, task = by_variant(PROFILE, EXPERIMENT), task_of(EXPERIMENT)
    found = {variant: one for variant, one in differences_of(groups, LOWEST_LOSS).items() if one.count >= SEEDS}
    rows = sorted(found.items(), key=lambda pair: -pair[1].mean)
    figure, ((ax,),) = new_figure(8, 5)
    ax.axvline(0, color="0.35", lw=1.2, ls="--")
    for y, (_, one) in enumerate(rows):
        look = {"fmt": "o", "ms": 7, "lw": 2, "capsize": 4}
        ax.errorbar(one.mean, y, xerr=one.half, color=VERDICT_LOOKS[verdict(one, higher=False)]["color"], **look)
    labels = [DROPOUT if variant == "layer-dropout" else task.label(variant) for variant, _ in rows]
    ax.set_yticks(range(len(rows)), labels, fontsize=12)
    ax.tick_params(axis="x", labelsize=11)
    ax.tick_params(axis="y", length=0)
    ax.text(0, len(rows) - 0.35, " the Transformer", fontsize=11, color="0.35")
    ax.set_ylim(-0.6, len(rows) + 0.2)
    ax.set_xlabel("lowest validation loss minus the Transformer's\n(nats per token; left is better)", fontsize=11)
    add_grid(ax, "x")
    figure.suptitle(TITLE, fontsize=15, fontweight="bold", x=0.02, ha="left")
    says = "Multi30k, d = 256, 10 epochs, 3 seeds; simultaneous 95 % intervals. Blue: better; grey: undecided."
    figure.supxlabel(says, fontsize=10, color=GREY)
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


def write_front(folder: Path) -> None:
    """``finding.png`` and ``explorer.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE), replacing(folder / "finding.png") as temporary:
        draw_finding().savefig(temporary, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.15)
    with replacing(folder / "explorer.png") as temporary:
        draw_explorer().save(temporary, format="png")


if __name__ == "__main__":
    write_front(Path(sys.argv[1]))
