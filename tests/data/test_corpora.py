"""What every corpus of one's own files promises: bad records named or counted, no split of nothing."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from faulty import put
from small_runs import put_squad

from headdiv.companion.data import cache
from headdiv.companion.data.data_config import DataConfig
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.lm import LMData
from headdiv.companion.tasks.mlm import MLMData
from headdiv.companion.tasks.qa import QAData
from headdiv.companion.tasks.summarisation import SummarisationData
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import DataError

SPLITS = ("train", "valid", "test")
NUMBERS = range(6)  # good examples of a split; the bad one stands before the last
WHOLE = {"train": NUMBERS[::-1], "valid": NUMBERS, "test": NUMBERS}  # training text may not be that of another split


class Corpus(NamedTuple):
    """A task's corpus of one's own files.

    Attributes:
        kind: of its configuration.
        files: writes a split's file or files from numbers of examples, None for a bad one; what ``data.files`` says.
        nothing: what is said of a split without examples.
        options: of the configuration.
    """

    kind: type[DataConfig]
    files: Callable[..., Any]
    nothing: str
    options: dict[str, Any]


def pairs(folder, split, numbers):
    text = {language: ["" if n is None else f"{language} {n} ." for n in numbers] for language in ("en", "de")}
    found = {language: put(folder / f"{split}.{language}", "\n".join([*lines, ""])) for language, lines in text.items()}
    return {language: str(path) for language, path in found.items()}


def jsonl(folder, split, rows):
    return str(put(folder / f"{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))


def articles(folder, split, numbers):
    rows = [{"id": str(n), "document": "" if n is None else f"Document {n}.", "summary": "A sum."} for n in numbers]
    return jsonl(folder, split, rows)


def questions(folder, split, numbers):
    """The answer of a bad one is not at its place."""
    rows = [(f"It is {n} .", {f"q{n}": ("What?", (str(n), 0 if n is None else 6))}) for n in numbers]
    return put_squad(folder / f"{split}.json", *rows)


def documents(folder, split, numbers):
    return [jsonl(folder, split, [{"text": " " if n is None else f"Text {n} is a text."} for n in numbers])]


WORDS = {"min_frequency": 1}
STREAM = {"vocabulary_size": 258, "context": 8, "epoch_tokens": 10}
CORPORA = {
    "translation": Corpus(TranslationData, pairs, "data.{}: no pair is left", WORDS),
    "summarisation": Corpus(SummarisationData, articles, "data.{}: no article is left", WORDS),
    "qa": Corpus(QAData, questions, "data.{}: no question is left", WORDS),
    "lm": Corpus(LMData, documents, "{}.jsonl: found no document", STREAM),
    "mlm": Corpus(MLMData, documents, "{}.jsonl: found no document", STREAM),
}


def config(folder, task, numbers, strict=True):
    """A configuration whose splits have these examples."""
    corpus = CORPORA[task]
    files = {split: corpus.files(folder, split, some) for split, some in numbers.items()}
    return corpus.kind(name="mine", files=files, strict=strict, **corpus.options)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("task", CORPORA)
def test_a_bad_record_is_named_or_left_out_and_counted(folder, task, split):
    whole = TASKS[task].load(config(folder, task, WHOLE)).statistics
    assert (whole["refused"], whole["test"]["examples"]) == ({}, len(NUMBERS))
    holed = {**WHOLE, split: [*NUMBERS[:-1], None, NUMBERS[-1]]}
    strict = config(folder, task, holed)
    with pytest.raises(DataError, match=rf"^{folder}/{split}\..*; data\.strict: false leaves"):
        TASKS[task].load(strict)
    assert not cache.prepared_folder(strict).exists()
    lenient = config(folder, task, holed, strict=False)
    found = TASKS[task].load(lenient).statistics
    assert TASKS[task].load(lenient).statistics == found  # prepared before
    assert list(found["refused"].values()) == [1]
    for statistics in (found, whole):  # of the files as they are
        statistics["train"].pop("bytes", None)
    assert found | {"refused": {}} == whole


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("task", CORPORA)
def test_a_split_of_which_nothing_is_left_is_named(folder, task, split):
    mine = config(folder, task, {**WHOLE, split: [None]}, strict=False)
    with pytest.raises(DataError) as found:
        TASKS[task].load(mine)
    assert CORPORA[task].nothing.format(split) in str(found.value)
