"""Windows and masks against literal double loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headdiv.nn.packing import MASKED, assign_windows, attention_mask, pack, pad_rows

lengths_of_sentences = st.lists(st.integers(1, 12), min_size=1, max_size=14)
lengths_of_pairs = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=14)
widths = st.integers(0, 30)


def literal_assign_windows(*languages, width):
    """First fit, longest first; a window is a list of sentences, its fill is counted anew each time."""
    if width <= 1:
        return [[i] for i in range(len(languages[0]))]
    windows = []
    for i in sorted(range(len(languages[0])), key=lambda i: -max(lengths[i] for lengths in languages)):
        for window in windows:
            if all(sum(s[j] for j in [*window, i]) <= max(width, max(s)) for s in languages):
                window.append(i)
                break
        else:
            windows.append([i])
    return windows


def literal_pack(lengths, windows):
    width = max(sum(lengths[i] for i in window) for window in windows)
    positions, slots, rows, sentences = [], [], [], []
    sentence = -1
    for r, window in enumerate(windows):
        line_rows, line_sentences = [0] * width, [-1] * width
        slot = 0
        for i in window:
            sentence += 1
            for position in range(lengths[i]):
                line_rows[slot], line_sentences[slot] = len(positions), sentence
                positions.append(position)
                slots.append(r * width + slot)
                slot += 1
        rows += line_rows
        sentences.append(line_sentences)
    return positions, slots, rows, sentences


def literal_mask(queries, keys, causal):
    """Slot by slot; ``queries`` and ``keys`` are the windows' sentences as lists."""
    mask = []
    for query_line, key_line in zip(queries, keys, strict=True):
        mask.append([[]])
        for n, query in enumerate(query_line):
            row = [0.0 if query == key != -1 else MASKED for key in key_line]
            if causal:
                row = [value if s <= n else MASKED for s, value in enumerate(row)]
            mask[-1][0].append(row)
    return torch.tensor(mask)


@given(pairs=lengths_of_pairs, width=widths)
def test_sentences_share_windows_by_first_fit(pairs, width):
    source, target = zip(*pairs, strict=True)
    windows = assign_windows(source, target, width=width)
    assert sorted(i for window in windows for i in window) == list(range(len(pairs)))
    assert windows == literal_assign_windows(source, target, width=width)


@given(lengths=lengths_of_sentences, width=widths)
def test_rows_are_the_literal_ones(lengths, width):
    windows = assign_windows(lengths, width=width)
    rows = pack(lengths, windows)
    positions, slots, row_of_slot, sentences = literal_pack(lengths, windows)
    order = [i for window in windows for i in window]
    assert rows.lengths.tolist() == [lengths[i] for i in order]
    assert rows.positions.tolist() == positions
    assert rows.slots.tolist() == slots
    assert rows.row_of_slot.tolist() == row_of_slot
    assert rows.sentences.tolist() == sentences
    assert rows.tokens == sum(lengths)
    assert rows.full == (-1 not in rows.sentences.flatten().tolist())


@given(pairs=lengths_of_pairs, width=widths)
def test_mask_is_the_literal_one(pairs, width):
    source, target = zip(*pairs, strict=True)
    windows = assign_windows(source, target, width=width)
    s, t = pack(source, windows), pack(target, windows)
    for queries, keys, causal in [(s, s, False), (t, t, True), (t, s, False)]:
        mask = attention_mask(queries, keys, causal)
        assert mask.dtype == torch.float32
        assert torch.equal(mask, literal_mask(queries.sentences.tolist(), keys.sentences.tolist(), causal))


@given(lengths=lengths_of_sentences, width=widths, fill=st.sampled_from([0.0, -7.0]))
def test_padded_rows_are_the_sentences_one_by_one(lengths, width, fill):
    rows = pack(lengths, assign_windows(lengths, width=width))
    x = torch.arange(6.0 * rows.tokens).view(-1, 3, 2)
    padded = pad_rows(x, rows, fill)
    assert padded.shape == (len(lengths), max(lengths), 3, 2)
    for line, sentence in zip(padded, x.split(rows.lengths.tolist()), strict=True):
        assert torch.equal(line[: len(sentence)], sentence)
        assert (line[len(sentence) :] == fill).all()


@pytest.mark.parametrize("width", [1, 48])
def test_nothing_is_packed_as_nothing(width):
    assert assign_windows([], width=width) == assign_windows([], [], width=width) == []
    rows = pack([], [])
    assert (rows.tokens, rows.full) == (0, True)
    assert rows.sentences.shape == (0, 0)
    assert rows.positions.tolist() == rows.row_of_slot.tolist() == []
    assert attention_mask(rows, rows, causal=True).shape == (0, 1, 0, 0)
    padded = pad_rows(torch.zeros(0, 3), rows)
    assert padded.shape == (0, 1, 3)
    assert padded.softmax(dim=1).argmax(dim=1).shape == (0, 3)  # which a line without columns would not take
