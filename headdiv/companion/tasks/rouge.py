"""ROUGE of summaries, by Google's rouge-score package, with signatures that say how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from math import fsum

from headdiv.companion.tasks.base import Score, score
from headdiv.core.errors import DataError

UNIT = "0 to 100"
# What each score counts, for its signature.
VARIANTS = {
    "rouge1": "unigrams",
    "rouge2": "bigrams",
    "rougeL": "LCS of the whole texts, each as one sequence",
    "rougeLsum": "union LCS over sentences, separated by newlines",
}


def rouge(predictions: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum: the mean F1 over the examples, in percent.

    Texts are lower-cased and split at everything but the letters a to z and digits, so an accented
    letter separates words; those of more than 3 letters are compared by their Porter stems. A text of n words
    has max(n - 1, 0) bigrams. F1 is 0 where either text has nothing to count: an empty prediction scores 0, a text
    without any of those letters and digits scores 0 even against itself, and so does a single word in ROUGE-2. An
    unknown word, ``<unk>``, is the one word "unk": it counts in the precision, and only a reference that says "unk"
    would match it. (Written as a symbol, as BLEU needs it, it would be dropped, which rewards leaving words out.)

    It lacks ROUGE-1.5.5's WordNet exception list. On XSum's public outputs of T-ConvS2S it gives 31.58 / 11.49 / 25.58
    for ROUGE-1, -2 and -L, the Perl script 31.89 / 11.54 / 25.75.

    Texts of one sentence score the same in ROUGE-L and ROUGE-Lsum.

    Args:
        predictions: the summaries to score.
        references: one reference for each, in the same order.

    Returns:
        The scores "rouge1", "rouge2", "rougeL" and "rougeLsum", from 0 to 100.

    Raises:
        DataError: the numbers of predictions and references differ.

    Source: C.-Y. Lin, ROUGE: A Package for Automatic Evaluation of Summaries, 2004.
    """
    if len(predictions) != len(references):
        raise DataError(
            f"ROUGE: found {len(predictions)} predictions and {len(references)} references, expected equally many"
        )
    from rouge_score.rouge_scorer import RougeScorer  # takes a second, mostly for nltk

    scorer = RougeScorer(list(VARIANTS), use_stemmer=True)
    scored = [scorer.score(reference, text) for text, reference in zip(predictions, references, strict=True)]
    stemming = f"stemming: yes (Porter, nltk {version('nltk')})"
    tokeniser = "default tokeniser (lower-cased alphanumerics a-z, 0-9)"
    result = {}
    for name, counted in VARIANTS.items():
        measured = f"rouge-score {version('rouge-score')}, {name}: {counted}, mean F1"
        mean = 100 * fsum(scores[name].fmeasure for scores in scored) / len(scored)
        result[name] = score(mean, UNIT, f"{measured}, {stemming}, {tokeniser}, one reference")
    return result
