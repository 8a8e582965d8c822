"""Words with their offsets in the text, and answers as ranges of words.

Words are those of translation (Moses rules, `tokenize` in ``words.py``): 4,961 of 4,997 gold answers of the real
samples begin and end at borders of such words. The finest cut there is would make it 4,971.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from headdiv.companion.data.readers.lines import BadRecordError
from headdiv.companion.data.readers.squad import Answer
from headdiv.companion.data.tokenization.words import tokenize

SPLIT_DASH = "@-@"  # as Moses rules write a dash between letters or digits; an @ of the text is always a word alone

_SPACE = re.compile(r"\s*")


class Tokens(NamedTuple):
    """Words and their offsets: word i is ``text[starts[i]:ends[i]]``.

    ``starts`` and ``ends`` are int32 of shape (words,), in characters of the text as it was given, ascending.
    """

    words: list[str]
    starts: np.ndarray
    ends: np.ndarray


def tokenize_with_offsets(text: str, lowercase: bool = False) -> Tokens:
    """English words by Moses rules, each with the characters of ``text`` it stands for.

    A word equals its characters, but for ``@-@`` (a dash). Between words is only white space, so there is one alignment
    or none.

    Args:
        text: any text, also of several sentences; the empty text has no words.
        lowercase: give the words in lower case. The text is tokenized in its own case all the same, because Moses
            rules recognise the end of a sentence inside a paragraph by the capital after it.

    Raises:
        BadRecordError: the text cannot be aligned to its words, since Moses rules change it: they drop control
            characters, and turn the letters DOTMULTI into a dot.
    """
    words = tokenize(text, "en")
    starts, ends = [], []
    position = 0
    for word in words:
        surface = "-" if word == SPLIT_DASH else word
        start = _SPACE.match(text, position).end()
        if not text.startswith(surface, start):
            raise BadRecordError("the text cannot be aligned to its words")
        position = start + len(surface)
        starts.append(start)
        ends.append(position)
    if lowercase:
        words = [word.lower() for word in words]
    return Tokens(words, np.array(starts, dtype=np.int32), np.array(ends, dtype=np.int32))


def answer_to_tokens(tokens: Tokens, answer: Answer) -> tuple[int, int, bool]:
    """The smallest range of words that holds all characters of the answer, white space aside.

    Returns:
        (first, last, exact): the first and the last word of the range, and whether the text from the start of the
        first to the end of the last is the answer's text; white space at an answer's border makes it inexact.

    Raises:
        BadRecordError: no word has a character of the answer.
    """
    stop = answer.start + len(answer.text)
    first = int(np.searchsorted(tokens.ends, answer.start, side="right"))
    last = int(np.searchsorted(tokens.starts, stop, side="left")) - 1
    if first > last:
        raise BadRecordError("the answer has no word of the context in it")
    # the answer is in the context at its offset, so equal offsets are equal texts
    exact = bool(tokens.starts[first] == answer.start and tokens.ends[last] == stop)
    return first, last, exact
