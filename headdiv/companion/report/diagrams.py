"""The diagram of a paper's idea, drawn from boxes and arrows in the paper's file."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from headdiv.companion.experiments.papers import Box, load_paper, paper_names
from headdiv.companion.report.plotting import MEDIUM, ORANGE, SMALL, STYLE
from headdiv.core.errors import DataError
from headdiv.core.files import replacing

UNIT = 1.0  # inches from one column, or row, to the next
HEIGHT = 0.52  # of a box, in rows


@matplotlib.rc_context(STYLE)
def show_diagram(paper: str) -> Figure:
    """The paper's idea: what is the paper's own stands in orange, what every Transformer has in grey.

    Raises:
        ConfigError: there is no such paper.
        DataError: its file has no diagram.
    """
    drawing = load_paper(paper).diagram
    if drawing is None:
        raise DataError(f"papers/{paper}.yaml has no diagram")
    boxes = drawing.boxes
    left, right = (choose(box.at[0] + side * box.width / 2 for box in boxes.values()) for choose, side in _SIDES)
    bottom, top = (choose(box.at[1] + side * HEIGHT / 2 for box in boxes.values()) for choose, side in _SIDES)
    size = (UNIT * (right - left + 0.1), UNIT * (top - bottom + 0.1))
    figure = Figure(figsize=size)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(left - 0.05, right + 0.05), ylim=(bottom - 0.05, top + 0.05))
    ax.set_axis_off()
    for arrow in drawing.arrows:
        start, end = _ends(boxes[arrow.tail], boxes[arrow.head])
        colour = ORANGE if arrow.own else "0.35"
        style = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "ls": "--" if arrow.own else "-", "shrinkA": 0}
        ax.annotate("", end, start, arrowprops=style | {"shrinkB": 0})
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        offset, align = ((0, 3), "center") if abs(start[1] - end[1]) < 0.05 else ((5, 0), "left")
        ax.annotate(arrow.text, middle, offset, textcoords="offset points", ha=align, va="bottom", fontsize=SMALL)
    for box in boxes.values():
        corner = (box.at[0] - box.width / 2 + 0.04, box.at[1] - HEIGHT / 2 + 0.04)
        colours = {"fc": "#fdebd0", "ec": ORANGE} if box.own else {"fc": "0.95", "ec": "0.5"}
        shape = "round,pad=0.04,rounding_size=0.07"
        ax.add_patch(FancyBboxPatch(corner, box.width - 0.08, HEIGHT - 0.08, boxstyle=shape, lw=1.2, **colours))
        ax.text(*box.at, box.text, ha="center", va="center", fontsize=MEDIUM, linespacing=1.25)
    return figure


_SIDES = ((min, -1), (max, 1))


def _ends(tail: Box, head: Box) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow leaves one box and meets the other: between their sides, or their upper and lower edges."""
    (x0, y0), (x1, y1) = tail.at, head.at
    if abs(y1 - y0) < HEIGHT:
        side = 1 if x1 > x0 else -1
        return (x0 + side * tail.width / 2, y0), (x1 - side * head.width / 2, y1)
    side = 1 if y1 > y0 else -1
    near = min(max(x0, x1 - head.width / 2 + 0.1), x1 + head.width / 2 - 0.1)  # straight up or down where it can be
    return (min(max(near, x0 - tail.width / 2 + 0.1), x0 + tail.width / 2 - 0.1), y0 + side * HEIGHT / 2), (
        near,
        y1 - side * HEIGHT / 2,
    )


def write_diagrams(folder: Path) -> list[Path]:
    """``<paper>.svg`` of every paper that has a diagram."""
    written = []
    for paper in paper_names():
        if load_paper(paper).diagram is not None:
            with replacing(folder / f"{paper}.svg") as temporary, matplotlib.rc_context(STYLE):
                show_diagram(paper).savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
            written.append(folder / f"{paper}.svg")
    return written


if __name__ == "__main__":
    for path in write_diagrams(Path(sys.argv[1])):
        print(path)
