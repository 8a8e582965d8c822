"""Scores of a finished run, each with its signature, and the file that everything above is made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import sacrebleu

from headdiv.config import RunConfig
from headdiv.data.torchtext06 import token_bleu
from headdiv.data.words import detokenize, tokenize
from headdiv.decode import translate
from headdiv.diversity import pca_weights
from headdiv.files import read_json, short_hash, write_json
from headdiv.provenance import commit
from headdiv.training import Run

FORMAT = 1  # of metrics.json
ACCURACY = "share of target words (end mark included) that are likeliest, given the right ones before them"


def evaluate(run: Run) -> dict[str, Any]:
    """Everything that is reported of a run: metrics.json as a dictionary.

    Translations are kept beside the model, so that scoring again with the same search costs nothing.
    """
    record, config = run.record, run.config
    last = record["curve"][-1]
    return {
        "format": FORMAT,
        "paper": config.paper,
        "task": config.task,
        "variant": config.variant,
        "seed": config.seed,
        "hash": config.hash,
        "config": config.model_dump(mode="json"),
        "parameters": record["parameters"],
        "scores": {
            "training_loss": _score(last["training_loss"], "nats/token", _training_loss_definition(config)),
            "validation_accuracy": _score(last["validation_accuracy"], "%", ACCURACY),
            "validation_nll": _score(last["validation_nll"], "nats/token", "without label smoothing and dropout"),
            **score_translations(run, translations(run)),
        },
        "curve": record["curve"],
        "heads": {"pca_weights": pca_weights(run.model)},
        "cost": record["cost"],
        "data": record["data"],
        "provenance": {**record["provenance"], "evaluated_at_commit": commit()},
    }


def translations(run: Run) -> list[str]:
    """The test set's source in the run's target language, as text."""
    path = run.folder / f"translations-{short_hash(run.config.decode.model_dump(mode='json'))}.json"
    if path.is_file():
        return read_json(path)
    outputs = translate(run.model, run.corpus.test.pairs.source, run.config.decode, run.device)
    lines = [detokenize(run.corpus.target.decode(output), run.config.data.target) for output in outputs]
    write_json(path, lines)
    return lines


def examples(run: Run, count: int) -> pd.DataFrame:
    """The first ``count`` sentences of the test set: source, reference, translation."""
    rows = [(*pair, line) for pair, line in zip(run.corpus.test.text, translations(run), strict=True)][:count]
    return pd.DataFrame(rows, columns=["source", "reference", "translation"])


def translate_sentence(run: Run, sentence: str) -> str:
    """One sentence, typed in, in the run's target language."""
    data = run.config.data
    words = run.corpus.source.encode(tokenize(sentence, data.source, data.lowercase))
    (output,) = translate(run.model, [np.asarray(words)], run.config.decode, run.device)
    return detokenize(run.corpus.target.decode(output), data.target)


def score_translations(run: Run, lines: list[str]) -> dict[str, dict[str, Any]]:
    """BLEU and chrF by sacrebleu against the raw references, and torchtext's BLEU over tokens as a cross-check."""
    data = run.config.data
    references = [target.lower() if data.lowercase else target for _, target in run.corpus.test.text]
    told = {}
    for name, metric in (("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF())):
        result = metric.corpus_score(lines, [references])
        told[name] = _score(result.score, "0 to 100", str(metric.get_signature()))
    tokens = [[tokenize(line, data.target) for line in side] for side in (lines, references)]
    case = "lower case" if data.lowercase else "case kept"
    signature = f"torchtext 0.6.0 bleu_score, Moses tokens, {case}, one reference"
    told["bleu_tokens"] = _score(token_bleu(*tokens), "0 to 100", signature)
    return told


def _training_loss_definition(config: RunConfig) -> str:
    smoothing = config.train.label_smoothing
    return f"mean over the last epoch's steps, dropout {config.model.dropout}, label smoothing {smoothing}"


def _score(value: float, unit: str, signature: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "signature": signature}
