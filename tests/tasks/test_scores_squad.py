"""Exact match and F1 by SQuAD's own rules."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headdiv.companion.data.readers.squad import Answer, Question
from headdiv.companion.tasks.squad_scores import SIGNATURE, exact_match, f1, normalise, squad_scores

WORDS = st.sampled_from(["the", "The", "a", "an", "cat", "Cat", "cats", "sat", "U.S.", "--", "5", "5,000", "é", "Ä"])
TEXTS = st.one_of(st.lists(WORDS, max_size=6).map(" ".join), st.text(st.characters(codec="utf-8"), max_size=20))
GOLDS = st.lists(TEXTS, min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Mur", "mur"),
        ("  an\tapple,  A pear\nand the rest. ", "apple pear and rest"),
        ("U.S.", "us"),
        ("$5,000.00", "500000"),
        ("the-atre", "theatre"),
        ("vitamin A, another", "vitamin another"),
        ("\u201cDie\u201d \u2013 Ä", "\u201cdie\u201d \u2013 ä"),
        ("an\u2013a", "\u2013"),
    ],
)
def test_the_form_in_which_answers_are_compared(text, normal):
    assert normalise(text) == normal


def slow_normalise(text):
    """Literally, character by character: lower case, punctuation out, articles out, white space joined."""
    kept = "".join(c for c in text.lower() if c not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    runs = [""]  # letters, digits and marks of words on the one hand, all else on the other
    for letter in kept:
        if runs[-1] and (runs[-1][-1].isalnum() != letter.isalnum()):
            runs.append("")
        runs[-1] += letter
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def slow_f1(prediction, gold):
    """Literally: pair off equal words; precision, recall, and their harmonic mean."""
    said, left = slow_normalise(prediction).split(), slow_normalise(gold).split()
    length, common = len(left), 0
    for word in said:
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(said), common / length
    return 2 * precision * recall / (precision + recall)


@given(TEXTS)
@example("\u00b2a b_a the\u0301")
def test_normalising_as_defined(text):
    assert normalise(text) == slow_normalise(text)


@given(TEXTS, GOLDS)
def test_scores_as_defined(prediction, golds):
    assert exact_match(prediction, golds) == any(slow_normalise(prediction) == slow_normalise(gold) for gold in golds)
    assert f1(prediction, golds) == pytest.approx(max(slow_f1(prediction, gold) for gold in golds), abs=1e-12)


@pytest.mark.parametrize("gold", ["The", "...", "a."])
def test_an_answer_of_no_words_is_exact_and_has_no_f1_as_in_squads_own_scorer(gold):
    for prediction, exact in ((gold, True), ("", True), ("word", False)):
        assert (exact_match(prediction, [gold]), f1(prediction, [gold])) == (exact, 0)


def test_averages_in_percent_with_missing_predictions_as_0():
    answers = {"1": ["the Mur", "Mur"], "2": ["clock tower"], "3": ["28"], "4": ["Graz"]}
    questions = [Question(id, "?", "", tuple(Answer(text, 0) for text in texts)) for id, texts in answers.items()]
    shared = {"unit": "%", "signature": f"{SIGNATURE}; 4 questions"}
    assert squad_scores({"1": "mur.", "2": "tower", "3": "29", "9": "Graz"}, questions) == {
        "em": {"value": 25.0, **shared},
        "f1": {"value": pytest.approx(100 * (1 + 2 / 3 + 0) / 4), **shared},
    }
