"""Scores of a finished run, each with its signature: the content of metrics.json."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pandas as pd

from headdiv.analysis.similarity import averages, by_place, compare_heads
from headdiv.core import paths
from headdiv.core.provenance import commit
from headdiv.experiments.run_result import FORMAT, RunResult
from headdiv.experiments.showcase import write_showcase
from headdiv.methods import make_method
from headdiv.tasks import TASKS
from headdiv.tasks.base import Run, observed_heads, score, vocabulary_of

log = logging.getLogger(__name__)


def evaluate(run: Run) -> dict[str, Any]:
    """Everything that is reported of a run: metrics.json as a dictionary; with ``failures`` if it has not learnt.

    Outputs (translations, summaries, answers) are kept beside the model, so that scoring again with the
    same search costs nothing; so is what the report shows of them (`headdiv.experiments.showcase`).
    """
    record, config = run.record, run.config
    task, last = TASKS[config.kind], record["curve"][-1]
    search = task.search_time(run)
    scores, outputs = task.scores(run), task.outputs_file(run)
    smoothing, simplest = config.train.label_smoothing, record["data"]["valid"]["unigram_nll"]
    noisy = f"mean over the last epoch's steps, dropout {config.model.dropout}, label smoothing {smoothing}"
    metrics = {
        "format": FORMAT,
        **run.identity(),
        "parameters": record["parameters"],
        "scores": {
            "training_loss": score(last["training_loss"], task.unit, noisy),
            "validation_accuracy": score(last["validation_accuracy"], "%", task.accuracy),
            "validation_nll": score(last["validation_nll"], task.unit, "without label smoothing and dropout"),
            "unigram_nll": score(simplest, task.unit, f"validation split: {task.unigram}"),
            **scores,
        },
        "curve": record["curve"],
        "heads": _heads(run),
        "outputs": None if outputs is None else str(outputs.relative_to(paths.home())),
        "cost": record["cost"] | ({"search": search} if search else {}),
        "data": record["data"],
        "provenance": {**record["provenance"], "evaluated_at_commit": commit()},
    }
    write_showcase(run)
    result = RunResult.parse(metrics)
    for sentence in result.failures():
        log.warning("%s: %s", result.name, sentence)
    return metrics | ({"failures": result.failures()} if result.failures() else {})


def examples(run: Run, count: int) -> pd.DataFrame:
    """Inputs, references and outputs of the first ``count`` examples of the test set."""
    return TASKS[run.config.kind].examples(run, count)


def apply(run: Run, text: str, other: str | None = None) -> str:
    """The model's output for a text that is typed in: a translation, a summary, a continuation, an answer.

    In question answering ``text`` is the passage, ``other`` the question.
    """
    return TASKS[run.config.kind].apply(run, text, other)


def head_measures(run: Run) -> pd.DataFrame:
    """Measures of the heads on the validation split by place ("encoder 1"), one number each.

    Means over the heads of a module (confidence, entropy) and over its pairs of different heads (cosine, l2,
    correlation, cka, js; NaN where there is one head): see `headdiv.analysis.similarity.HeadComparison`.
    """
    task = TASKS[run.config.kind]
    found = compare_heads(observed_heads(task, run.model, run.corpus, "valid", run.config, run.device))
    rows = {spec.place: averages(measured) for spec, measured in found}
    return pd.DataFrame.from_dict(rows, orient="index")


def _heads(run: Run) -> dict[str, Any]:
    """The method's artifacts, and measures of the heads on the validation split."""
    task, method = TASKS[run.config.kind], make_method(run.config.method)
    observe = partial(observed_heads, task, run.model, run.corpus, "valid", run.config, run.device)
    vocabulary = max(vocabulary_of(run.corpus)) + 1  # a masked model reads one token more, the mask token
    # The second pass is one only for a method that reads it, and far cheaper without attention weights.
    own = method.observed_artifacts(observe(weights=False), vocabulary, partial(task.decode_token, run.corpus))
    return {**method.artifacts(run.model), "measures": by_place(compare_heads(observe())), **own}
