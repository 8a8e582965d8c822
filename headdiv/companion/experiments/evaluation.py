"""Scores of a finished run, each with its signature: the content of metrics.json."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from headdiv.analysis.similarity import averages, compare_heads, measures_by_name
from headdiv.companion import paths
from headdiv.companion.experiments.run_result import FORMAT, RunResult
from headdiv.companion.experiments.running import averaged_run, best_run
from headdiv.companion.provenance import commit
from headdiv.companion.tasks.base import (
    AVERAGE,
    BEST,
    Run,
    Score,
    held_out_loss,
    observed_heads,
    score,
    vocabulary_of,
)
from headdiv.core.files import read_json
from headdiv.methods.base import ValidationSplit
from headdiv.methods.registry import make_method

log = logging.getLogger(__name__)


def evaluate(run: Run) -> dict[str, Any]:
    """Everything that is reported of a run: metrics.json as a dictionary; with ``failures`` if it has not learnt.

    Outputs (translations, summaries, answers) are kept beside the model, so that scoring again with the
    same search costs nothing, those of the best epoch's parameters in a folder of their own.
    """
    record, config, task, last = run.record, run.config, run.task, run.point
    scores = task.scores(run)
    others = task.further_tests(run)
    for name, other in others.items():
        scores |= named(task.compared_scores(other), name, name)
    best = best_run(run)
    scores |= best_scores(run, best, scores)
    if best is not run:
        others[BEST] = best
    if average := averaged_run(run):
        scores |= average_scores(average)
        others[AVERAGE] = average
    steps = "the last epoch's steps" if last is record["curve"][-1] else f"the steps of epoch {last['epoch']}"
    as_trained = f"mean over {steps}, dropout {config.model.dropout}, label smoothing {config.train.label_smoothing}"
    unigram_nll = record["data"]["valid"]["unigram_nll"]
    files = {name: task.outputs_file(other) for name, other in ({"": run} | others).items()}
    outputs = {name: str(path.relative_to(paths.home())) for name, path in files.items() if path}
    search = read_json(files[""]).get("time") if files[""] else None
    metrics = {
        "format": FORMAT,
        **run.identity(),
        "parameters": record["parameters"],
        "scores": {
            "training_loss": score(last["training_loss"], task.unit, as_trained),
            "validation_accuracy": score(last["validation_accuracy"], "%", task.accuracy),
            "validation_nll": score(last["validation_nll"], task.unit, "without label smoothing and dropout"),
            "unigram_nll": score(unigram_nll, task.unit, f"validation split: {task.unigram}"),
            **scores,
        },
        "curve": record["curve"],
        "heads": _heads(run),
        "outputs": outputs.pop("", None),
        "more_outputs": outputs,
        "evaluated_epoch": last["epoch"],
        "cost": record["cost"] | ({"search": search} if search else {}),
        "data": record["data"],
        "provenance": {**record["provenance"], "evaluated_at_commit": commit()},
    }
    result = RunResult.parse(metrics)
    for sentence in result.failures():
        log.warning("%s: %s", result.name, sentence)
    return metrics | ({"failures": result.failures()} if result.failures() else {})


def best_scores(run: Run, best: Run, scores: Mapping[str, Score]) -> dict[str, Score]:
    """The lowest validation loss, its epoch, and what `Task.compared_scores` gives the parameters of that epoch.

    Args:
        run: the evaluated run.
        best: see `headdiv.companion.experiments.running.best_run`; nothing is searched again where it is the same run.
        scores: of the evaluated run.
    """
    task, epoch = run.task, best.point["epoch"]
    names = (task.test_score_name, *task.also_compared)
    compared = {name: scores[name] for name in names} if best is run else task.compared_scores(best)
    which = f"epoch {epoch} of {len(run.record['curve'])}, that of the lowest validation loss"
    return {
        "validation_nll_best": score(
            best.point["validation_nll"], task.unit, f"without label smoothing and dropout, after {which}"
        ),
        "best_epoch": score(epoch, "epochs", "with the lowest validation loss, the first of equal ones"),
        **named(compared, BEST, f"parameters of {which}"),
    }


def average_scores(average: Run) -> dict[str, Score]:
    """The validation loss, and what `Task.compared_scores` gives, of the mean of the last epochs' parameters."""
    task, (first, last) = average.task, average.record["averaged_epochs"]
    loss = score(held_out_loss(average, "valid")["nll"], task.unit, "without label smoothing and dropout")
    averaged = {"validation_nll": loss, **task.compared_scores(average)}
    return named(averaged, AVERAGE, f"mean of the parameters of epochs {first} to {last}")


def named(scores: Mapping[str, Score], suffix: str, note: str) -> dict[str, Score]:
    """Scores with a suffix to their names, "bleu_best", and a note at the end of their signatures."""
    return {
        f"{name}_{suffix}": value | {"signature": f"{value['signature']}; {note}"} for name, value in scores.items()
    }


def head_measures(run: Run) -> pd.DataFrame:
    """Measures of the heads on the validation split by name ("encoder 1"), one number each.

    Means over the heads of a module (confidence, entropy) and over its pairs of different heads (cosine, l2,
    correlation, cka, js; NaN where there is one head): see `headdiv.analysis.similarity.HeadComparison`.
    """
    rows = {spec.name: averages(measured) for spec, measured in compare_heads(observed_heads(run))}
    return pd.DataFrame.from_dict(rows, orient="index")


def _heads(run: Run) -> dict[str, Any]:
    """The method's artifacts, and measures of the heads on the validation split."""
    task, method = run.task, make_method(run.config.method)
    vocabulary = max(vocabulary_of(run.corpus)) + 1  # a masked model reads one token more, the mask token
    # The second pass is one only for a method that reads it, and far cheaper without attention weights.
    observe = partial(observed_heads, run, weights=False)
    validation = ValidationSplit(observe, vocabulary, partial(task.decode_token, run.corpus))
    return {**method.artifacts(run.model, validation), "measures": measures_by_name(compare_heads(observed_heads(run)))}
