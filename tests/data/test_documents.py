"""The streaming reader of documents, and what it says about records and files that cannot be used."""

import json

import pytest
from faulty import PACKINGS, fails, packed, put
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
        patch.setattr(lines, "PACKED_PIECE", piece)
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


def test_a_document_that_quotes_the_key_is_not_taken_for_one(tmp_path):
    quote = '{"meta": {"redpajama_set_name": "RedPajamaC4"}}'
    records = [
        {"meta": {"redpajama_set_name": "RedPajamaBook"}, "text": quote},
        {"meta": {"redpajama_set_name": "RedPajamaBook"}, "text": "redpajama_set_name", "id": "redpajama_set_name"},
    ]
    path = put(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert read(path, source="Books") == [(1, quote), (2, "redpajama_set_name")]
    assert read(path, source="C4") == []


def test_spaces_and_escapes_in_the_key_do_not_matter(tmp_path):
    path = put(
        tmp_path / "a.jsonl",
        '{"text":"a","meta":{"redpajama_set_name" :\t"RedPajamaC4"}}\n'
        '{"text":"b","meta":{"redpajama_set\\u005fname":"RedPajamaC4"}}\n',
    )
    assert read(path, source="C4") == [(1, "a"), (2, "b")]
    assert read(path, source="Books") == []


@pytest.mark.parametrize(
    ("meta", "found"), [(None, "None"), ({}, "None"), ({"redpajama_set_name": "RedPajamaNews"}, "'RedPajamaNews'")]
)
def test_a_set_that_is_not_named_is_an_error(tmp_path, meta, found):
    path = put(tmp_path / "a.jsonl", line("a", "C4") + json.dumps({"text": "b", "meta": meta}) + "\n")
    with fails(f'{path}, line 2: "meta" does not name one of SlimPajama\'s sets (found {found}); data.strict: false'):
        read(path, source="C4")
    assert read(path) == [(1, "a"), (2, "b")]  # nobody asked for a set


def test_a_line_cut_in_half_is_refused_once_its_set_is_known_and_by_all_otherwise(tmp_path):
    known = '{"meta": {"redpajama_set_name": "RedPajamaC4"}, "text": "cut he'
    path = put(tmp_path / "a.jsonl", line("a", "Books") + known)
    assert read(path, source="Books") == [(1, "a")]
    with fails(f"{path}, line 2: not valid JSON (EOF while parsing a string at line 1 column 63)"):
        read(path, source="C4")
    path = put(tmp_path / "b.jsonl", line("a", "Books") + line("cut here", "C4")[:14])
    for name in SLIMPAJAMA:
        with fails(f"{path}, line 2: not valid JSON"):
            read(path, source=name)


def test_an_unknown_source_and_plain_text_are_refused():
    with fails("'News' is not a source of SlimPajama, expected one of CommonCrawl, C4, GitHub, "):
        read_documents("a.jsonl", BadRecords(), source="News")
    with fails("a.txt.zst: plain text does not say which source a document is of, expected .jsonl"):
        read_documents("a.txt.zst", BadRecords(), source="C4")


@pytest.mark.parametrize("packing", PACKINGS)
def test_json_lines_are_not_read_as_plain_text(tmp_path, packing):
    path = put(tmp_path / f"c4-train.00000-of-01024.json{packing}", line("One.") + line("Two."))
    with fails(f"{path}: found a name in .json, expected .jsonl for JSON lines, or .txt for plain text"):
        read(path)


# --- records that cannot be used ---


def test_a_record_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 30)
    reason = "longer than 30 bytes"
    fits = "x" * 18  # 30 bytes with the 12 around it
    for rows in ([line("a"), line("x" * 19), line(fits)], [line("a"), line("x" * 500), line(fits)]):
        path = put(tmp_path / "a.jsonl", "".join(rows))
        assert read_leniently(path) == ([(1, "a"), (3, fits)], {reason: 1})
    with fails(f"{path}, line 2: longer than 30 bytes; data.strict: false"):
        read(path)
    path = put(tmp_path / "a.txt", f"a\n\n{'x' * 10}\n{'y' * 20}\nz\n\n{'x' * 40}\n\nb\n\n{'y' * 70}")
    assert read_leniently(path) == ([(1, "a"), (4, "b")], {reason: 3})
    with fails(f"{path}, document 2 (from line 3): longer than 30 bytes; data.strict: false"):
        read(path)


# --- files that cannot be used ---


def numbered(count):
    return "".join(line(f"document {n} {n * 7919 % 10007}") for n in range(count))


@pytest.mark.parametrize("packing", [".gz", ".zst"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_stream_that_is_cut_off_counts_as_a_record(tmp_path, packing, name):
    content = numbered(5000) if name == "a.jsonl" else numbered(5000).replace("\n", "\n\n")
    whole = packed(content.encode(), packing, 3)
    path = tmp_path / (name + packing)
    path.write_bytes(whole)
    everything = read(path)
    path.write_bytes(whole[: len(whole) // 2])
    found, counts = read_leniently(path)
    assert 1000 < len(found) < 4000  # the last record is cut, and not given
    assert found == everything[: len(found)]
    assert counts == {"the packed stream is cut off or damaged": 1}
    with fails(f"after {'line' if name == 'a.jsonl' else 'document'} {len(found)}: the packed stream is cut off"):
        read(path)


@pytest.mark.parametrize(("name", "what"), [("a.jsonl.zst", "lines"), ("a.txt", "documents")])
def test_a_start_after_the_end_says_that_the_file_has_changed(tmp_path, name, what):
    path = put(tmp_path / name, line("a") + "\n" * (what == "documents") + line("b"))
    assert read(path, start=2) == []
    with fails(f"{path}: found 2 {what}, expected to go on after 3: the file has changed"):
        read(path, start=3)
