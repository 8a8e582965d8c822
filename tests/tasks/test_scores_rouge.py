"""ROUGE against slow, literal twins, and what its signatures say."""

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.tasks.rouge import rouge
from headdiv.core.errors import DataError

NAMES = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
# Few words, so that they repeat; none is touched by lower-casing, splitting or stemming.
WORDS = st.lists(st.sampled_from(["a", "cat", "dog", "sat", "on", "2", "mat", "bird"]), max_size=9)
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


def values(predictions, references):
    return {name: score["value"] for name, score in rouge(predictions, references).items()}


@given(PAIRS)
def test_scores_are_those_of_the_definitions(pairs):
    got = values([" ".join(prediction) for prediction, _ in pairs], [" ".join(reference) for _, reference in pairs])
    want = {
        "rouge1": [ngram_twin(*pair, 1) for pair in pairs],
        "rouge2": [ngram_twin(*pair, 2) for pair in pairs],
        "rougeL": [lcs_twin(*pair) for pair in pairs],
        "rougeLsum": [lcs_twin(*pair) for pair in pairs],  # one sentence each: the same as ROUGE-L
    }
    assert got == pytest.approx(
        {name: 100 * float(sum(result) / len(result)) for name, result in want.items()}, abs=1e-9
    )


@pytest.mark.parametrize(
    ("text", "reference", "alike"),
    [
        ("cats running", "cat runs", 100),  # stems
        ("ads", "ad", 0),  # three letters are never stemmed
        ("The U.S. won 3-2!", "the u s WON 3 2", 100),
        ("naïve", "na ve", 100),
    ],
)
def test_stems_case_punctuation_and_accents(text, reference, alike):
    assert values([text], [reference])["rouge1"] == alike


def test_sentences_count_in_rouge_lsum_only():
    # turned round, both sentences are found whole, but one sequence holds only one of them
    got = values(["two dogs barked\none cat sat"], ["one cat sat\ntwo dogs barked"])
    assert got["rougeLsum"] == 100
    assert got["rougeL"] == pytest.approx(50)


@pytest.mark.parametrize("text", ["", "— ? é ß 猫"])
def test_texts_with_nothing_to_count_score_zero(text):
    assert values([text], ["a cat sat"]) == dict.fromkeys(NAMES, 0)
    assert values(["a cat sat"], [text]) == dict.fromkeys(NAMES, 0)
    assert values([text], [text]) == dict.fromkeys(NAMES, 0)  # even against itself


def test_texts_and_references_are_paired():
    with pytest.raises(DataError, match="2 predictions and 3 references"):
        rouge(["a", "b"], ["a", "b", "c"])
