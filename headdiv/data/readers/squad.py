"""SQuAD v1.1: questions about paragraphs, whose answers are pieces of the paragraph; and files of predictions.

The form is that of the data set's own files: an object whose "data" lists articles {title, paragraphs}, each
paragraph with its "context" and its questions "qas" {id, question, answers}, each answer with its "text" and
"answer_start", the offset in characters (Unicode code points) of that text in the context.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.data.readers.bad_records import BadRecords

_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a fractional number"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Answer(NamedTuple):
    """A gold answer: its text, and the offset in characters at which it starts in the context."""

    text: str
    start: int


class Question(NamedTuple):
    """A question, the paragraph it is about (the same string for all its questions) and one or more gold answers."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]


class _Fault(Exception):
    """Why a record cannot be used: the two last arguments of ``BadRecords.add``."""


def read_squad(path: Path | str, bad_records: BadRecords) -> list[Question]:
    """Read a file in SQuAD v1.1's form; see `questions_from_json`.

    Args:
        path: the file, UTF-8.
        bad_records: what becomes of questions that cannot be used.

    Raises:
        DataError: the file is missing, unreadable, not UTF-8, not JSON or not of SQuAD's form.
    """
    return questions_from_json(_load(path), str(path), bad_records)


def questions_from_json(value: Any, source: str, bad_records: BadRecords) -> list[Question]:
    """The questions of a JSON value in SQuAD v1.1's form, in the order in which they stand there.

    Texts are kept as they are, white space and all, since offsets count in them. A question is refused as a
    whole, named by its id or, where it has none, by article and paragraph, when:

    - an answer starts outside the context or does not stand where it is said to;
    - it has no answer, or one of its answers, the question or the context is empty or only white space;
    - an earlier question has its id (the earlier one stays);
    - something is missing, of the wrong type, or holds half a surrogate pair, which no UTF-8 file can hold.

    An article without paragraphs or a paragraph without questions is refused as one record.

    Args:
        value: what a JSON file holds, or the same made by a program.
        source: a name for messages, such as the file's path.
        bad_records: what becomes of records that cannot be used.

    Raises:
        DataError: the value is not of SQuAD's form at its top or holds no questions at all, or a record
            cannot be used and records are read strictly.
    """
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise DataError(f'{source}: not of SQuAD\'s form, expected an object with a list of articles under "data"')
    questions: dict[str, Question] = {}
    records = 0
    refused = bad_records.counts.total()  # of earlier files
    for place, paragraph, record in _records(value["data"], source, bad_records):
        records += 1
        try:
            question = _question(record, paragraph)
            if question.id in questions:
                raise _Fault("id given twice", f"already given to the question {questions[question.id].question!r}")
        except _Fault as fault:
            identity = record.get("id") if isinstance(record, dict) else None
            named = isinstance(identity, str) and identity and not _SURROGATE.search(identity)
            bad_records.add(f"{source}, question {identity}" if named else place, *fault.args)
        else:
            questions[question.id] = question
    if records == 0 and bad_records.counts.total() == refused:
        raise DataError(f"{source}: the file holds no questions, expected at least one")
    return list(questions.values())


def write_predictions(path: Path | str, predictions: Mapping[str, str]) -> None:
    """Write answers as SQuAD's own scorer reads them: a JSON object from question id to answer text.

    Written atomically, in the order of the mapping.
    """
    write_json(path, dict(predictions))


def read_predictions(path: Path | str) -> dict[str, str]:
    """Read answers from a JSON object from question id to answer text.

    Raises:
        DataError: the file is missing, unreadable, not UTF-8, not JSON or not such an object.
    """
    value = _load(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: found {_kind(value)}, expected an object from question id to answer text")
    for identity, answer in value.items():
        if not isinstance(answer, str):
            raise DataError(f"{path}, question {identity}: the prediction is {_kind(answer)}, expected text")
    return value


def _load(path: Path | str) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise DataError(f"{path}: cannot be read (nested too deeply)") from None


def _records(articles: list[Any], source: str, bad_records: BadRecords) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each question as (place for messages, paragraph, record), nothing of it looked at yet."""
    for number, article in enumerate(articles, start=1):
        title = article.get("title") if isinstance(article, dict) else None
        place = f"{source}, article {title!r}" if isinstance(title, str) and title else f"{source}, article {number}"
        try:
            paragraphs = _field(article, "paragraphs", list)
        except _Fault as fault:
            bad_records.add(place, *fault.args)
            continue
        for index, paragraph in enumerate(paragraphs, start=1):
            where = f"{place}, paragraph {index}"
            try:
                records = _field(paragraph, "qas", list)
            except _Fault as fault:
                bad_records.add(where, *fault.args)
                continue
            for position, record in enumerate(records, start=1):
                yield f"{where}, question {position}", paragraph, record


def _question(record: Any, paragraph: dict[str, Any]) -> Question:
    identity, question = _text(record, "id"), _text(record, "question")
    context = _text(paragraph, "context")
    answers = tuple(_answer(answer, context) for answer in _field(record, "answers", list))
    if not answers:
        raise _Fault("no answers", "expected at least one")
    return Question(identity, question, context, answers)


def _answer(record: Any, context: str) -> Answer:
    text, start = _text(record, "text"), _field(record, "answer_start", int)
    if not 0 <= start < len(context):
        raise _Fault("answer_start outside the context", f"{start}, the context has {len(context)} characters")
    found = context[start : start + len(text)]
    if found != text:
        raise _Fault("answer not at answer_start", f"expected {text!r} at character {start}, found {found!r}")
    return Answer(text, start)


def _text(record: Any, key: str) -> str:
    text = _field(record, key, str)
    if not text.strip():
        raise _Fault(f'empty "{key}"', repr(text))
    if half := _SURROGATE.search(text):
        raise _Fault(f'"{key}" is not valid Unicode', f"half a surrogate pair at character {half.start()}")
    return text


def _field(record: Any, key: str, kind: type) -> Any:
    if not isinstance(record, dict):
        raise _Fault("wrong type", f'{_kind(record)} in place of an object with "{key}"')
    if key not in record:
        raise _Fault(f'no "{key}"', f"expected {_KINDS[kind]}")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):  # a bool is an int to Python
        raise _Fault("wrong type", f'"{key}" is {_kind(value)}, expected {_KINDS[kind]}')
    return value


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _KINDS.get(type(value), type(value).__name__)
