"""What the notebook of a run shows of it: its data, its model, its training, its heads, and its method's pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from IPython.display import Image, Markdown
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.models.transformer import count_parameters
from headdiv.companion.report.groups import KIND_LABELS, place_name
from headdiv.companion.report.show import as_text
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Run
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.nn.attention import AttentionModule
from headdiv.plots import draw_maps

COLUMNS = 4  # panels side by side, so that a page shows them at their size
PANEL = 1.9  # inches
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
            "output stage": type(module.output).__name__ if hasattr(module, "output") else "",
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


def show_training(run: Run) -> Image:
    """Losses by epoch, and what else was scored after each epoch: BLEU of training and validation text."""
    curve, task = run.record["curve"], TASKS[run.config.kind]
    units = {"training_loss": task.unit, "validation_nll": task.unit, "validation_accuracy": "%"}
    units |= {key: "0 to 100" for key in curve[0] if key.endswith("_bleu")}
    panels = {f"{task.score_label(key)} ({unit})": [point[key] for point in curve] for key, unit in units.items()}
    return _image(Picture("Training", "lines", panels, "epoch", ""), width=1.5 * PANEL)


def show_heads(metrics: Mapping[str, Any], profile: str) -> Image:
    """How similar every two heads of each attention module are: the mean cosine of their outputs, on validation text.

    ``profile`` is not read: run notebooks name it, and a change of their code would make stored runs outdated.
    """
    measures = RunResult.parse(metrics).heads.measures
    cosines = {place: of_module["cosine"] for place, of_module in measures.items()}
    return _image(Picture("Cosine of two heads' outputs", "map", cosines, "head", "head"))


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


# ---- pictures of a method: of the artifacts and of the swaps that the results keep


@dataclass(frozen=True)
class Picture:
    """Numbers to be drawn: a panel for each attention module, or for each kind of attention.

    Attributes:
        title: what is shown.
        kind: "map", panels are matrices; "lines", a panel is one line; "histogram", a panel is values to be counted.
        panels: by the panels' names.
        x: what the horizontal axis counts.
        y: the same of the vertical one; of a map, of its rows.
        limit: maps have colours from -limit to limit.
    """

    title: str
    kind: Literal["map", "lines", "histogram"]
    panels: Mapping[str, Any]
    x: str
    y: str
    limit: float = 1.0


def pictures_of(heads: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """The pictures of a run, by what its results hold.

    Args:
        heads: ``heads`` of its metrics: measures and artifacts by name.
        history: what its method did after epochs 1, 2, …; of a combination, by part.
    """
    pictures = []
    if layers := heads.get("pca_weights"):
        cosines, spectra = {}, {}
        for layer in layers.values():
            cosines[layer["place"]] = np.array(layer["cosines"])
            gram = cosines[layer["place"]] * np.outer(layer["column_lengths"], layer["column_lengths"])
            spectra[layer["place"]] = np.sqrt(np.linalg.eigvalsh(gram).clip(0)[::-1])
        pictures += [
            Picture("Cosines of the columns of each PCA layer's weights", "map", cosines, "component", "component"),
            Picture("Spectra of the PCA layers' weights", "lines", spectra, "component", "singular value"),
        ]
    if layers := heads.get("alphas"):
        changes = {place: np.array(layer["alphas"]) - np.eye(len(layer["alphas"])) for place, layer in layers.items()}
        limit = max(float(np.abs(change).max()) for change in changes.values()) or 1.0
        pictures.append(Picture("Alphas minus the identity", "map", changes, "head", "mixture", limit))
    if layers := heads.get("activations"):
        shares = {place: np.ravel(layer["shares"]) for place, layer in layers.items()}
        pictures.append(Picture("How often units are active", "histogram", shares, "share of rows", "units"))
    if routers := heads.get("router"):
        loads = np.array([router["load"] for router in routers.values()])  # (modules, experts)
        even = 1 / loads.shape[1]
        excess = {"each row a module: " + ", ".join(routers): loads - even}
        name = "Experts' shares of the choices, minus an even share"
        pictures.append(Picture(name, "map", excess, "expert", "module", even))
    if any(_swaps(record) for record in history):
        pictures.append(_swapped(heads["measures"], history))
    return pictures


def _swaps(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of the method's records of an epoch that tell of swaps: its own, or that of a part of a combination."""
    return [part for part in (record, *record.values()) if isinstance(part, Mapping) and part.get("swaps")]


def _swapped(measures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Picture:
    """Which heads were swapped before which epoch: 1 where they go, -1 where they return."""
    kinds = [place.partition(" ")[0] for place in measures]
    number = len(next(iter(measures.values()))["cosine"])
    panels = {kind: np.zeros((kinds.count(kind) * number, len(history) + 1)) for kind in dict.fromkeys(kinds)}
    for column, record in enumerate(history, start=1):  # what was done after epoch 1 belongs to epoch 2
        for part in _swaps(record):
            for pair in part["swaps"]:
                for layer, head in (pair["one"], pair["other"]):
                    panels[pair["kind"]][(layer - 1) * number + head - 1, column] = -1 if part["back"] else 1
    return Picture("Heads swapped before each epoch", "map", panels, "epoch", "head, layer by layer")


# ---- drawing


def draw_picture(picture: Picture, width: float = PANEL) -> Figure:
    """All panels of a picture, each ``width`` inches wide; maps share their colours.

    Margins are given in inches: a notebook is executed for every run, and a layout takes longer than the drawing.
    """
    panels = [
        (place_name(name) if name.partition(" ")[0] in KIND_LABELS else name, np.asarray(values, dtype=float))
        for name, values in picture.panels.items()
    ]
    columns = min(COLUMNS, len(panels))
    rows = [dict(panels[start : start + columns]) for start in range(0, len(panels), columns)]
    size = (columns * width + 1.3, len(rows) * PANEL + 0.7)
    figure = Figure(figsize=size)
    margins = {"left": 0.6 / size[0], "right": 1 - 0.7 / size[0], "bottom": 0.45 / size[1], "top": 1 - 0.5 / size[1]}
    figure.subplots_adjust(**margins, wspace=0.4, hspace=0.6)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    if picture.kind == "map":
        image = draw_maps(axes, rows, picture.limit, picture.x, [picture.y] * len(rows))
        bar = figure.add_axes((1 - 0.5 / size[0], 0.45 / size[1], 0.12 / size[0], PANEL / size[1] / 1.5))
        figure.colorbar(image, cax=bar).ax.tick_params(labelsize=7)
        bar.set_xlabel("0 is white", fontsize=7)
    else:
        for ax, (name, values) in zip(axes.flat, panels, strict=False):
            if picture.kind == "lines":
                ax.plot(range(1, len(values) + 1), values, marker="o", ms=3, lw=1)
            else:
                ax.hist(values, bins=_bins(values))
            ax.set_title(name, fontsize=8)
            ax.set_xlabel(picture.x, fontsize=8)
            ax.tick_params(labelsize=7)
        for ax in axes.flat[len(panels) :]:
            ax.set_axis_off()
        for ax in axes[:, 0]:
            ax.set_ylabel(picture.y, fontsize=8)
    figure.suptitle(picture.title, fontsize=9)
    return figure


def _bins(values: np.ndarray) -> np.ndarray | int:
    """At most `BINS`; of whole numbers, each bin holds equally many."""
    if not len(values) or (values % 1).any() or np.ptp(values) < 2:
        return BINS
    step = int(np.ceil((np.ptp(values) + 1) / BINS))
    return np.arange(values.min(), values.max() + step + 1, step) - 0.5


def _image(picture: Picture, width: float = PANEL) -> Image:
    """Drawn once, for page and file."""
    data = io.BytesIO()
    figure = draw_picture(picture, width)
    figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    return Image(data.getvalue(), format="png", alt=picture.title)
