"""The reader of lines that all formats share, and the streaming reader of documents."""

import json

import pytest
from faulty import PACKINGS, fails, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data.readers import lines
from headdiv.companion.data.readers.documents import SLIMPAJAMA, read_documents
from headdiv.companion.data.readers.lines import BadRecordError, BadRecords, is_empty, json_object, read_lines, text_of

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Ein Mann läuft.\nZwei Hunde.", ["Ein Mann läuft.", "Zwei Hunde."]),
        ("one\n\n three \n", ["one", "", " three "]),
        ("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh\r\nnext\r\r\nlast\r",
         ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh", "next\r", "last"]),
        ("\ufeffone\n\ufefftwo\n", ["one", "\ufefftwo"]),
    ],
)  # fmt: skip
def test_lines_of_files_plain_and_packed(tmp_path, packing, parts, content, expected):
    assert read_lines(put(tmp_path / f"a{packing}", content, parts)) == expected


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"text": "cut he', "not valid JSON"),
        (b'["a"]', "not a JSON object"),
        (b'{"text": 0}', '"text" is not a text'),
        (b'{"text": null}', 'no text under "text"'),
        (b'{"text": " \\n\\u00a0"}', 'no text under "text"'),
    ],
)
def test_faults_of_json_records(content, fault):
    with fails(fault, BadRecordError):
        text_of(json_object(content), "text")


# ---- documents


def line(text, name=None):
    return json.dumps({"text": text} | ({"meta": {"redpajama_set_name": SLIMPAJAMA[name]}} if name else {})) + "\n"


def read(path, **options):
    return list(read_documents(path, BadRecords(), **options))


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


@in_folder
@given(
    st.lists(st.text("aé \t\n=", max_size=12), max_size=5).map("\n".join),
    st.sampled_from([None, "^="]),
    st.integers(1, 5),
)
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
    path = put(tmp_path / "a.txt", content + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "PIECE", piece)
        assert read(path, document_start=document_start) == list(enumerate(trimmed, start=1))


@in_folder
@given(st.lists(st.sampled_from(["a", "b c", "", "{"]), min_size=1), st.sampled_from(["a.jsonl.zst", "a.txt.gz"]))
def test_reading_resumes_after_any_document(tmp_path, rows, name):
    jsonl = name.startswith("a.jsonl")
    content = "".join(line(row) if jsonl and row not in ("", "{") else f"{row}\n" for row in rows) + "\n"
    path = put(tmp_path / name, content)
    everything = list(read_documents(path, BadRecords(strict=False)))
    for index, (after, _) in enumerate(everything):
        assert list(read_documents(path, BadRecords(strict=False), start=after)) == everything[index + 1 :]


@pytest.mark.parametrize("meta", [None, {}, {"redpajama_set_name": "RedPajamaNews"}])
def test_a_set_that_is_not_named_is_an_error(tmp_path, meta):
    path = put(tmp_path / "a.jsonl", line("a", "C4") + json.dumps({"text": "b", "meta": meta}) + "\n")
    with fails(f'{path}, line 2: "meta" does not name one of SlimPajama\'s sets; data.strict: false'):
        read(path, source="C4")
    assert read(path) == [(1, "a"), (2, "b")]  # nobody asked for a set


def test_names_say_what_a_file_is(tmp_path):
    with fails("a.txt.zst: plain text does not say which source a document is of, expected .jsonl"):
        read("a.txt.zst", source="C4")
    with fails("a.json.gz: found a name in .json, expected .jsonl for JSON lines, or .txt for plain text"):
        read("a.json.gz")
