"""From files of text to a tokeniser and held-out windows."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import zstandard
from faulty import exactly, fails

from headdiv.companion.data.corpora.lm import load_lm
from headdiv.companion.data.readers.documents import SLIMPAJAMA
from headdiv.companion.data.tokenization.bpe import load_bpe, train_bpe
from headdiv.companion.tasks.lm import LMData

ENTRIES, CONTEXT = 270, 8
TRAIN = ["The old lobster of Crete läuft.", "The blue lobster sings.\nIt sings of Crete.", "The old one sleeps."]
HELD_OUT = {"valid": ["A lobster sings.", "The old lobster of Crete sleeps."], "test": ["It läuft."]}

FILES = {"train": ["train*"], "valid": ["valid*"], "test": ["test*"]}


def mine(**options):
    """A corpus of one's own files."""
    options = {"context": CONTEXT, "vocabulary_size": ENTRIES, "epoch_tokens": 100, "block": 4} | options
    return LMData(**{"name": "mine", "files": FILES} | options)


def put_plain(folder):
    for name, documents in {"train": TRAIN, **HELD_OUT}.items():
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return mine()


def put_shard(path, *documents):
    """JSON lines, packed: texts, or (text, source)."""
    lines = b""
    for document in documents:
        text, source = document if isinstance(document, tuple) else (document, None)
        meta = {"meta": {"redpajama_set_name": SLIMPAJAMA[source]}} if source else {}
        lines += json.dumps({"text": text} | meta).encode() + b"\n"
    path.write_bytes(zstandard.compress(lines))


def row_of(windows):
    """Windows one after the other, each token once."""
    row = np.concatenate([windows[0, :1], windows[:, 1:].ravel()])
    return row[row >= 0]


# ---- one's own files


def test_plain_text_of_one_s_own(folder):
    corpus = load_lm(put_plain(folder))
    bpe = corpus.bpe
    assert (bpe.size, corpus.statistics["vocabulary"]) == (ENTRIES, {"tokens": ENTRIES})
    assert json.loads(bpe.tokenizer.to_str())["model"] == json.loads(train_bpe(TRAIN, ENTRIES))["model"]
    assert corpus.shards == [folder / "train.txt"]
    files = FILES | {"train": ["train*", "train.txt"]}
    assert load_lm(mine(files=files)).statistics["train"] == corpus.statistics["train"]  # which is read once
    assert corpus.statistics["train"] == {"files": 1, "bytes": (folder / "train.txt").stat().st_size}
    assert corpus.statistics["refused"] == {}
    for name, documents in HELD_OUT.items():
        held, statistics = getattr(corpus, name), corpus.statistics[name]
        row = [bpe.end]
        for document in documents:
            row += [*bpe.encode_batch([document])[0], bpe.end]
        assert row_of(held.windows).tolist() == row
        assert held.windows.shape == (math.ceil((len(row) - 1) / CONTEXT), CONTEXT + 1)
        assert held.documents == statistics["examples"] == len(documents)
        assert held.words == statistics["words"] == sum(len(document.split()) for document in documents)
        assert held.bytes == statistics["bytes"] == sum(len(document.encode()) for document in documents)
        assert held.targets == statistics["tokens"] == len(row) - 1
        counts = Counter([*range(ENTRIES), *(i for ids in bpe.encode_batch(TRAIN) for i in (bpe.end, *ids))])
        expected = -sum(math.log(counts[i] / counts.total()) for i in row[1:]) / len(row[1:])
        assert statistics["unigram_nll"] == pytest.approx(expected, rel=1e-12)


def test_a_pattern_says_where_documents_begin(folder):
    config = put_plain(folder)
    (folder / "valid.txt").write_text(" = One = \n\nA lobster.\n\n = = Part = = \nIt sings.\n = Two = \nIt sleeps.\n")
    statistics = load_lm(config).statistics["valid"]
    assert statistics["examples"] == 3  # parted by empty lines, or else:
    statistics = load_lm(mine(document_start=r"^ = [^=].* = $")).statistics["valid"]
    assert (statistics["examples"], statistics["words"]) == (2, 3 + 2 + 5 + 2 + 3 + 2)


def test_a_tokeniser_of_one_s_own_is_taken(folder):
    put_plain(folder)
    (folder / "own.json").write_text(train_bpe(HELD_OUT["valid"], 260), encoding="utf-8")
    corpus = load_lm(mine(tokenizer_file="own.json", vocabulary_size=260))
    assert corpus.bpe.encode_batch(TRAIN) == load_bpe(folder / "own.json").encode_batch(TRAIN)
    with exactly(f"{folder}/own.json: the encoding has 260 entries, but data.vocabulary_size says 261"):
        load_lm(mine(tokenizer_file="own.json", vocabulary_size=261))


# ---- held-out text by weights


def test_held_out_text_is_mixed_up_to_a_number_of_tokens(folder):
    sources = ["C4", "Books"]
    lines = [(f"Text {i} of {sources[i % 2]} sings.", sources[i % 2]) for i in range(40)]
    for name in FILES:
        put_shard(folder / f"{name}.jsonl.zst", *(lines[::-1] if name.startswith("train") else lines))
    options = {"mixture": {"C4": 3.0, "Books": 1.0}, "context": 500}
    whole, corpus = load_lm(mine(**options)), load_lm(mine(**options, held_out_tokens=200))
    assert whole.valid.documents == 40
    first, second = (corpus.bpe.decode(row[row >= 0]) for row in corpus.valid.windows)  # a source's text fits one
    documents = first.count("of C4 sings"), second.count("of Books sings")
    assert sum(documents) == corpus.valid.documents < 40
    per_document = whole.valid.targets / 40
    for count, wanted in zip(documents, (150, 50), strict=True):
        assert wanted - per_document < count * per_document < wanted + 2 * per_document
    assert corpus.valid.words == 5 * corpus.valid.documents
    assert corpus.statistics["valid"]["tokens"] == corpus.valid.targets
    with fails("data.held_out_tokens: 75,000 asked for of C4, but valid.jsonl.zst has"):
        load_lm(mine(**options, held_out_tokens=100_000))


def test_generated_text_alone_has_a_number_of_examples(folder):
    options = {"examples": 80, "vocabulary_size": 300, "epoch_tokens": 9}
    toy = load_lm(LMData(name="toy", **options, held_out_tokens=40_000))
    assert 0 < toy.valid.targets < 40_000
    with pytest.raises(ValueError, match="examples: files are read as a stream"):
        mine(examples=3)
