"""A minute of headdiv: a small Transformer and a small DEACON side by side, and heads of two that learnt more."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from headdiv.companion import paths
from headdiv.companion.experiments.evaluation import evaluate, head_measures
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.running import is_trained, train
from headdiv.companion.experiments.shipped import shipped_runs
from headdiv.companion.report.explorer_panels import draw_views
from headdiv.companion.report.explorer_view import view_of
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import progress
from headdiv.core.files import replacing

EXPERIMENT = "deacon/translation"
MODELS = {"baseline": "Transformer", "direct-8": "DEACON"}  # variants of it
HEAD, DPI = 8, 150  # of the picture: in both models this head looks at the word to come
DEMO = """
One run of each, on generated sentences: this shows how things work, not which is better.
Results on real text: {results}

picture: {picture}
      what one head does in each of two models that have learnt from real captions (Multi30k)

Next steps:
  {reproduce}
      all five papers, small, with a report
  {lab}
      notebooks; explore.ipynb shows every head of the picture's models,
      your_method.ipynb puts a method of yours beside the small ones"""


def demo(profile: str = "quick") -> tuple[list[dict[str, str]], Path]:
    """Train both, or load them: a table's rows, a column a model, and the path of a picture of shipped models' heads.

    The models that are trained are those of the profile, so its pipeline does not train them again.
    """
    configs = {label: run_config(profile, EXPERIMENT, variant, 1) for variant, label in MODELS.items()}
    for config in configs.values():
        TASKS[config.kind].load(config.data)  # prepared once, before both processes ask for it
    _train_side_by_side(config for config in configs.values() if not is_trained(config))
    columns = {}
    for label, config in configs.items():
        run = train(config)
        metrics = evaluate(run)
        columns[label] = {
            "parameters": f"{metrics['parameters']:,}",
            "validation loss, nats/token": f"{metrics['scores']['validation_nll']['value']:.2f}",
            "BLEU of toy sentences": f"{metrics['scores']['bleu']['value']:.1f}",
            "likeness of heads (CKA, 0 to 1)": f"{head_measures(run)['cka'].mean():.2f}",
            "seconds of training": f"{metrics['cost']['training_seconds']:.0f}",
        }
    rows = [{"": name} | {label: column[name] for label, column in columns.items()} for name in columns[label]]
    path = paths.work() / "demo" / "heads.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        draw_views([view_of(run, head=HEAD) for run in shipped_runs()]).savefig(temporary, format="png", dpi=DPI)
    return rows, path


def where_to_go_on(picture: Path) -> str:
    """The text below the table, in a clone or in a folder that `headdiv init` wrote."""
    clone = (paths.home() / "Makefile").is_file()
    return DEMO.format(
        picture=picture,
        results="docs/results.md" if clone else "the documentation's results",
        reproduce="make reproduce" if clone else "snakemake reproduce-all",
        lab="make lab" if clone else "jupyter lab notebooks/",
    )


def _train_side_by_side(configs: Iterable[RunConfig]) -> None:
    """Each in a process of its own, which prints a line an epoch."""
    method = "fork" if sys.platform == "linux" else "spawn"
    with ProcessPoolExecutor(len(MODELS), multiprocessing.get_context(method)) as pool:
        list(pool.map(_train, configs))


def _train(config: RunConfig) -> None:
    os.environ[progress.PLAIN] = "plain"  # two bars would write over each other
    train(config)
