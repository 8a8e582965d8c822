"""The toy corpus for language modelling: sources, shares and frames are as promised."""

import ast
import hashlib
import json
import random
import re
from fractions import Fraction
from itertools import cycle, islice, pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headdiv.core.errors import ConfigError
from headdiv.data.toy import VERSION
from headdiv.data.toy import shards as toy_shards
from headdiv.data.toy.grammar import lexicon
from headdiv.data.toy.shards import SHARES, source_counts, write_shards


def unpack(path):
    text = zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards") / "new", 600, seed=5)


@pytest.fixture(scope="module")
def texts(shards):
    """The texts of all shards by source."""
    found = {}
    for path in [path for part in shards.values() for path in part]:
        for record in unpack(path):
            found.setdefault(record["meta"]["redpajama_set_name"], []).append(record["text"])
    return found


def test_names_and_sizes_of_shards(shards):
    assert {name: [path.name for path in part] for name, part in shards.items()} == {
        "train": ["train-0.jsonl.zst", "train-1.jsonl.zst", "train-2.jsonl.zst"],
        "valid": ["valid-0.jsonl.zst"],
        "test": ["test-0.jsonl.zst"],
    }
    assert [[len(unpack(path)) for path in part] for part in shards.values()] == [[160, 160, 160], [60], [60]]
    folder = shards["test"][0].parent
    assert sorted(folder.iterdir()) == sorted(path for part in shards.values() for path in part)


def test_frames_have_size_and_checksum(shards):
    for path in shards["train"]:
        raw = path.read_bytes()
        frame = zstandard.get_frame_parameters(raw)
        assert frame.has_checksum
        assert frame.content_size == len(zstandard.ZstdDecompressor().decompress(raw))


def test_every_shard_mixes_all_sources(shards):
    for path in [path for part in shards.values() for path in part]:
        records = unpack(path)
        assert all(
            list(record) == ["text", "meta"] and list(record["meta"]) == ["redpajama_set_name"] for record in records
        )
        kinds = [record["meta"]["redpajama_set_name"] for record in records]
        assert {kind: kinds.count(kind) for kind in SHARES} == source_counts(len(records))
        assert min(source_counts(len(records)).values()) >= 1
        switches = sum(one != other for one, other in pairwise(kinds))
        assert switches > len(kinds) / 3  # not one source after the other


@given(st.integers(len(SHARES), 3000))
def test_counts_of_sources(documents):
    """The literal twin hands out documents one by one, to whom most is owed."""
    counts = source_counts(documents)
    assert sum(counts.values()) == documents
    owed = {kind: Fraction(share, 1000) * documents for kind, share in SHARES.items()}
    twin = {kind: int(number) for kind, number in owed.items()}
    while sum(twin.values()) < documents:
        twin[max(owed, key=lambda kind: owed[kind] - twin[kind])] += 1
    for kind, number in list(twin.items()):
        if number == 0:
            twin[max(twin, key=lambda kind: twin[kind])] -= 1
            twin[kind] = 1
    assert counts == twin


def test_texts_are_distinct_and_of_the_promised_length(texts):
    every = [text for part in texts.values() for text in part]
    assert len(set(every)) == len(every) == 600
    assert all(20 <= len(text.split()) <= 150 for text in every)


def test_repeated_draws_are_left_out(monkeypatch, tmp_path):
    """A stream of a few sentences, over and over, gives many a text again."""
    few = list(islice(toy_shards.sentences(random.Random(1)), 60))
    monkeypatch.setattr(toy_shards, "sentences", lambda _: cycle(few))
    paths = write_shards(tmp_path, 100, 0)
    texts = [record["text"] for part in paths.values() for path in part for record in unpack(path)]
    assert len(set(texts)) == len(texts) == 100


SENTENCES = r"([A-Z][\w', ]*\w\.( |$))+"
FORMS = {
    "RedPajamaCommonCrawl": r"Home( \| [A-Z][a-z]+){3} \| Contact\n" + SENTENCES,
    "RedPajamaC4": SENTENCES,
    "RedPajamaGithub": r"def \w+\(\w+, \w+\):\n    [^\0]*\n",
    "RedPajamaBook": rf"Chapter \d+(\n\n{SENTENCES})".replace("( |$)", r"(?: |$|(?=\n))") + "{2}",
    "RedPajamaArXiv": r"\\section\{[A-Z][a-z]+\}(\n[A-Z][^\n]*\.\nLemma \d\. Let [^\n]*\$\.){2,3}",
    "RedPajamaWikipedia": r"= [A-Z][a-z]+ =\n\n" + SENTENCES,
    "RedPajamaStackExchange": r"(Q: Wh(o|at) [\w' ]+\?\nA: [A-Z][\w', ]*\w\.(\n\n|$)){2,4}",
}


@pytest.mark.parametrize("kind", SHARES)
def test_form_tells_the_source(texts, kind):
    for text in texts[kind]:
        assert [name for name, form in FORMS.items() if re.fullmatch(form, text)] == [kind], text


def test_code_is_python(texts):
    for text in texts["RedPajamaGithub"]:
        functions = ast.parse(text).body
        assert 2 <= len({function.name for function in functions}) == len(functions) <= 4
        assert all(len({argument.arg for argument in function.args.args}) == 2 for function in functions)


def test_sums_are_true(texts):
    for text in texts["RedPajamaArXiv"]:
        for a, b, total in re.findall(r"Let \$a = (\d)\$ and \$b = (\d)\$\. Then \$a \+ b = (\d+)\$", text):
            assert int(a) + int(b) == int(total)


def test_encyclopaedia_keeps_to_its_topic(texts):
    rows = {noun.english[0]: noun.english for noun in lexicon().nouns.values()}
    for text in texts["RedPajamaWikipedia"]:
        topic, about = re.fullmatch(r"= (\w+) =\n\n(.*)", text).groups()
        for sentence in re.findall(r"[^.]+\.", about):
            assert re.search(rf"\b({'|'.join(rows[topic.lower()])})\b", sentence, re.IGNORECASE), text


def test_same_arguments_same_bytes(shards, tmp_path):
    first = [path.read_bytes() for part in shards.values() for path in part]
    for _ in range(2):  # the second time over what is there
        again = write_shards(str(tmp_path), 600, 5)
        assert [path.read_bytes() for part in again.values() for path in part] == first
    assert write_shards(tmp_path, 600, 6)["train"][0].read_bytes() != first[0]


def test_text_of_shards_belongs_to_the_version(shards):
    """Where this fails on purpose, raise VERSION and write the new digest here."""
    records = [unpack(path) for part in shards.values() for path in part]
    digest = hashlib.sha256(json.dumps(records, ensure_ascii=False).encode()).hexdigest()[:16]
    assert (VERSION, digest) == (1, "fb37509a4bf3dcb8")


def test_fewest_documents(tmp_path):
    paths = write_shards(tmp_path / "a", 70, 0)
    assert [len(unpack(path)) for part in paths.values() for path in part] == [18, 19, 19, 7, 7]
    message = "toy shards: the number of documents is 69, expected 70 or more, so that every shard has every source"
    with pytest.raises(ConfigError, match=f"^{message}$"):
        write_shards(tmp_path / "b", 69, 0)
    assert not (tmp_path / "b").exists()
