"""What a difference between two variants decides: the one rule of all tables, figures and sentences."""

from __future__ import annotations

import math

from headdiv.companion.analysis.comparison import Difference

ALPHA = 0.05
LOWEST_LOSS = "validation_nll_best"  # the primary measure: the lowest validation loss of any epoch
MEAN_BLEU = "bleu_mean"  # over data.test and data.more_tests
# Within which two variants count as equally good: BLEU, nats a token.
MARGINS = {"bleu": 0.5, MEAN_BLEU: 0.5, "validation_nll": 0.01, LOWEST_LOSS: 0.01}

BETTER, WORSE, AS_GOOD, UNDECIDED, NOT_JUDGED = "better", "worse", "as good", "undecided", "one seed, not judged"
VERDICTS = (BETTER, WORSE, AS_GOOD, UNDECIDED, NOT_JUDGED)
NOT_YET = "not judged yet"  # in place of a verdict, while runs are missing that rules ask for
NO_DIFFERENCE = Difference(math.nan, math.nan, 0)


def verdict(difference: Difference, higher: bool = True, margin: float | None = None) -> str:
    """One of `VERDICTS`.

    Better or worse only where the simultaneous interval leaves out 0; as good only where two one-sided t-tests at 5 %
    show it within ``margin``. A difference of one seed, or without an interval, is not judged: how far another training
    would be off is known only of the other rows.

    Args:
        difference: with its interval.
        higher: whether more is better.
        margin: of equivalence; None: not tested.
    """
    if difference.count < 2 or math.isnan(difference.half):
        return NOT_JUDGED
    if not difference.low <= 0 <= difference.high:
        return BETTER if (difference.mean > 0) == higher else WORSE
    return AS_GOOD if margin is not None and difference.equivalence(margin) <= ALPHA else UNDECIDED
