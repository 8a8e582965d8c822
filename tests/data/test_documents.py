"""The streaming reader of documents, and what it says about records and files that cannot be used."""

import json

import pytest
from faulty import PACKINGS, fails, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data.readers import lines
from headdiv.companion.data.readers.documents import SLIMPAJAMA, read_documents
from headdiv.companion.data.readers.records import BadRecords, is_empty

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def line(text, name=None):
    return json.dumps({"text": text} | ({"meta": {"redpajama_set_name": SLIMPAJAMA[name]}} if name else {})) + "\n"


def read(path, **options):
    return list(read_documents(path, BadRecords(), **options))


def read_leniently(path, **options):
    bad_records = BadRecords(strict=False)
    return list(read_documents(path, bad_records, **options)), dict(bad_records.counts)


# --- forms ---


texts = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: not is_empty(text))


@in_folder
@given(st.lists(st.tuples(texts, st.sampled_from(sorted(SLIMPAJAMA)))), st.sampled_from(PACKINGS), st.integers(1, 9))
def test_every_document_is_given_once_by_its_own_source(tmp_path, documents, packing, piece):
    content = "".join(line(text, name) for text, name in documents) + "\n"
    path = put(tmp_path / f"a.jsonl{packing}", content, 2)
    with pytest.MonkeyPatch.context() as patch:  # lines that lie across pieces
        patch.setattr(lines, "PIECE", piece)
        found = {name: read(path, source=name) for name in SLIMPAJAMA}
    for name, given_ in found.items():
        assert given_ == [(number, text) for number, (text, own) in enumerate(documents, 1) if own == name]


paragraphs = st.lists(st.text("aé \t\n=", max_size=12), max_size=5).map("\n".join)


@in_folder
@given(paragraphs, st.sampled_from([None, "^="]), st.integers(1, 5))
def test_plain_text_as_its_literal_twin(tmp_path, content, document_start, piece):
    expected = [[]]
    for row in content.split("\n"):
        if (not row.strip()) if document_start is None else row.startswith("="):
            expected.append([])
        expected[-1].append(row)
    trimmed = []
    for rows in expected:
        full = [number for number, row in enumerate(rows) if row.strip()]
        if full:
            trimmed.append("\n".join(rows[full[0] : full[-1] + 1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "PIECE", piece)
        assert read(put(tmp_path / "a.txt", content + "\n"), document_start=document_start) == list(
            enumerate(trimmed, start=1)
        )


@in_folder
@given(st.data(), st.sampled_from(["a.jsonl.zst", "a.txt.gz"]))
def test_reading_resumes_after_any_document(tmp_path, data, name):
    rows = data.draw(st.lists(st.sampled_from(["a", "b c", "", "{"]), min_size=1))
    jsonl = name.startswith("a.jsonl")
    content = "".join(line(row) if jsonl and row not in ("", "{") else f"{row}\n" for row in rows) + "\n"
    path = put(tmp_path / name, content)
    everything, counts = read_leniently(path)
    for index, (after, _) in enumerate(everything):
        rest, later = read_leniently(path, start=after)
        assert rest == everything[index + 1 :]
        assert sum(later.values()) <= sum(counts.values())


# --- SlimPajama's sets ---


@pytest.mark.parametrize(
    ("meta", "found"), [(None, "None"), ({}, "None"), ({"redpajama_set_name": "RedPajamaNews"}, "'RedPajamaNews'")]
)
def test_a_set_that_is_not_named_is_an_error(tmp_path, meta, found):
    path = put(tmp_path / "a.jsonl", line("a", "C4") + json.dumps({"text": "b", "meta": meta}) + "\n")
    with fails(f'{path}, line 2: "meta" does not name one of SlimPajama\'s sets (found {found}); data.strict: false'):
        read(path, source="C4")
    assert read(path) == [(1, "a"), (2, "b")]  # nobody asked for a set


def test_plain_text_has_no_sources():
    with fails("a.txt.zst: plain text does not say which source a document is of, expected .jsonl"):
        list(read_documents("a.txt.zst", BadRecords(), source="C4"))


@pytest.mark.parametrize("packing", PACKINGS)
def test_json_lines_are_not_read_as_plain_text(tmp_path, packing):
    path = put(tmp_path / f"c4-train.00000-of-01024.json{packing}", line("One.") + line("Two."))
    with fails(f"{path}: found a name in .json, expected .jsonl for JSON lines, or .txt for plain text"):
        read(path)
