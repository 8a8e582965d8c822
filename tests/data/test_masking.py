"""Which tokens are masked, what is read in their place, and the same choice again."""

import math

import numpy as np
import pytest
from faulty import exactly
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.corpora.masking import MaskedStream, load_mlm, mask_held_out, mask_tokens
from headdiv.companion.data.corpora.mixture import HeldOut, Mixture
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.tokenization.bpe import Bpe
from headdiv.companion.models.batching import IGNORED
from headdiv.companion.tasks.mlm import MLMData
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check

V, END = 12, 3
BPE = Bpe(None, V, END)


def shares(mask=0.15, blank=0.8, random=0.1):
    return MLMData(name="toy", epoch_tokens=1, mask_share=mask, blank_share=blank, random_share=random)


def some_windows(R, N, seed=0):
    return np.random.default_rng(seed).integers(0, V, (R, N)).astype(np.int32)


@st.composite
def windows(draw):
    """Each with an ordinary token at its beginning; any may lack some at its end."""
    R, N = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    tokens = some_windows(R, N, draw(st.integers(0, 99)))
    tokens[:, 0] = 5
    for row in tokens:
        row[draw(st.integers(1, N)) :] = IGNORED
    return tokens


any_shares = st.builds(
    lambda mask, blank, rest: shares(mask, blank, (1 - blank) * rest),
    st.floats(0.01, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)


@given(windows(), any_shares, st.integers(0, 2**63))
def test_the_choice_is_the_one_written_out(tokens, config, key):
    row = [token for window in tokens.tolist() for token in window]
    ordinary = [i for i, token in enumerate(row) if token not in (END, IGNORED)]
    draws = np.random.default_rng([key, 1]).random((3, len(ordinary)))
    read, targets = list(row), [IGNORED] * len(row)
    for n, i in enumerate(ordinary):
        if draws[0, n] < config.mask_share or ((draws[0] >= config.mask_share).all() and n == draws[0].argmin()):
            targets[i] = row[i]
            if draws[1, n] < config.blank_share:
                read[i] = V
            elif draws[1, n] < config.blank_share + config.random_share:
                read[i] = [entry for entry in range(V) if entry != END][int(draws[2, n] * (V - 1))]
    found = mask_tokens(tokens, (key, 1), BPE, config)
    assert found[:, 0].ravel().tolist() == read
    assert found[:, 1].ravel().tolist() == targets


# ---- held-out text


def held_out(row, context):
    """Windows of a row that begins and ends with a mark, as `held_out` of ``mixture.py`` cuts them."""
    padded = np.pad(row, (0, -(len(row) - 1) % context), constant_values=IGNORED).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(padded, context + 1)[::context]
    return HeldOut(windows.copy(), 1, 1, 1)


def row_of(windows, masked):
    """Read and targets of all tokens in their order."""
    there = windows[:, :-1] >= 0
    return masked[:, 0][there].tolist(), masked[:, 1][there].tolist()


@given(st.integers(2, 60), st.integers(1, 20), st.integers(1, 20), st.integers(0, 99))
def test_held_out_text_has_one_choice_however_it_is_cut(length, context, other, seed):
    row = np.array([END, 5, *some_windows(1, length, seed)[0], END])
    found = []
    for text in (held_out(row, context), held_out(row, other)):
        read, targets = row_of(text.windows, mask_held_out(text, BPE, shares(0.3)))
        found.append((read[: len(row) - 1], targets[: len(row) - 1]))  # the last mark may be cut off
    assert found[0] == found[1]


# ---- the stream


def test_seed_and_place_decide_the_choice_in_a_stream(monkeypatch):
    """The same windows, again and again."""
    monkeypatch.setattr(Mixture, "next", lambda _, count: some_windows(count, 40))

    def batches(seed):
        stream = MaskedStream([], BPE, shares(), seed, BadRecords())
        first, state = stream.next(4).tobytes(), stream.state()
        others = [stream.next(4).tobytes() for _ in range(2)]
        stream.restore(state)
        assert [stream.next(4).tobytes() for _ in range(2)] == others
        return [first, *others]

    assert batches(1) == batches(1)
    assert len({*batches(1), *batches(2)}) == 6


# ---- corpora


def test_the_unigram_loss_is_that_of_the_masked_tokens(folder):
    texts = [f"The dog {i} sees the cat {7 * i}." for i in range(30)]
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("\n\n".join(texts[::-1] if split == "train" else texts), encoding="utf-8")
    files = {split: [f"{split}.txt"] for split in ("train", "valid", "test")}
    options = {"name": "mine", "files": files, "vocabulary_size": 270, "context": 16, "epoch_tokens": 100}
    corpus = load_mlm(MLMData(**options, mask_share=0.4))
    counts = dict.fromkeys(range(270), 1)
    for ids in corpus.bpe.encode_batch(texts):  # no ends of documents
        for i in ids:
            counts[i] += 1
    targets = [i for window in corpus.masked["test"][:, 1].tolist() for i in window if i != IGNORED]
    expected = -sum(math.log(counts[i] / sum(counts.values())) for i in targets) / len(targets)
    assert corpus.statistics["test"]["unigram_nll"] == pytest.approx(expected, rel=1e-12)


def test_a_mistake_in_shares_is_named():
    with exactly("data.random_share: 0.3 and blank_share = 0.8 exceed 1", ConfigError):
        check(MLMData, {"name": "toy", "epoch_tokens": 1, "random_share": 0.3}, ("data",))
