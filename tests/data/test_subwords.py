"""Words as pieces and back; merges against a literal twin; the same text always gives the same encoding."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.tokenization.subwords import Subwords, join, train

TEXT = [line.split() for line in (
    "the newer the better", "the lower the water the lower the bread", "brot und wasser und noch mehr wasser",
    "das bessere brot ist das neue brot", "we know that the new one is better than the old one",
)]  # fmt: skip
sentences_of = st.lists(st.lists(st.text("abcé", min_size=1, max_size=6), max_size=6), max_size=6)


def pairs_of(words):
    """How often each pair of neighbours occurs: by words, of which each is a tuple of symbols."""
    counts = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts


def merged(word, pair):
    """A word with a pair merged, from left to right."""
    out, i = [], 0
    while i < len(word):
        joined = word[i : i + 2] == pair
        out.append("".join(pair) if joined else word[i])
        i += 2 if joined else 1
    return tuple(out)


def parted(word):
    return (*word[:-1], f"{word[-1]}</w>")


def literal_state(sentences, merges):
    """The words as symbols, with merges done."""
    words = Counter(parted(word) for sentence in sentences for word in sentence)
    for pair in merges:
        done = Counter()
        for word, times in words.items():
            done[merged(word, pair)] += times
        words = done
    return words


@given(sentences=sentences_of, merges=st.integers(1, 25))
def test_every_merge_is_of_a_most_frequent_pair(sentences, merges):
    """So merges are the literal ones wherever frequencies do not tie."""
    found = train(sentences, merges).merges
    assert len(found) <= merges
    for number, pair in enumerate(found):
        counts = pairs_of(literal_state(sentences, found[:number]))
        assert counts[pair] == max(counts.values()) >= 2
    if len(found) < merges:
        assert max(pairs_of(literal_state(sentences, found)).values(), default=0) < 2


def test_merges_of_one_symbol_made_twice_are_counted_as_two():
    sentences = [["abcx"] * 4 + ["bcy"] * 9 + ["abz"] * 12 + ["abcw"] * 2]
    found = train(sentences, 40).merges
    assert all(len(train(sentences, n).merges) == n for n in range(1, len(found) + 1))


@given(sentences=sentences_of, merges=st.integers(1, 25))
def test_pieces_are_those_of_the_merges_one_by_one(sentences, merges):
    encoding = train(sentences, merges)
    for sentence, pieces in zip(sentences, encoding.encode_all(sentences), strict=True):
        expected = []
        for word in sentence:
            symbols = parted(word)
            for pair in encoding.merges:
                symbols = merged(symbols, pair)
            expected += [f"{symbol}@@" for symbol in symbols[:-1]] + [symbols[-1].removesuffix("</w>")]
        assert pieces == expected
        assert encoding.encode(sentence) == expected
        assert join(pieces) == sentence


def test_unknown_characters_are_unknown_pieces():
    encoding = train(TEXT, 200)
    assert encoding.encode(["the", "Ωthe", "theΩ", "Ω", "brotΩ"])[:3] == ["the", "<unk>", "the"]
    assert encoding.encode(["Ω", "ΩΩ"]) == ["<unk>"] * 3
    assert encoding.encode(["theΩ"])[-1] == "<unk>"
    assert encoding.encode([]) == []
    assert encoding.encode_all([[], ["the"]]) == [[], ["the"]]


def test_an_encoding_is_stored_and_read(tmp_path):
    encoding = train(TEXT, 25)
    encoding.save(tmp_path / "a.json")
    again = Subwords.load(tmp_path / "a.json")
    assert (again.characters, again.merges) == (encoding.characters, encoding.merges)
    assert again.encode_all(TEXT) == encoding.encode_all(TEXT)
