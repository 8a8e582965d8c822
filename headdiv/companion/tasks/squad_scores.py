"""Exact match and F1 of answers as SQuAD v1.1's own scorer counts them (Rajpurkar et al. 2016)."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from headdiv.companion.data.readers.squad import Question
from headdiv.companion.tasks.base import Score, score

SIGNATURE = (
    "SQuAD v1.1: lower case, ASCII punctuation removed, a/an/the removed, white space joined; "
    "best over the gold answers; F1 0 without a common word; a question without prediction counts 0"
)

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalise(text: str) -> str:
    """The form in which answers are compared.

    In this order: lower case; the 32 ASCII punctuation characters deleted, so that "U.S." becomes "us" and
    "well-known" one word; the words a, an, the replaced by a space; white space joined to single spaces.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the prediction equals any of the gold answers, normalised."""
    return normalise(prediction) in {normalise(gold) for gold in golds}


def f1(prediction: str, golds: Sequence[str]) -> float:
    """The highest F1 with any of the gold answers, 0 to 1, over normalised words counted as often as they occur.

    Without a common word it is 0. So an answer that normalises to nothing ("The") has F1 0 even with itself,
    while it is an exact match: v1.1's scorer does the same.
    """
    words = Counter(normalise(prediction).split())
    return max(_overlap(words, Counter(normalise(gold).split())) for gold in golds)


def squad_scores(predictions: Mapping[str, str], questions: Sequence[Question]) -> dict[str, Score]:
    """Exact match ("em") and F1 ("f1") of predictions in percent, averaged over questions.

    Args:
        predictions: answer text by question id; a question without one scores 0, one without a question is ignored.
        questions: all questions that count.
    """
    answered = [
        (predictions[question.id], [answer.text for answer in question.answers])
        for question in questions
        if question.id in predictions
    ]
    totals = {
        "em": sum(exact_match(prediction, golds) for prediction, golds in answered),
        "f1": math.fsum(f1(prediction, golds) for prediction, golds in answered),
    }
    signature = f"{SIGNATURE}; {len(questions)} questions"
    return {name: score(100 * total / len(questions), "%", signature) for name, total in totals.items()}


def _overlap(words: Counter[str], gold: Counter[str]) -> float:
    common = (words & gold).total()
    # the harmonic mean of common/words and common/gold
    return 2 * common / (words.total() + gold.total()) if common else 0.0
