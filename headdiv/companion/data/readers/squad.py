"""SQuAD v1.1: questions about paragraphs, whose answers are pieces of the paragraph.

The form is that of the data set's own files: an object whose "data" lists articles {title, paragraphs}, each
paragraph with its "context" and its questions "qas" {id, question, answers}, each answer with its "text" and
"answer_start", the offset in characters (Unicode code points) of that text in the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, StrictInt

from headdiv.companion.data.readers.lines import read_lines
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, parse
from headdiv.core.errors import DataError
from headdiv.core.files import parse_json


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


class _Paragraph(Form):
    context: str
    qas: list[dict[str, Any]]  # each in the form of `_Question`, unless it is a bad record


class _Article(Form):
    paragraphs: list[_Paragraph]


class _File(Form):
    data: list[_Article]


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
        value = parse_json("\n".join(read_lines(path)), path)
        questions += questions_from_json(value, str(path), bad_records, questions)
    return questions


def questions_from_json(
    value: Any, source: str, bad_records: BadRecords, before: Iterable[Question] = ()
) -> list[Question]:
    """The questions of a JSON value in SQuAD v1.1's form, in their order; ``source`` is its name in messages.

    Texts are kept as they are, white space and all, since offsets count in them. A question is a bad record when
    something of it is missing, empty or of the wrong type, when an answer is not found at its offset, or when an
    earlier question, or one of those ``before``, has its id (the earlier one stays).

    Raises:
        DataError: the value is not of SQuAD's form or holds no questions at all, or a question cannot be used and
            records are read strictly.
    """
    try:
        articles = parse(_File, value).data
    except BadRecordError as fault:
        raise DataError(f"{source}: not of SQuAD's form: {fault}") from None
    paragraphs = [paragraph for article in articles for paragraph in article.paragraphs]
    records = [(paragraph.context, record) for paragraph in paragraphs for record in paragraph.qas]
    if not records:
        raise DataError(f"{source}: the file holds no questions, expected at least one")
    questions: list[Question] = []
    ids = {question.id for question in before}
    for number, (context, record) in enumerate(records, start=1):
        with bad_records.at(f"{source}, question {number}, id {record.get('id')}"):
            question = _question(parse(_Question, record), context)
            if question.id in ids:
                raise BadRecordError("id given twice")
            questions.append(question)
            ids.add(question.id)
    return questions


def _question(record: _Question, context: str) -> Question:
    for answer in record.answers:
        start, text = answer.answer_start, answer.text
        found = context[max(start, 0) : max(start, 0) + len(text)]
        if start < 0 or found != text:
            raise BadRecordError("answer not at answer_start", f"expected {text!r} at {start}, found {found!r}")
    answers = tuple(Answer(answer.text, answer.answer_start) for answer in record.answers)
    return Question(record.id, record.question, context, answers)
