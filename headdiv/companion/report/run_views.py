"""What the notebook of a run shows of it: its data, its model, its training and its heads."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from headdiv.companion.models.transformer import count_parameters
from headdiv.companion.report.groups import place_name
from headdiv.companion.report.plotting import SMALL, STYLE, new_figure
from headdiv.companion.report.show import as_text
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Example, Run
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.nn.attention import AttentionModule
from headdiv.plots import draw_pairs

COLUMNS = 4  # panels side by side, so that a page shows them at their size
PANEL = 1.9  # inches
BINS = 30
LOOK = STYLE | {"font.size": SMALL, "axes.titlesize": SMALL}
DPI = 110


def show_data(config: RunConfig, count: int = 3) -> Styler:
    """A few real examples of the validation split, long ones cut; the corpus is prepared where it is not there."""
    task = TASKS[config.kind]
    examples = pd.DataFrame(task.example_texts(task.load(config.data), "valid", count), columns=Example._fields)
    return as_text(examples.dropna(axis="columns", how="all"), "data")


@matplotlib.rc_context(LOOK)
def show_lengths(config: RunConfig) -> Image:
    """How long the data's texts are."""
    task = TASKS[config.kind]
    lengths = task.lengths(task.load(config.data))
    figure, axes = _panels(list(lengths), 2 * PANEL)
    for ax, values in zip(axes, lengths.values(), strict=True):
        step = -(-(np.ptp(values) + 1) // BINS)  # whole: each bin holds equally many lengths
        ax.hist(values, bins=np.arange(min(values), max(values) + step + 1, step) - 0.5)
        ax.set_xlabel("length")
    axes[0].set_ylabel("texts")
    return _image(figure, "Lengths")


def show_architecture(run: Run) -> pd.DataFrame:
    """Every attention module of the variant's model with its parameters, then everything else, then the total."""
    rows = [
        {
            "module": module.spec.name,
            "attention": type(module).__name__,
            "output stage": type(module.output).__name__ if hasattr(module, "output") else "",
            "heads": str(module.head_slots),
            "width of a head": str(module.head_width),
            "parameters": count_parameters(module),
        }
        for module in run.model.modules()
        if isinstance(module, AttentionModule)
    ]
    total = count_parameters(run.model)
    rows.append({"module": "everything else", "parameters": total - sum(row["parameters"] for row in rows)})
    rows.append({"module": "the model", "parameters": total})
    return pd.DataFrame(rows).fillna("").set_index("module")


@matplotlib.rc_context(LOOK)
def show_training(run: Run) -> Image:
    """Losses and other scores by epoch, such as BLEU of training and validation text."""
    curve, task = run.record["curve"], TASKS[run.config.kind]
    units = {"training_loss": task.unit, "validation_nll": task.unit, "validation_accuracy": "%"}
    units |= {key: "0 to 100" for key in curve[0] if key.endswith("_bleu")}
    figure, axes = _panels([f"{task.score_label(key)} ({unit})" for key, unit in units.items()], 1.5 * PANEL)
    for ax, key in zip(axes, units, strict=True):
        ax.plot(range(1, len(curve) + 1), [point[key] for point in curve], marker="o", ms=3, lw=1)
        ax.set_xlabel("epoch")
    return _image(figure, "Training")


@matplotlib.rc_context(LOOK)
def show_heads(metrics: Mapping[str, Any]) -> Image:
    """How similar every two heads of each module are: the mean cosine of their outputs, on validation text."""
    measures = metrics["heads"]["measures"]
    figure, axes = _panels(list(map(place_name, measures)), PANEL)
    for ax, module in zip(axes, measures.values(), strict=True):
        image = draw_pairs(ax, np.array(module["cosine"]), low=-1)
    figure.colorbar(image, ax=axes, shrink=0.6)
    return _image(figure, "Cosine of two heads' outputs")


def _panels(titles: Sequence[str], width: float) -> tuple[Figure, list[Axes]]:
    """A figure with an axes for each title, ``width`` inches wide."""
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure, grid = new_figure(columns * width + 1, rows * PANEL + 0.5, rows, columns)
    axes = list(grid.flat)
    for ax, title in zip(axes, titles, strict=False):
        ax.set_title(title)
    for ax in axes[len(titles) :]:
        ax.set_axis_off()
    return figure, axes[: len(titles)]


def _image(figure: Figure, title: str) -> Image:
    """The figure with its title, drawn once for page and file."""
    figure.suptitle(title)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    return Image(data.getvalue(), format="png", alt=title)
