"""The readers of XSum: JSON lines, the public archive, and what they say about damaged ones."""

import json
import tarfile

import pytest
from faulty import fails, pack, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data.readers import xsum
from headdiv.companion.data.readers.records import BadRecords
from headdiv.companion.data.readers.xsum import Article, read_archive, read_articles
from headdiv.core.errors import DataError

CAT, DOGS = ("1", "Ä cat sat.\nIt slept.", "A cat."), ("22", "Two dogs.", "Dogs.")


def article(id, document, summary):
    return Article(id=id, document=document, summary=summary)


ARTICLES = [article(*CAT), article(*DOGS)]


def summary_of(id, document, summary, folder="bbc-summary-data"):
    text = (
        f"[SN]URL[SN]\nhttp://example.org/{id}\n\n[SN]TITLE[SN]\nA title\n\n"
        f"[SN]FIRST-SENTENCE[SN]\n{summary}\n\n[SN]RESTBODY[SN]\n{document}\n"
    )
    return f"{folder}/{id}.summary", text.encode()


def put_archive(folder, *members, ids=("1", "22")):
    """An archive and a split file whose split "test" has the given ids."""
    archive, split_file = pack(folder / "x.tar.gz", members), folder / "split.json"
    split_file.write_text(json.dumps({"train": ["7"], "test": list(ids)}))
    return archive, split_file


def read(archive, split_file, strict=True):
    bad_records = BadRecords(strict)
    return list(read_archive(archive, split_file, "test", bad_records)), dict(bad_records.counts)


# --- JSON lines ---


def test_of_two_lines_with_one_id_the_first_stays(tmp_path):
    rows = [ARTICLES[0].model_dump_json(), ARTICLES[0].model_copy(update={"document": "Other."}).model_dump_json()]
    path = put(tmp_path / "a.jsonl", "\n".join(rows))
    with fails(f"{path}, line 2: id given twice ('1', first in line 1)"):
        read_articles(path, BadRecords())
    assert read_articles(path, BadRecords(strict=False)) == ARTICLES[:1]


# --- the public archive ---


def test_archive_gives_the_split_in_its_own_order(tmp_path):
    others = [summary_of(id, "No.", "No.") for id in ("7", "8")]
    folder = "bbc-summary-data", (tarfile.DIRTYPE, "")
    archive, split_file = put_archive(tmp_path, folder, others[0], summary_of(*DOGS), others[1], summary_of(*CAT))
    assert read(archive, split_file) == (ARTICLES[::-1], {})
    assert list(read_archive(str(archive), str(split_file), "train", BadRecords())) == [article("7", "No.", "No.")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")), min_size=1))
def test_archive_keeps_all_other_lines(tmp_path, lines):
    lines = [line for line in lines if "[SN]" not in line]
    kept = [line.removesuffix("\r") for line in lines if line.strip() and line.removesuffix("\r") not in xsum.BUTTONS]
    archive, split_file = put_archive(tmp_path, summary_of("1", "\n".join(lines), "A."), ids=["1"])
    articles, refused = read(archive, split_file, strict=False)
    if kept:
        assert articles == [article("1", "\n".join(kept).strip(), "A.")]
    else:
        assert (articles, refused) == ([], {'"document": input should not be empty': 1})


def test_no_name_of_a_member_is_used_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile = summary_of(*CAT, "../../..//etc/\x1b[2J")
    absolute = summary_of(*DOGS, "/tmp")
    decoys = [(f"{name}.summary", b"x") for name in ("..", "", "1.summary", "bbc-summary-data/._1")]
    put_archive(tmp_path, hostile, absolute, *decoys, ("1", b"x"), ("1.txt", b"x"))
    before = sorted(tmp_path.rglob("*"))
    assert read("x.tar.gz", "split.json") == (ARTICLES, {})
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_only_regular_members_count(tmp_path, kind):
    link = "bbc-summary-data/1.summary", (kind, "/etc/passwd")
    archive, split_file = put_archive(tmp_path, summary_of(*DOGS), link)
    with fails(f"{archive}: the archive lacks an article of the split (split test lists '1'; lacking in all: 1)"):
        read(archive, split_file)
    assert read(archive, split_file, strict=False) == (ARTICLES[1:], {"the archive lacks an article of the split": 1})


def test_lacking_articles_are_named_and_counted(tmp_path):
    archive, split_file = put_archive(tmp_path, summary_of(*DOGS), ids=["3", "22", "1"])
    got = []
    with fails(f"{archive}: the archive lacks an article of the split (split test lists '3'; lacking in all: 2)"):
        got.extend(read_archive(archive, split_file, "test", BadRecords()))
    assert got == ARTICLES[1:]  # all are given before any is missed
    assert read(archive, split_file, strict=False)[1] == {"the archive lacks an article of the split": 2}


def replaced(old, new):
    name, content = summary_of(*CAT)
    return name, content.replace(old, new)


BAD_MEMBERS = [
    (replaced(b"[SN]RESTBODY[SN]", b""), "the section [SN]RESTBODY[SN] is missing"),
    (replaced(b"[SN]FIRST-SENTENCE[SN]", b"x"), "the section [SN]FIRST-SENTENCE[SN] is missing"),
    (replaced(b"TITLE", b"RESTBODY"), "the section [SN]RESTBODY[SN] is given twice"),
    (replaced(CAT[1].encode(), b"Share this with\nEmail\n"), '"document": input should not be empty'),
    (replaced(b"A cat.", b" "), '"summary": input should not be empty'),
    (("1.summary", b""), "the section [SN]RESTBODY[SN] is missing"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD_MEMBERS, ids=[f"{n}" for n in range(len(BAD_MEMBERS))])
def test_unusable_members_are_named_or_counted(tmp_path, bad, reason):
    archive, split_file = put_archive(tmp_path, bad, summary_of(*DOGS))
    with fails(f"{archive}, 1.summary: {reason}"):
        read(archive, split_file)
    # an article that is there but unusable is not counted as lacking too
    assert read(archive, split_file, strict=False) == (ARTICLES[1:], {reason.partition(" (")[0]: 1})


def test_article_that_is_too_large(tmp_path, monkeypatch):
    archive, split_file = put_archive(tmp_path, summary_of(*CAT), summary_of(*DOGS))
    monkeypatch.setattr(xsum, "LARGEST", len(summary_of(*CAT)[1]) - 1)
    with fails(f"{archive}, 1.summary: the article is too large (expected at most {xsum.LARGEST} bytes)"):
        read(archive, split_file)
    assert read(archive, split_file, strict=False) == (ARTICLES[1:], {"the article is too large": 1})


@pytest.mark.parametrize("strict", [True, False])
def test_an_archive_that_is_cut_off_is_an_error_that_names_the_last_member(tmp_path, strict):
    bodies = [article(str(n), " ".join(str(k * n % 9973) for k in range(400)), "A.") for n in range(1, 200)]
    archive, split_file = put_archive(
        tmp_path, *(summary_of(**dict(body)) for body in bodies), ids=[body.id for body in bodies]
    )
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    got = []
    with pytest.raises(DataError, match=r"last member reached: 'bbc-summary-data/\d+\.summary'; delete the file and"):
        got.extend(read_archive(archive, split_file, "test", BadRecords(strict)))
    assert got == bodies[: len(got)]
    assert 50 < len(got) < 150


BAD_SPLITS = [
    (None, "no such file"),
    ('{"test": ["1"', "line 1: not valid JSON"),
    ('["1"]', "found ['1'], expected a JSON object of lists of ids"),
    ('{"b": [], "a": []}', "there is no split 'test', expected one of: a, b"),
    ('{"test": {"1": 2}}', "split test: found {'1': 2}, expected a list of ids"),
    ('{"test": ["1", 22]}', "split test, id 2: found 22, expected a string"),
]


@pytest.mark.parametrize(("content", "message"), BAD_SPLITS, ids=[f"{n}" for n in range(len(BAD_SPLITS))])
def test_bad_split_files_are_named_at_once(tmp_path, content, message):
    archive, split_file = put_archive(tmp_path, summary_of(*CAT), summary_of(*DOGS))
    split_file.unlink() if content is None else split_file.write_text(content)
    with pytest.raises(DataError) as caught:
        read_archive(archive, split_file, "test", BadRecords(strict=False))  # nothing is taken from it
    assert str(caught.value).startswith(str(split_file))
    assert message in str(caught.value)


def test_id_that_a_split_lists_twice(tmp_path):
    archive, split_file = put_archive(tmp_path, summary_of(*CAT), summary_of(*DOGS), ids=["1", "22", "1"])
    with fails(f"{split_file}, split test, id 3: the id is listed twice ('1')"):
        read_archive(archive, split_file, "test", BadRecords())
    assert read(archive, split_file, strict=False) == (ARTICLES, {"the id is listed twice": 1})
