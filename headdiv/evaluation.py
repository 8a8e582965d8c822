"""Scores of a finished run, each with its signature: what the file is made of that everything above reads."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headdiv import places
from headdiv.config import RunConfig
from headdiv.diversity import pca_weights
from headdiv.provenance import commit
from headdiv.tasks import TASKS
from headdiv.tasks.base import Run, score

FORMAT = 2  # of metrics.json


def evaluate(run: Run) -> dict[str, Any]:
    """Everything that is reported of a run: metrics.json as a dictionary.

    Outputs (translations, summaries, answers) are kept beside the model, so that scoring again with the
    same search costs nothing.
    """
    record, config = run.record, run.config
    task, last = TASKS[config.task], record["curve"][-1]
    scores, outputs = task.scores(run), task.outputs_file(run)
    return {
        "format": FORMAT,
        "paper": config.paper,
        "task": config.task,
        "variant": config.variant,
        "seed": config.seed,
        "hash": run.folder.name,
        "config": config.model_dump(mode="json"),
        "parameters": record["parameters"],
        "scores": {
            "training_loss": score(last["training_loss"], task.unit, _training_loss_definition(config)),
            "validation_accuracy": score(last["validation_accuracy"], "%", task.accuracy),
            "validation_nll": score(last["validation_nll"], task.unit, "without label smoothing and dropout"),
            "unigram_nll": score(
                record["data"]["valid"]["unigram_nll"], task.unit, f"validation split: {task.unigram}"
            ),
            **scores,
        },
        "curve": record["curve"],
        "heads": {"pca_weights": pca_weights(run.model)},
        "outputs": None if outputs is None else str(outputs.relative_to(places.home())),
        "cost": record["cost"],
        "data": record["data"],
        "provenance": {**record["provenance"], "evaluated_at_commit": commit()},
    }


def examples(run: Run, count: int) -> pd.DataFrame:
    """Inputs, references and outputs of the first ``count`` examples of the test set."""
    return TASKS[run.config.task].examples(run, count)


def apply(run: Run, text: str) -> str:
    """What a translation, summarisation or language model makes of a text that you type in."""
    return TASKS[run.config.task].apply(run, text)


def answer(run: Run, passage: str, question: str) -> str:
    """What a question-answering model answers to a question that you type in, on a passage that you type in."""
    return TASKS[run.config.task].answer(run, passage, question)


def _training_loss_definition(config: RunConfig) -> str:
    smoothing = config.train.label_smoothing
    return f"mean over the last epoch's steps, dropout {config.model.dropout}, label smoothing {smoothing}"
