"""What the notebook of a run shows of it: its data, its model, its training, its heads, and its method's pictures.

Drawn with matplotlib alone, which is imported with the first figure: a notebook is executed for every run.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from IPython.display import Image, Markdown
from pandas.io.formats.style import Styler
from torch import nn

from headdiv.companion.experiments.run_result import RunResult, metrics_path
from headdiv.companion.models.transformer import count_parameters
from headdiv.companion.report.groups import KIND_LABELS, place_name
from headdiv.companion.report.method_pictures import Picture, pictures_of
from headdiv.companion.report.show import as_text
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Run
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.files import replacing
from headdiv.nn.attention import AttentionModule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4  # panels side by side, so that a page shows them at their size
PANEL = 1.9  # inches
COLOURS = "RdBu_r"  # of maps: white is zero
BINS = 30
DPI = 110


def show_data(config: RunConfig, count: int = 3) -> Styler:
    """A few real examples of the validation split, long ones cut; the corpus is prepared where it is not there."""
    task = TASKS[config.kind]
    return as_text(task.data_examples(task.load(config.data), count), "data")


def show_lengths(config: RunConfig) -> Image:
    """How long the data's texts are."""
    task = TASKS[config.kind]
    lengths = task.lengths(task.load(config.data))
    return _image(Picture("Lengths", "histogram", lengths, "length", "texts"), width=2 * PANEL)


def show_architecture(run: Run) -> pd.DataFrame:
    """Every attention module of the variant's model with its parameters, then everything else, then all of it."""
    rows = [
        {
            "module": module.spec.name,
            "attention": type(module).__name__,
            "output stage": _output_stage(module),
            "heads": str(module.head_slots),
            "width of a head": str(module.head_width),
            "parameters": count_parameters(module),
        }
        for module in run.model.modules()
        if isinstance(module, AttentionModule)
    ]
    whole = count_parameters(run.model)
    rows.append({"module": "everything else", "parameters": whole - sum(row["parameters"] for row in rows)})
    rows.append({"module": "the model", "parameters": whole})
    return pd.DataFrame(rows).fillna("").set_index("module")


def _output_stage(module: nn.Module) -> str:
    stage = getattr(module, "output", None)
    return type(stage).__name__ if isinstance(stage, nn.Module) else ""


def show_training(run: Run) -> Image:
    """Losses by epoch, and what else was scored after each epoch: BLEU of training and validation text."""
    curve, task = run.record["curve"], TASKS[run.config.kind]
    units = {"training_loss": task.unit, "validation_nll": task.unit, "validation_accuracy": "%"}
    units |= {key: "0 to 100" for key in curve[0] if key.endswith("_bleu")}
    panels = {f"{task.score_label(key)} ({of})": [point[key] for point in curve] for key, of in units.items()}
    return _image(Picture("Training", "lines", panels, "epoch", ""), width=1.5 * PANEL)


def show_heads(metrics: Mapping[str, Any], profile: str) -> Image:
    """How similar every two heads of each attention module are: the mean cosine of their outputs, on validation text.

    The figure is stored beside the run's results as ``heads.png``.
    """
    result = RunResult.parse(metrics)
    cosines = {place: np.array(found["cosine"], dtype=float) for place, found in result.heads.measures.items()}
    image = _image(Picture("Cosine of two heads' outputs", "map", cosines, "head", "head"))
    path = metrics_path(profile, result.experiment, result.variant, result.seed).with_name("heads.png")
    with replacing(path) as temporary:
        temporary.write_bytes(image.data)
    return image


def show_method(run: Run, metrics: Mapping[str, Any], number: int = 0) -> Image | Markdown:
    """A picture of what the variant's method is about; a line of text for one that has no such picture.

    Args:
        run: trained.
        metrics: what `evaluate` made of it.
        number: which of the method's pictures, from 0.
    """
    history = [point.get("method", {}) for point in run.record["curve"]]
    pictures = pictures_of(metrics["heads"], history)
    if number >= len(pictures):
        return Markdown(f"*The variant {run.config.variant} has no such picture.*")
    return _image(pictures[number])


def draw_picture(picture: Picture, width: float = PANEL) -> Figure:
    """All panels of a picture, each ``width`` inches wide; maps share their colours.

    Margins are given in inches: a layout that is worked out takes longer than the drawing.
    """
    from matplotlib.figure import Figure

    count = len(picture.panels)
    columns = max(1, min(COLUMNS, count))
    rows = max(1, -(-count // columns))
    size = (columns * width + 1.3, rows * PANEL + 0.7)
    figure = Figure(figsize=size)
    margins = {"left": 0.6 / size[0], "right": 1 - 0.7 / size[0], "bottom": 0.45 / size[1], "top": 1 - 0.5 / size[1]}
    figure.subplots_adjust(**margins, wspace=0.4, hspace=0.6)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = list(grid.flat)
    for ax, (name, values) in zip(axes, picture.panels.items(), strict=False):
        _panel(picture, ax, np.asarray(values, dtype=float))
        ax.set_title(place_name(name) if name.partition(" ")[0] in KIND_LABELS else name, fontsize=8)
        ax.set_xlabel(picture.x, fontsize=8)
        ax.tick_params(labelsize=7)
    for ax in axes[count:]:
        ax.set_axis_off()
    for ax in grid[:, 0]:
        ax.set_ylabel(picture.y, fontsize=8)
    if picture.kind == "map" and count:
        bar = figure.add_axes((1 - 0.5 / size[0], 0.45 / size[1], 0.12 / size[0], PANEL / size[1] / 1.5))
        figure.colorbar(axes[0].images[0], cax=bar).ax.tick_params(labelsize=7)
        bar.set_xlabel("0 is white", fontsize=7)
    figure.suptitle(picture.title, fontsize=9)
    return figure


def _panel(picture: Picture, ax: Axes, values: np.ndarray) -> None:
    if picture.kind == "map":
        rows, columns = values.shape
        border = (0.5, columns + 0.5, rows + 0.5, 0.5)  # heads, components and epochs are counted from 1
        ax.imshow(values, cmap=COLOURS, vmin=-picture.limit, vmax=picture.limit, extent=border, aspect="auto")
    elif picture.kind == "lines":
        ax.plot(np.arange(1, len(values) + 1), values, marker="o", ms=3, lw=1)
    else:
        ax.hist(values, bins=_bins(values))


def _bins(values: np.ndarray) -> np.ndarray | int:
    """At most `BINS`; of whole numbers, each bin holds equally many."""
    if not len(values) or (values % 1).any() or np.ptp(values) < 2:
        return BINS
    step = int(np.ceil((np.ptp(values) + 1) / BINS))
    return np.arange(values.min(), values.max() + step + 1, step) - 0.5


def _image(picture: Picture, width: float = PANEL) -> Image:
    """Drawn once, for page and file."""
    figure = draw_picture(picture, width)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    return Image(data.getvalue(), format="png", alt=picture.title)
