"""SQuAD v1.1: questions about paragraphs, whose answers are pieces of the paragraph.

The form is that of the data set's own files: an object whose "data" lists articles {title, paragraphs}, each
paragraph with its "context" and its questions "qas" {id, question, answers}, each answer with its "text" and
"answer_start", the offset in characters (Unicode code points) of that text in the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StrictInt

from headdiv.companion.data.readers.lines import PACKINGS, read_lines
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, is_empty, parse
from headdiv.core.errors import DataError
from headdiv.core.files import parse_json, read_json


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


class _Article(Form):
    paragraphs: list[Any]


class _Paragraph(Form):
    context: RecordText
    qas: list[Any]


class _Answer(Form):
    text: RecordText
    answer_start: StrictInt


class _Question(Form):
    id: RecordText
    question: RecordText
    answers: Annotated[list[_Answer], Field(min_length=1)]


def read_squad(paths: Sequence[Path], bad_records: BadRecords) -> list[Question]:
    """The questions of files, in UTF-8 and packed (``.gz``, ``.zst``) or not, one after the other.

    See `questions_from_json`. Raises DataError, also where a file is missing, damaged or not JSON.
    """
    questions: list[Question] = []
    for path in paths:
        questions += questions_from_json(_read(path), str(path), bad_records, questions)
    return questions


def _read(path: Path) -> Any:
    if path.suffix in PACKINGS:
        return parse_json("\n".join(read_lines(path)), path)
    return read_json(path)


def questions_from_json(
    value: Any, source: str, bad_records: BadRecords, before: Iterable[Question] = ()
) -> list[Question]:
    """The questions of a JSON value in SQuAD v1.1's form, in their order; ``source`` is its name in messages.

    Texts are kept as they are, white space and all, since offsets count in them. A question is a bad
    record, named by its id or, where it has none, by article and paragraph, when:

    - an answer starts outside the context or is not found at its offset;
    - it has no answer, or one of its answers or the question is empty or only white space;
    - an earlier question, or one of those ``before``, has its id (the earlier one stays);
    - something is missing, of the wrong type, or holds half a surrogate pair, which no UTF-8 file can hold.

    An article without paragraphs and a paragraph without a context or questions are one bad record each.

    Raises:
        DataError: the value is not of SQuAD's form at its top or holds no questions at all, or a record
            cannot be used and records are read strictly.
    """
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise DataError(f'{source}: not of SQuAD\'s form, expected an object with a list of articles under "data"')
    questions: list[Question] = []
    asked = {question.id: question.question for question in before}
    records = 0
    refused = bad_records.counts.total()  # of earlier files
    for place, context, record in _records(value["data"], source, bad_records):
        records += 1
        with bad_records.at(place):
            question = _question(parse(_Question, record), context)
            if (earlier := asked.get(question.id)) is not None:
                raise BadRecordError("id given twice", f"already given to the question {earlier!r}")
            questions.append(question)
            asked[question.id] = question.question
    if records == 0 and bad_records.counts.total() == refused:
        raise DataError(f"{source}: the file holds no questions, expected at least one")
    return questions


def _records(articles: list[Any], source: str, bad_records: BadRecords) -> Iterator[tuple[str, str, Any]]:
    """Each question as (place for messages, context, record), not checked yet."""
    for number, article in enumerate(articles, start=1):
        title = article.get("title") if isinstance(article, dict) else None
        place = f"{source}, article {title!r}" if isinstance(title, str) and title else f"{source}, article {number}"
        paragraphs: list[Any] = []
        with bad_records.at(place):
            paragraphs = parse(_Article, article).paragraphs
        for index, value in enumerate(paragraphs, start=1):
            where = f"{place}, paragraph {index}"
            with bad_records.at(where):
                paragraph = parse(_Paragraph, value)
                for position, record in enumerate(paragraph.qas, start=1):
                    identity = record.get("id") if isinstance(record, dict) else None
                    named = isinstance(identity, str) and not is_empty(identity)
                    name = f"{source}, question {identity}" if named else f"{where}, question {position}"
                    yield name, paragraph.context, record


def _question(record: _Question, context: str) -> Question:
    for answer in record.answers:
        start, text = answer.answer_start, answer.text
        if not 0 <= start < len(context):
            found = f"{start}, the context has {len(context)} characters"
            raise BadRecordError("answer_start outside the context", found)
        if (found := context[start : start + len(text)]) != text:
            expected = f"expected {text!r} at character {start}, found {found!r}"
            raise BadRecordError("answer not at answer_start", expected)
    answers = tuple(Answer(answer.text, answer.answer_start) for answer in record.answers)
    return Question(record.id, record.question, context, answers)
