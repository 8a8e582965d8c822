"""IMI, how fast a model memorises: the area under its training curve, as a share of the ideal model's."""

from __future__ import annotations

from collections.abc import Sequence


def imi(curve: Sequence[float], ideal: float = 1.0) -> float:
    """The area of trapezoids under a training metric by epoch, over that of a model that is perfect at once.

    IMI = Σ (f_{i+1} + f_i) / (2 (E − 1) f_ideal), i from 1 to E − 1. Eq. 9 of the homeostasis paper prints a
    difference in place of the sum; that telescopes to (f_E − f_1) / (2 (E − 1)), at most a half, where Table 2
    has 0.705 to 0.743, and is not the area that the paper's text describes.

    Args:
        curve: f_1 to f_E, BLEU or accuracy on training data after each epoch, two at least.
        ideal: of the perfect model; 100 where the curve is in percent.
    """
    area = sum(curve) - (curve[0] + curve[-1]) / 2
    return area / ((len(curve) - 1) * ideal)
