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
    return read_archive(archive, split_file, "test", bad_records), dict(bad_records.counts)


# --- JSON lines ---


def test_of_two_lines_with_one_id_the_first_stays(tmp_path):
    rows = [ARTICLES[0].model_dump_json(), ARTICLES[0].model_copy(update={"document": "Other."}).model_dump_json()]
    path = put(tmp_path / "a.jsonl", "\n".join(rows))
    with fails(f"{path}, line 2: id given twice ('1')"):
        read_articles(path, BadRecords())
    assert read_articles(path, BadRecords(strict=False)) == ARTICLES[:1]


# --- the public archive ---


def test_archive_gives_the_split_in_the_order_of_ids(tmp_path):
    others = [summary_of(id, "No.", "No.") for id in ("7", "8")]
    folder = "bbc-summary-data", (tarfile.DIRTYPE, "")
    archive, split_file = put_archive(tmp_path, folder, others[0], summary_of(*DOGS), others[1], summary_of(*CAT))
    assert read(archive, split_file) == (ARTICLES, {})
    assert read_archive(archive, split_file, "train", BadRecords()) == [article("7", "No.", "No.")]


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


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_only_regular_members_count_and_lacking_articles_are_named(tmp_path, kind):
    link = "bbc-summary-data/1.summary", (kind, "/etc/passwd")
    archive, split_file = put_archive(tmp_path, summary_of(*DOGS), link)
    with fails(f"{archive}, 1.summary: the archive lacks an article of the split; data.strict: false"):
        read(archive, split_file)
    assert read(archive, split_file, strict=False) == (ARTICLES[1:], {"the archive lacks an article of the split": 1})


def replaced(old, new):
    name, content = summary_of(*CAT)
    return name, content.replace(old, new)


BAD_MEMBERS = [
    (replaced(b"[SN]RESTBODY[SN]", b""), "the section [SN]RESTBODY[SN] is missing"),
    (replaced(b"[SN]FIRST-SENTENCE[SN]", b"x"), "the section [SN]FIRST-SENTENCE[SN] is missing"),
    (replaced(b"TITLE", b"RESTBODY"), "the section [SN]RESTBODY[SN] is given twice"),
    (replaced(CAT[1].encode(), b"Share this with\nEmail\n"), '"document": input should not be empty'),
    (replaced(b"A cat.", b" "), '"summary": input should not be empty'),
]


@pytest.mark.parametrize(("bad", "reason"), BAD_MEMBERS, ids=[f"{n}" for n in range(len(BAD_MEMBERS))])
def test_unusable_members_are_named_or_counted(tmp_path, bad, reason):
    archive, split_file = put_archive(tmp_path, bad, summary_of(*DOGS))
    with fails(f"{archive}, {bad[0]}: {reason}"):
        read(archive, split_file)
    # an article that is there but unusable is not counted as lacking too
    assert read(archive, split_file, strict=False) == (ARTICLES[1:], {reason.partition(" (")[0]: 1})


def test_a_split_that_is_not_there_is_named(tmp_path):
    archive, split_file = put_archive(tmp_path, summary_of(*CAT))
    with fails(f"{split_file}: there is no split 'valid', expected one of: test, train"):
        read_archive(archive, split_file, "valid", BadRecords())
