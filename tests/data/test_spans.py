"""Words with their places in the text, and gold answers as ranges of words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.readers.squad import Answer
from headdiv.companion.data.tokenization.spans import answer_to_tokens, tokenize_with_offsets
from headdiv.companion.data.tokenization.words import tokenize
from headdiv.core.errors import DataError

ODD = "aAbZ019 .,-'\"@&`$%_/|\\#\t\n\r\x1c\x1f\x7f\x85\xa0\u2028…–€ßİΣσςé\u0301漢\U0001f600"
ANY = st.characters(codec="utf-8", exclude_categories=["Cc"])
TEXTS = st.one_of(st.text(ODD, max_size=40), st.text(ANY, max_size=40))


def between(text, tokens, first, last):
    """The characters from the start of word ``first`` to the end of word ``last``."""
    return text[tokens.starts[first] : tokens.ends[last]]


def test_a_split_dash_stands_for_one_character():
    words, starts, ends = tokenize_with_offsets("half-time")
    assert (words, starts.tolist(), ends.tolist()) == (["half", "@-@", "time"], [0, 4, 5], [4, 5, 9])
    assert starts.dtype == ends.dtype == np.int32
    assert tokenize_with_offsets("").starts.dtype == np.int32
    assert tokenize_with_offsets("It Half. Then", lowercase=True).words == ["it", "half", ".", "then"]


def slow_places(text, words):
    """Literally: go through the characters; each is the next of the current word, or white space."""
    letters = [(number, "-" if word == "@-@" else letter) for number, word in enumerate(words)
               for letter in (["-"] if word == "@-@" else word)]  # fmt: skip
    places = {}
    for place, letter in enumerate(text):
        if letters and letter == letters[0][1]:
            places.setdefault(letters.pop(0)[0], []).append(place)
        else:
            assert letter.isspace()
    assert not letters
    return [(places[number][0], places[number][-1] + 1) for number in range(len(words))]


@given(TEXTS)
def test_words_in_order_and_nothing_but_white_space_between(text):
    words, starts, ends = tokenize_with_offsets(text)
    assert words == tokenize(text, "en")
    assert list(zip(starts, ends, strict=True)) == slow_places(text, words)
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


# ---- answers


def slow_range(tokens, answer):
    """Literally: all words that share a character with the answer."""
    inside = set(range(answer.start, answer.start + len(answer.text)))
    hit = [i for i in range(len(tokens.words)) if inside & set(range(tokens.starts[i], tokens.ends[i]))]
    return (hit[0], hit[-1]) if hit else None


@given(TEXTS.filter(len), st.data())
def test_the_smallest_range_that_covers_an_answer(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    answer = Answer(text[start : data.draw(st.integers(start + 1, len(text)))], start)
    tokens = tokenize_with_offsets(text)
    expected = slow_range(tokens, answer)
    if expected is None:
        with pytest.raises(DataError, match="has no word of the context in it"):
            answer_to_tokens(tokens, answer)
        return
    first, last, exact = answer_to_tokens(tokens, answer)
    assert (first, last) == expected
    assert exact == (between(text, tokens, first, last) == answer.text)
