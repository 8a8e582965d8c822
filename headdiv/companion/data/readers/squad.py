"""SQuAD v1.1: questions about paragraphs, whose answers are pieces of the paragraph.

The form is that of the data set's own files: an object whose "data" lists articles {title, paragraphs}, each
paragraph with its "context" and its questions "qas" {id, question, answers}, each answer with its "text" and
"answer_start", the offset in characters (Unicode code points) of that text in the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headdiv.companion.data.readers.lines import BadRecordError, BadRecords, read_lines, text_of
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


def read_squad(paths: Sequence[Path], bad_records: BadRecords) -> list[Question]:
    """The questions of files, in UTF-8 and packed (``.gz``, ``.zst``) or not, one after the other.

    Texts keep their white space, since offsets are counted in it too. A question is a bad record when one of its
    fields is missing or empty, when an answer is not found at its offset, or when an earlier question has its id (the
    earlier one stays).

    Raises:
        DataError: a file is missing, damaged or not of SQuAD's form, or holds no questions at all; or a question
            cannot be used and records are read strictly.
    """
    questions: dict[str, Question] = {}
    for path in dict.fromkeys(paths):  # patterns may match a file twice
        articles = parse_json("\n".join(read_lines(path)), path)
        try:
            paragraphs = [paragraph for article in articles["data"] for paragraph in article["paragraphs"]]
            records = [(record, paragraph["context"]) for paragraph in paragraphs for record in paragraph["qas"]]
            fits = all(isinstance(record, dict) and isinstance(context, str) for record, context in records)
        except (KeyError, TypeError):
            fits = False
        if not fits:
            raise DataError(f"{path}: not of SQuAD's form, expected data: paragraphs: context and qas")
        if not records:
            raise DataError(f"{path}: the file holds no questions, expected at least one")
        for number, (record, context) in enumerate(records, start=1):
            with bad_records.at(f"{path}, question {number}, id {record.get('id')}"):
                question = _question(record, context)
                if question.id in questions:
                    raise BadRecordError("id given twice")
                questions[question.id] = question
    return list(questions.values())


def _question(record: dict[str, Any], context: str) -> Question:
    given, answers = record.get("answers") or [], []
    if not isinstance(given, list) or not all(isinstance(answer, dict) for answer in given):
        raise BadRecordError("answers not a list of objects")
    for answer in given:
        text, start = text_of(answer, "text"), answer.get("answer_start")
        if not isinstance(start, int) or start < 0 or not context.startswith(text, start):
            raise BadRecordError("answer not at answer_start")
        answers.append(Answer(text, start))
    if not answers:
        raise BadRecordError("no answers")
    return Question(text_of(record, "id"), text_of(record, "question"), context, tuple(answers))
