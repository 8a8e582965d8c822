"""The readers of XSum and SQuAD beyond what all readers promise."""

import copy
import json
import tarfile

import pytest
from faulty import fails, news, pack, put

from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.readers.squad import Answer, Question, read_squad
from headdiv.companion.data.readers.xsum import Article, read_archive, read_articles

CAT, DOGS = Article("1", "Ä cat sat.\nIt slept.", "A cat."), Article("22", "Two dogs.", "Dogs.")


def put_archive(folder, *members, ids=("1", "22")):
    """An archive and a split file whose split "test" has the given ids."""
    archive, split_file = pack(folder / "x.tar.gz", members), folder / "split.json"
    split_file.write_text(json.dumps({"train": ["7"], "test": list(ids)}))
    return archive, split_file


def read(archive, split_file, strict=True):
    bad_records = BadRecords(strict)
    return read_archive(archive, split_file, "test", bad_records), dict(bad_records.counts)


def test_of_two_lines_with_one_id_the_first_stays(tmp_path):
    rows = [json.dumps(article._asdict()) for article in (CAT, CAT._replace(document="Other."))]
    path = put(tmp_path / "a.jsonl", "\n".join(rows))
    with fails(f"{path}, line 2: id given twice"):
        read_articles(path, BadRecords())
    assert read_articles(path, BadRecords(strict=False)) == [CAT]


def test_archive_gives_the_split_in_the_order_of_ids(tmp_path):
    others = [news(id, "No.", "No.") for id in ("7", "8")]
    folder = "bbc-summary-data", (tarfile.DIRTYPE, "")
    cat = news(CAT.id, f"Share this with\r\n{CAT.document}\n\nLinkedIn", CAT.summary)  # buttons of the web page
    archive, split_file = put_archive(tmp_path, folder, others[0], news(*DOGS), others[1], cat)
    assert read(archive, split_file) == ([CAT, DOGS], {})
    assert read_archive(archive, split_file, "train", BadRecords()) == [Article("7", "No.", "No.")]
    with fails(f"{split_file}: there is no split 'valid', expected one of: test, train"):
        read_archive(archive, split_file, "valid", BadRecords())


def test_only_regular_members_count_and_lacking_articles_are_named(tmp_path):
    link = "bbc-summary-data/1.summary", (tarfile.SYMTYPE, "/etc/passwd")
    archive, split_file = put_archive(tmp_path, news(*DOGS), link)
    with fails(f"{archive}, 1.summary: the archive lacks an article of the split; data.strict: false"):
        read(archive, split_file)
    assert read(archive, split_file, strict=False) == ([DOGS], {"the archive lacks an article of the split": 1})


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"[SN]RESTBODY[SN]", b"", "the section [SN]RESTBODY[SN] is missing"),
        (CAT.document.encode(), b"Share this with\nEmail\n", 'no text under "RESTBODY"'),
    ],
)
def test_unusable_members_are_named_or_counted(tmp_path, old, new, reason):
    name, content = news(*CAT)
    archive, split_file = put_archive(tmp_path, (name, content.replace(old, new)), news(*DOGS))
    with fails(f"{archive}, {name}: {reason}"):
        read(archive, split_file)
    # an article that is there but unusable is not counted as lacking too
    assert read(archive, split_file, strict=False) == ([DOGS], {reason: 1})


# ---- questions

CONTEXT = "Graz lies on the Mur. Its clock tower is 28 metres high."
RIVER = Question("g1", "Which river?", CONTEXT, (Answer("the Mur", 13), Answer("Mur", 17)))
HEIGHT = Question("g2", "How high?", CONTEXT, (Answer("28", 41),))
GOOD = {
    "context": CONTEXT,
    "qas": [
        {
            "id": question.id,
            "question": question.question,
            "answers": [{"text": text, "answer_start": start} for text, start in question.answers],
        }
        for question in (RIVER, HEIGHT)
    ],
}


def put_questions(path, paragraph):
    return put(path, json.dumps({"data": [{"title": "Graz", "paragraphs": [paragraph]}]}))


def test_several_files_are_read_in_their_order_with_all_answers(tmp_path):
    plain = put_questions(tmp_path / "a.json", GOOD)
    questions = read_squad([plain], BadRecords())
    assert questions == [RIVER, HEIGHT]
    assert questions[0].context is questions[1].context
    other = copy.deepcopy(GOOD)
    other["qas"][0]["id"] = "h1"
    packed = put_questions(tmp_path / "b.json.gz", other)
    lenient = BadRecords(strict=False)
    assert [question.id for question in read_squad([packed, plain], lenient)] == ["h1", "g2", "g1"]
    assert lenient.counts == {"id given twice": 1}
    with fails(f"{plain}, question 2, id g2: id given twice"):
        read_squad([packed, plain], BadRecords())


ANSWER = ("answers", 0)


@pytest.mark.parametrize(
    ("keys", "value", "reason"),
    [
        ((*ANSWER, "answer_start"), -1, "answer not at answer_start"),
        ((*ANSWER, "answer_start"), "13", "answer not at answer_start"),
        (("answers",), [], "no answers"),
        (("answers",), {"text": ["the Mur"], "answer_start": [13]}, "answers not a list of objects"),
        (("question",), " \n", 'no text under "question"'),
        (("id",), None, 'no text under "id"'),
    ],
)
def test_a_question_that_cannot_be_used(tmp_path, keys, value, reason):
    paragraph = copy.deepcopy(GOOD)
    record = paragraph["qas"][0]
    for key in keys[:-1]:
        record = record[key]
    record[keys[-1]] = value
    path = put_questions(tmp_path / "a.json", paragraph)
    with fails(f"{path}, question 1, id {value if 'id' in keys else 'g1'}: {reason}"):
        read_squad([path], BadRecords())
    lenient = BadRecords(strict=False)
    assert read_squad([path], lenient) == [HEIGHT]
    assert lenient.counts == {reason: 1}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([], "not of SQuAD's form"),
        ({"data": [{"paragraphs": [{"context": "c", "qas": ["x"]}]}]}, "not of SQuAD's form"),
        ({"data": [{"paragraphs": [GOOD | {"context": None}]}]}, "not of SQuAD's form"),
        ({"data": []}, "the file holds no questions, expected at least one"),
    ],
)
def test_other_json_is_an_error_even_when_lenient(tmp_path, value, fault):
    path = put(tmp_path / "a.json", json.dumps(value))
    with fails(f"{path}: {fault}"):
        read_squad([path], BadRecords(strict=False))
