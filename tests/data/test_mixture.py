"""The endless mixed stream of windows: shares, order, going on exactly where it stopped."""

import json
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
from faulty import fails
from faulty import put as put_content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data.corpora.mixture import Mixture, held_out
from headdiv.companion.data.readers.documents import SLIMPAJAMA
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.tasks.lm import LMData

END = 0
SETS = ("ArXiv", "Books", "C4")  # in the order of names
in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
CONFIG = LMData(name="mine", files={}, epoch_tokens=1, block=3).model_copy(update={"context": 4})


def encode(texts):
    """A token a word: the number that it is."""
    return [[int(word) for word in text.split()] for text in texts]


BPE = SimpleNamespace(end=END, encode_batch=encode)


def line(document):
    numbers, name = document if isinstance(document, tuple) else (document, None)
    meta = {"meta": {"redpajama_set_name": SLIMPAJAMA[name]}} if name else {}
    return json.dumps({"text": " ".join(map(str, numbers))} | meta)


def put(path, documents):
    """Documents as lists of numbers, or (numbers, set); a string is a line as it stands."""
    rows = (document if isinstance(document, str) else line(document) for document in documents)
    return put_content(path, "".join(f"{row}\n" for row in rows))


def stream(shards, mixture=None, bad_records=None, seed=1, bpe=BPE, **options):
    config = CONFIG.model_copy(update={"mixture": mixture} | options)
    return Mixture(shards, bpe, config, seed, bad_records or BadRecords())


@st.composite
def corpora(draw):
    """Up to three sets in up to three shards; each set has a document, its tokens tell its own set."""
    count, corpus = draw(st.integers(1, 3)), {}
    for number, name in enumerate(SETS[: draw(st.integers(1, 3))], start=1):
        token = st.integers(100 * number, 100 * number + 99)
        shard = st.lists(st.lists(token, min_size=1, max_size=15), max_size=4)
        corpus[name] = draw(st.lists(shard, min_size=count, max_size=count).filter(any))
    return corpus


weights_of_three = st.lists(st.integers(1, 90), min_size=3, max_size=3)


def put_all(folder, corpus):
    """Shards with the documents of all sets, each in its order."""
    # An empty JSON line is no document and keeps a shard without documents from being an empty file.
    shards = [["", *((d, name) for name, parts in corpus.items() for d in parts[n])] for n in range(count_of(corpus))]
    return [put(folder / f"{n}.jsonl.zst", shard) for n, shard in enumerate(shards)]


def count_of(corpus):
    return len(next(iter(corpus.values())))


def literal_stream(corpus, weights, *, context, block, seed, windows):
    """The definition, with whole corpora in memory and shares in fractions."""
    endless = {name: [document for shard in shards for document in shard] for name, shards in corpus.items()}
    tokens, taken = dict.fromkeys(corpus, 0), dict.fromkeys(corpus, 0)
    whole = sum(Fraction(weights[name]) for name in corpus)
    row, found, blocks = [], [], 0
    while len(found) < windows:
        while len(row) < block * context + 1:
            total = sum(tokens.values())
            share = {name: Fraction(weights[name]) / whole for name in corpus}
            name = max(sorted(corpus), key=lambda name: (share[name] * total - tokens[name], share[name]))
            document = [END, *endless[name][taken[name] % len(endless[name])]]
            row += document
            tokens[name] += len(document)
            taken[name] += 1
        cut = []
        while len(row) >= context + 1:
            cut.append(row[: context + 1])
            row = row[context:]
        found += [cut[i] for i in np.random.default_rng([seed, blocks]).permutation(len(cut))]
        blocks += 1
    return np.array(found[:windows], dtype=np.int32)


@in_folder
@given(corpora(), st.integers(0, 5), st.integers(1, 9), st.integers(1, 5), st.integers(0, 9))
def test_the_stream_as_its_literal_twin(tmp_path, corpus, power, context, block, seed):
    # Weights whose shares are exact in binary, so that ties are the same in fractions and floats.
    weights = {1: [1], 2: [1, 2**power - 1 or 1], 3: [1, 1, 2**power * 2 - 2 or 2]}[len(corpus)]
    weights = dict(zip(corpus, weights, strict=True))
    options = {"context": context, "block": block, "seed": seed}
    found = stream(put_all(tmp_path, corpus), weights, **options).next(40)
    assert found.dtype == np.int32
    assert found.shape == (40, context + 1)
    np.testing.assert_array_equal(found, literal_stream(corpus, weights, windows=40, **options))


@in_folder
@given(corpora(), weights_of_three, st.integers(0, 60), st.integers(1, 7), st.integers(1, 7))
def test_a_restored_stream_goes_on_as_if_it_had_never_stopped(tmp_path, corpus, weights, before, context, block):
    sources = put_all(tmp_path, corpus)
    weights = dict(zip(corpus, weights, strict=False))
    options = {"context": context, "block": block}
    stopped = stream(sources, weights, **options)
    stopped.next(before)
    state = json.loads(json.dumps(stopped.state()))
    resumed = stream(sources, weights, **options)
    resumed.next(5)  # where it stood does not matter
    resumed.restore(state)
    assert resumed.state() == stopped.state() == state
    assert (resumed.tokens, resumed.passes) == (stopped.tokens, stopped.passes)
    uninterrupted = stream(sources, weights, **options).next(before + 30)
    np.testing.assert_array_equal(resumed.next(30), uninterrupted[before:])
    np.testing.assert_array_equal(stopped.next(30), uninterrupted[before:])  # asking for the state changes nothing


def test_a_record_is_refused_once_however_often_it_is_met(tmp_path):
    documents = [([1, 2], "C4"), '{"text": "cut', ([3, 4], "Books"), ([], "Books"), ([5], "C4")]
    shard, weights = put(tmp_path / "a.jsonl.zst", documents), {"C4": 1.0, "Books": 1.0}
    bad_records = BadRecords(strict=False)
    mixed = stream([shard], weights, bad_records)
    mixed.next(50)
    assert min(mixed.passes.values()) > 2
    assert bad_records.counts == {"not valid JSON": 1, 'no text under "text"': 1}
    for _ in range(2):
        with fails(f"{shard}, line 2: not valid JSON"):
            stream([shard], weights).next(1)


def test_refused_records_are_counted_as_if_the_stream_had_never_stopped(tmp_path):
    shard = put(tmp_path / "a.jsonl", [[n, n] if n % 3 else "{" for n in range(1, 300)])
    counts = []
    for stops in (False, True):
        bad_records = BadRecords(strict=False)
        mixed = stream([shard], bad_records=bad_records)
        mixed.next(41)
        if stops:
            state, counted = mixed.state(), dict(bad_records.counts)
            bad_records = BadRecords(strict=False)
            mixed = stream([shard], bad_records=bad_records)
            mixed.restore(state)
            bad_records.counts.clear()
            bad_records.counts.update(counted)
        mixed.next(30)
        counts.append(bad_records.counts)
    assert counts[0] == counts[1]
    assert 0 < counts[0].total() < 100


def test_a_source_without_documents(tmp_path):
    shards = [put(tmp_path / f"{n}.jsonl", [([1], "C4")]) for n in range(4)]
    mixed = stream(shards, {"C4": 1.0, "ArXiv": 1.0})
    with fails("source 'ArXiv': no document in its 4 shards"):
        mixed.next(9)


# --- held-out text ---


@in_folder
@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=9), st.integers(1, 12))
def test_held_out_windows(tmp_path, documents, context):
    paths = [put(tmp_path / "a.jsonl", documents[:3]), put(tmp_path / "b.jsonl.zst", ["", *documents[3:]])]
    found = held_out(paths, BPE, CONFIG.model_copy(update={"context": context}), BadRecords())
    row = [END, *(token for document in documents for token in [*document, END])]
    expected = [row[at : at + context + 1] for at in range(0, len(row) - 1, context)]
    expected[-1] += [-1] * (context + 1 - len(expected[-1]))
    assert found.windows.dtype == np.int32
    assert found.windows.tolist() == expected
    assert found.targets == len(row) - 1
    assert found.documents == len(documents)
    assert found.words == sum(map(len, documents))
    assert found.bytes == sum(len(" ".join(map(str, document))) for document in documents)


def test_held_out_documents_of_one_set_and_refusals(tmp_path):
    path = put(tmp_path / "a.jsonl", [([1], "C4"), ([2], "Books"), "{", ([3], "C4")])
    bad_records = BadRecords(strict=False)
    assert held_out([path], BPE, CONFIG, bad_records, "C4").windows.tolist() == [[0, 1, 0, 3, 0]]
    assert bad_records.counts == {"not valid JSON": 1}
    with fails(f"{path}: found no document, expected at least one"):
        held_out([path], BPE, CONFIG, bad_records, "ArXiv")
