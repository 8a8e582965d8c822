"""A minute of headdiv: a small Transformer and a small DEACON trained side by side, and how alike their heads are."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from statistics import mean

import matplotlib
from matplotlib.figure import Figure
from torch import Tensor

from headdiv.analysis.similarity import between_heads, compare_heads
from headdiv.companion import paths
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.running import build_model, is_trained, train, train_until
from headdiv.companion.report.groups import place_name
from headdiv.companion.report.plotting import STYLE, add_colour_bar, add_title, new_figure
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Run, observed_heads, vocabulary_of
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import progress
from headdiv.core.files import replacing
from headdiv.plots import draw_pairs

EXPERIMENT = "deacon/translation"
MODELS = {"baseline": "Transformer", "direct-8": "DEACON"}  # variants of it
DEMO = """
One run of each, on generated sentences: this shows how things work, not which is better.
Results on real text: {results}

picture: {picture}

Next steps:
  {reproduce}
      all five papers, small, with a report
  {lab}
      notebooks; explore.ipynb opens these two models,
      your_method.ipynb puts a method of yours beside them"""

Similarities = dict[str, Tensor]  # CKA of every two heads, (H, H), by module


def demo(profile: str = "quick") -> tuple[list[dict[str, str]], Path]:
    """Train both, or load them; rows of a table, a column a model, and the path of a picture of their heads.

    The models are those of the profile, so its pipeline does not train them again.
    """
    configs = {label: run_config(profile, EXPERIMENT, variant, 1) for variant, label in MODELS.items()}
    for config in configs.values():
        TASKS[config.kind].load(config.data)  # prepared once, before both processes ask for it
    _train_both({label: config for label, config in configs.items() if not is_trained(config)})
    columns, maps = {}, {}
    for label, config in configs.items():
        with contextlib.redirect_stdout(io.StringIO()):
            run = train(config)  # takes up what the processes have left
        model, _ = build_model(config, vocabulary_of(run.corpus))
        before, after = map(_similarities, (replace(run, model=model), run))
        scores = evaluate(run)["scores"]
        maps[label] = (before, after)
        columns[label] = {
            "parameters": f"{run.record['parameters']:,}",
            "validation loss, nats/token": f"{scores['validation_nll']['value']:.2f}",
            "BLEU of toy sentences": f"{scores['bleu']['value']:.1f}",
            "CKA of heads, untrained": f"{_mean(before):.2f}",
            "CKA of heads, trained": f"{_mean(after):.2f}",
            "seconds of training": f"{run.record['cost']['training_seconds']:.0f}",
        }
    rows = [{"": name} | {label: column[name] for label, column in columns.items()} for name in columns[label]]
    path = paths.work() / "demo" / "heads.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE), replacing(path) as temporary:
        draw_similarities(maps).savefig(temporary, format="png", dpi=150)
    return rows, path


def where_to_go_on(picture: Path) -> str:
    """What is said below the table, in a clone and in a folder that `headdiv init` wrote."""
    clone = (paths.home() / "Makefile").is_file()
    return DEMO.format(
        picture=picture,
        results="docs/results.md" if clone else "the documentation's results",
        reproduce="make reproduce" if clone else "snakemake reproduce-all",
        lab="make lab" if clone else "jupyter lab notebooks/",
    )


def _train_both(configs: dict[str, RunConfig]) -> None:
    """Each in a process of its own, epoch by epoch, with one bar over both; lines where there is no terminal."""
    if not configs:
        return
    method = "fork" if sys.platform == "linux" else "spawn"
    losses: dict[str, str] = {}
    with ProcessPoolExecutor(len(configs), multiprocessing.get_context(method), _silence) as pool:
        running = {pool.submit(train_until, config, 1): (label, 1) for label, config in configs.items()}
        with progress.bar(sum(config.train.epochs for config in configs.values()), "epochs") as advance:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    label, epoch = running.pop(future)
                    losses[label] = f"{future.result().curve[epoch - 1]['validation_nll']:.2f}"
                    advance("loss " + " and ".join(losses.get(name, "?") for name in configs))
                    if not progress.interactive():
                        progress.message(f"{label}, epoch {epoch}: validation loss {losses[label]}")
                    if epoch < configs[label].train.epochs:
                        running[pool.submit(train_until, configs[label], epoch + 1)] = (label, epoch + 1)


def _silence() -> None:
    """A process that trains beside another draws no bar and prints no lines."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)


def _similarities(run: Run) -> Similarities:
    return {spec.name: found.cka for spec, found in compare_heads(observed_heads(run), run.model)}


def _mean(found: Similarities) -> float:
    """Over the pairs of different heads of all modules."""
    return mean(between_heads(cka) for cka in found.values())


def draw_similarities(maps: dict[str, tuple[Similarities, Similarities]]) -> Figure:
    """Heat maps of every two heads' CKA: a row for each model, before and after training, of the last module."""
    place = list(next(iter(maps.values()))[0])[-1]
    figure, axes = new_figure(5.6, 5.2, len(maps), 2)
    for row, (label, found) in zip(axes, maps.items(), strict=True):
        for ax, when, by_place in zip(row, ("untrained", "trained"), found, strict=True):
            image = draw_pairs(ax, by_place[place].numpy())
            ax.set(title=f"{label}, {when}", ylabel="head" if when == "untrained" else "")
    add_colour_bar(figure, image, axes, "CKA: 0 unrelated, 1 the same")
    add_title(figure, f"How alike every two heads are, before and after training ({place_name(place)})")
    return figure
