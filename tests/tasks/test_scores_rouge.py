"""ROUGE against slow, literal twins, and what its signatures say."""

import os
import random
import re
from collections import Counter
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.core.errors import DataError
from headdiv.data.readers.records import BadRecords
from headdiv.data.readers.xsum import read_articles
from headdiv.tasks.rouge import rouge

MIRROR = os.environ.get("HEADDIV_MIRROR")
NAMES = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
# Few words, so that they repeat; none is touched by lower-casing or splitting.
WORDS = st.lists(st.sampled_from(["a", "cat", "cats", "sat", "on", "2", "mats", "running"]), max_size=9)
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4)


def f1(matches, predicted, wanted):
    """From precision and recall as they are defined, in exact fractions."""
    if not matches:
        return Fraction(0)
    precision, recall = Fraction(matches, predicted), Fraction(matches, wanted)
    return 2 * precision * recall / (precision + recall)


def ngram_twin(prediction, reference, n):
    found, wanted = ([tuple(words[i : i + n]) for i in range(len(words) - n + 1)] for words in (prediction, reference))
    matches, left = 0, list(wanted)
    for ngram in found:
        if ngram in left:
            left.remove(ngram)
            matches += 1
    return f1(matches, len(found), len(wanted))


def lcs_twin(prediction, reference):
    @cache
    def longest(i, j):
        if i == len(prediction) or j == len(reference):
            return 0
        if prediction[i] == reference[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return f1(longest(0, 0), len(prediction), len(reference))


def values(predictions, references, stemming=False):
    return {name: score["value"] for name, score in rouge(predictions, references, stemming).items()}


@given(PAIRS)
def test_scores_are_those_of_the_definitions(pairs):
    got = values([" ".join(prediction) for prediction, _ in pairs], [" ".join(reference) for _, reference in pairs])
    want = {
        "rouge1": [ngram_twin(*pair, 1) for pair in pairs],
        "rouge2": [ngram_twin(*pair, 2) for pair in pairs],
        "rougeL": [lcs_twin(*pair) for pair in pairs],
        "rougeLsum": [lcs_twin(*pair) for pair in pairs],  # one sentence each: the same as ROUGE-L
    }
    assert got == pytest.approx({name: 100 * float(sum(told) / len(told)) for name, told in want.items()}, abs=1e-9)


@given(PAIRS, st.booleans())
def test_scores_are_within_bounds_and_symmetric(pairs, stemming):
    predictions, references = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
    got = values(predictions, references, stemming)
    assert list(got) == NAMES
    assert all(0 <= value <= 100 for value in got.values())
    assert got["rougeL"] <= got["rouge1"] + 1e-9
    turned = values(references, predictions, stemming)
    # F1 does not care which text is the reference
    assert [turned[name] for name in NAMES] == pytest.approx([got[name] for name in NAMES], abs=1e-9)


@pytest.mark.parametrize("stemming", [True, False])
def test_gold_summaries_score_100(stemming):
    draw = random.Random(1)
    words = ["Police", "have", "arrested", "a", "man", "in", "Leeds", "after", "2", "shops", "were", "robbed"]
    gold = [" ".join(draw.choices(words, k=draw.randint(2, 12))) + "." for _ in range(50)]
    assert values(gold, gold, stemming) == dict.fromkeys(NAMES, 100)
    lines = [text.replace(" ", "\n", 1) for text in gold]
    assert values(lines, lines, stemming) == dict.fromkeys(NAMES, 100)


@pytest.mark.skipif(not MIRROR, reason="HEADDIV_MIRROR is not set")
def test_real_gold_summaries_score_100():
    files = [Path(MIRROR) / "xsum" / f"{name}.jsonl" for name in ("train", "val", "test")]
    gold = [article.summary for file in files for article in read_articles(file, BadRecords())]
    assert values(gold, gold, stemming=True) == dict.fromkeys(NAMES, 100)
    assert all(0 < value < 50 for value in values(gold[1:] + gold[:1], gold, stemming=True).values())


def test_mean_is_over_examples_not_words():
    got = values(["a b c d e f", "x"], ["a b c d e f", "y"])
    assert got == dict.fromkeys(NAMES, 50)


def test_stemming():
    assert values(["cats running"], ["cat runs"], stemming=True)["rouge1"] == 100
    assert values(["cats running"], ["cat runs"])["rouge1"] == 0
    assert values(["cat"], ["cats"], stemming=True)["rouge1"] == 100
    assert values(["ads"], ["ad"], stemming=True)["rouge1"] == 0  # 3 letters are never stemmed
    assert rouge(["cats"], ["cat"]) == rouge(["cats"], ["cat"], stemming=True)


def test_case_and_punctuation_do_not_count():
    assert values(["The U.S. won 3-2!"], ["the u s WON 3 2"]) == dict.fromkeys(NAMES, 100)


def test_accented_letters_separate_words():
    assert values(["café"], ["caf"])["rouge1"] == 100
    assert values(["naïve"], ["na ve"]) == dict.fromkeys(NAMES, 100)


def test_sentences_count_in_rouge_lsum_only():
    # turned round, both sentences are found whole, but one sequence holds only one of them
    got = values(["two dogs barked\none cat sat"], ["one cat sat\ntwo dogs barked"])
    assert got["rougeLsum"] == 100
    assert got["rougeL"] == pytest.approx(50)


@pytest.mark.parametrize("text", ["", " \n ", "...", "— ? é ß 猫"])
def test_texts_with_nothing_to_count_score_zero(text):
    assert values([text], ["a cat sat"], stemming=True) == dict.fromkeys(NAMES, 0)
    assert values(["a cat sat"], [text], stemming=True) == dict.fromkeys(NAMES, 0)
    assert values([text], [text], stemming=True) == dict.fromkeys(NAMES, 0)  # even against itself


def test_a_single_word_has_no_bigrams():
    assert values(["Cats."], ["cats"]) == {"rouge1": 100, "rouge2": 0, "rougeL": 100, "rougeLsum": 100}


def test_signatures_say_how():
    told = rouge(["a"], ["a"])
    package = f"rouge-score {version('rouge-score')}"
    stems = f"stemming: yes (Porter, nltk {version('nltk')})"
    tail = "default tokeniser (lower-cased alphanumerics a-z, 0-9), one reference"
    assert told["rougeL"] == {
        "value": 100,
        "unit": "0 to 100",
        "signature": f"{package}, rougeL: LCS of the whole texts, each as one sequence, mean F1, {stems}, {tail}",
    }
    assert told["rougeLsum"]["signature"] == (
        f"{package}, rougeLsum: union LCS over sentences, separated by newlines, mean F1, {stems}, {tail}"
    )
    plain = rouge(["a"], ["a"], stemming=False)
    assert plain["rouge2"]["signature"] == f"{package}, rouge2: bigrams, mean F1, stemming: no, {tail}"
    assert Counter(type(score) for score in told.values()) == {dict: 4}
    assert len({score["signature"] for score in [*told.values(), *plain.values()]}) == 8


def test_unequal_lengths():
    with pytest.raises(DataError, match=re.escape("found 2 predictions and 3 references, expected equally many")):
        rouge(["a", "b"], ["a", "b", "c"])


def test_nothing_to_score():
    with pytest.raises(DataError, match=re.escape("found no predictions and no references, expected at least one")):
        rouge([], [])
