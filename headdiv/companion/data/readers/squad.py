"""SQuAD v1.1: questions about paragraphs, whose answers are pieces of the paragraph; and files of predictions.

The form is that of the data set's own files: an object whose "data" lists articles {title, paragraphs}, each
paragraph with its "context" and its questions "qas" {id, question, answers}, each answer with its "text" and
"answer_start", the offset in characters (Unicode code points) of that text in the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headdiv.companion.data.readers.records import BadRecordError, BadRecords, field, kind_of, printable, text_field
from headdiv.core.errors import DataError
from headdiv.core.files import read_json


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


def read_squad(path: Path | str, bad_records: BadRecords) -> list[Question]:
    """Read a UTF-8 file; see `questions_from_json`. Raises DataError, also where it is missing or not JSON."""
    return questions_from_json(read_json(path), str(path), bad_records)


def questions_from_json(value: Any, source: str, bad_records: BadRecords) -> list[Question]:
    """The questions of a JSON value in SQuAD v1.1's form, in their order; ``source`` is its name in messages.

    Texts are kept as they are, white space and all, since offsets count in them. A question is a bad
    record, named by its id or, where it has none, by article and paragraph, when:

    - an answer starts outside the context or is not found at its offset;
    - it has no answer, or one of its answers, the question or the context is empty or only white space;
    - an earlier question has its id (the earlier one stays);
    - something is missing, of the wrong type, or holds half a surrogate pair, which no UTF-8 file can hold.

    An article without paragraphs or a paragraph without questions is one bad record.

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
        with bad_records.at(_name(record, source) or place):
            question = _question(record, paragraph)
            if question.id in questions:
                earlier = questions[question.id].question
                raise BadRecordError("id given twice", f"already given to the question {earlier!r}")
            questions[question.id] = question
    if records == 0 and bad_records.counts.total() == refused:
        raise DataError(f"{source}: the file holds no questions, expected at least one")
    return list(questions.values())


def read_predictions(path: Path | str) -> dict[str, str]:
    """Answers, as SQuAD's own scorer reads them: a JSON object from question id to text; a DataError for any other."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: found {kind_of(value)}, expected an object from question id to answer text")
    for identity, answer in value.items():
        if not isinstance(answer, str):
            where = f"{path}, question {printable(identity)}"
            raise DataError(f"{where}: the prediction is {kind_of(answer)}, expected text")
    return value


def _name(record: Any, source: str) -> str | None:
    """The name of a question by its id; None where that cannot be printed."""
    try:
        return f"{source}, question {text_field(record, 'id')}"
    except BadRecordError:
        return None


def _records(articles: list[Any], source: str, bad_records: BadRecords) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each question as (place for messages, paragraph, record), not checked yet."""
    for number, article in enumerate(articles, start=1):
        title = article.get("title") if isinstance(article, dict) else None
        place = f"{source}, article {title!r}" if isinstance(title, str) and title else f"{source}, article {number}"
        paragraphs = []
        with bad_records.at(place):
            paragraphs = field(article, "paragraphs", list)
        for index, paragraph in enumerate(paragraphs, start=1):
            where = f"{place}, paragraph {index}"
            records = []
            with bad_records.at(where):
                records = field(paragraph, "qas", list)
            for position, record in enumerate(records, start=1):
                yield f"{where}, question {position}", paragraph, record


def _question(record: Any, paragraph: dict[str, Any]) -> Question:
    identity, question = text_field(record, "id"), text_field(record, "question")
    context = text_field(paragraph, "context")
    if not (answers := tuple(_answer(answer, context) for answer in field(record, "answers", list))):
        raise BadRecordError("no answers", "expected at least one")
    return Question(identity, question, context, answers)


def _answer(record: Any, context: str) -> Answer:
    text, start = text_field(record, "text"), field(record, "answer_start", int)
    if not 0 <= start < len(context):
        raise BadRecordError("answer_start outside the context", f"{start}, the context has {len(context)} characters")
    found = context[start : start + len(text)]
    if found != text:
        raise BadRecordError("answer not at answer_start", f"expected {text!r} at character {start}, found {found!r}")
    return Answer(text, start)
