"""The reader of SQuAD's form, and what it says about damaged files and records."""

import copy
import gzip
import json

import pytest
from faulty import fails, put
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.readers.records import BadRecords, is_empty
from headdiv.companion.data.readers.squad import Answer, Question, questions_from_json, read_squad

CONTEXT = "Graz lies on the Mur. Its clock tower is 28 metres high."
GOOD = {
    "version": "1.1",
    "data": [
        {
            "title": "Graz",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "g1",
                            "question": "Which river?",
                            "answers": [{"text": "the Mur", "answer_start": 13}, {"text": "Mur", "answer_start": 17}],
                        },
                        {"id": "g2", "question": "How high?", "answers": [{"text": "28", "answer_start": 41}]},
                    ],
                }
            ],
        }
    ],
}
RIVER = Question("g1", "Which river?", CONTEXT, (Answer("the Mur", 13), Answer("Mur", 17)))
HEIGHT = Question("g2", "How high?", CONTEXT, (Answer("28", 41),))


def changed(keys, value):
    """GOOD with what stands under ``keys``, from the first paragraph down, replaced (...: taken out)."""
    content = copy.deepcopy(GOOD)
    at = content["data"][0]["paragraphs"][0]
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    if value is ...:
        del at[keys[-1]]
    return content


def test_questions_with_context_and_all_answers(tmp_path):
    path = put(tmp_path / "a.json", GOOD)
    questions = read_squad([path], BadRecords())
    assert questions == [RIVER, HEIGHT]
    assert questions == questions_from_json(GOOD, "made", BadRecords())
    assert questions[0].context is questions[1].context
    assert all(q.context[a.start : a.start + len(a.text)] == a.text for q in questions for a in q.answers)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_not_part_of_the_file(tmp_path, pack):
    path = tmp_path / ("a.json" if pack is bytes else "a.json.gz")
    path.write_bytes(pack(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()))
    assert read_squad([path], BadRecords()) == [RIVER, HEIGHT]


def test_several_files_are_read_in_their_order_packed_or_not(tmp_path):
    plain = put(tmp_path / "a.json", GOOD)
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(changed(("qas", 0, "id"), "h1")).encode()))
    lenient = BadRecords(strict=False)
    found = read_squad([packed, plain], lenient)
    assert [question.id for question in found] == ["h1", "g2", "g1"]
    assert lenient.counts == {"id given twice": 1}
    with fails(f"{plain}, question 2, id g2: id given twice"):
        read_squad([packed, plain], BadRecords())
    packed.write_bytes(gzip.compress(b'{"data": ['))
    with fails(f"{packed}, line 1: not valid JSON"):
        read_squad([packed], BadRecords())


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")), st.data())
def test_offsets_count_characters_whatever_the_text(before, after, data):
    context = f"{before}x{after}"
    start = data.draw(st.integers(0, len(context) - 1))
    text = context[start : data.draw(st.integers(start + 1, len(context)))]
    record = {"id": "1", "question": "?", "answers": [{"text": text, "answer_start": start}]}
    paragraph = {"context": context, "qas": [record]}
    value = json.loads(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    if not is_empty(text):
        assert questions_from_json(value, "made", BadRecords()) == [Question("1", "?", context, (Answer(text, start),))]
    else:
        with fails('made, question 1, id 1: "answers.0.text": input should not be empty'):
            questions_from_json(value, "made", BadRecords())


ANSWER = ("qas", 0, "answers", 0)
FAULTS = [
    ((*ANSWER, "answer_start"), 56, "answer not at answer_start", "expected 'the Mur' at 56, found ''"),
    ((*ANSWER, "answer_start"), -1, "answer not at answer_start", "expected 'the Mur' at -1"),
    ((*ANSWER, "answer_start"), 12, "answer not at answer_start", "expected 'the Mur' at 12, found ' the Mu'"),
    ((*ANSWER, "answer_start"), "13", '"answers.0.answer_start": input should be a valid integer', "found '13'"),
    (("qas", 0, "answers"), [], '"answers": list should have at least 1 item after validation, not 0', "found []"),
    (("qas", 0, "answers"), ..., 'no "answers"', "found {"),
    (("qas", 0, "question"), " \n", '"question": input should not be empty', ""),
    (("qas", 0, "id"), ..., 'no "id"', "found {"),
]


@pytest.mark.parametrize(("keys", "value", "reason", "found"), FAULTS)
def test_a_question_that_cannot_be_used(tmp_path, keys, value, reason, found):
    path = put(tmp_path / "a.json", changed(keys, value))
    with fails(f"{path}, question 1, id {'None' if 'id' in keys else 'g1'}: {reason} ({found}"):
        read_squad([path], BadRecords())
    lenient = BadRecords(strict=False)
    assert read_squad([path], lenient) == [HEIGHT]
    assert lenient.counts == {reason: 1}


# ---- files as a whole


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([], "input should be a valid dictionary"),
        ({"data": {}}, '"data": input should be a valid list'),
        ({"data": [{"title": "Linz"}]}, 'no "data.0.paragraphs"'),
        ({"data": [{"paragraphs": [{"context": "c"}]}]}, 'no "data.0.paragraphs.0.qas"'),
    ],
)
def test_other_json_is_an_error_even_when_lenient(tmp_path, value, fault):
    path = put(tmp_path / "a.json", value)
    with fails(f"{path}: not of SQuAD's form: {fault}"):
        read_squad([path], BadRecords(strict=False))


def test_a_file_without_questions():
    with fails("a.json: the file holds no questions, expected at least one"):
        questions_from_json({"data": [{"title": "a", "paragraphs": []}]}, "a.json", BadRecords(strict=False))
