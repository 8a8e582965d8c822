"""Which units stay active: the homeostasis paper's Eqs. 1 to 8 as functions without state.

Letters: T rows, G groups (the heads; one at a block's output), n units of a group (the paper's D_h, or D).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from headdiv.core.precision import at_least_float32

Interpretation = Literal["inhibition", "inverted", "printed"]  # of Eq. 7
HIGHEST, LOWEST = 0.99, 0.01  # a and b of Eq. 7: the largest and the smallest probability
EXPONENT = 0.83


def survivors(units: int, s: float) -> int:
    """kWTA's k = round(s·n); halves go to the even number, as Python rounds."""
    return round(s * units)


def winners(x: Tensor, k: int) -> Tensor:
    """The mask of Eq. 1: in the last dimension exactly the k largest values, among equal ones the first.

    Largest is by value, as in the paper, not by magnitude. NaN is never chosen.

    Args:
        x: (…, n); so is the mask.
        k: from 1 to n.
    """
    x = x.detach()
    threshold = _kth_largest(x, k)
    mask = x >= threshold
    # Ties at the threshold are rare, so on the CPU it pays to look; on a GPU, looking means waiting.
    if _readable(x) and int(mask.sum()) * x.shape[-1] == x.numel() * k:
        return mask
    above = x > threshold
    tied = mask & ~above
    return above | (tied & (tied.cumsum(-1) <= k - above.sum(-1, keepdim=True)))


def _kth_largest(x: Tensor, k: int) -> Tensor:
    """(…, n) -> (…, 1)."""
    index = x.shape[-1] - k  # in rising order
    if not _readable(x):
        return x.kthvalue(index + 1, dim=-1, keepdim=True).values
    # numpy partitions short rows with vector instructions: measured, an eighth of the time of torch's kthvalue.
    values = at_least_float32(x).numpy()
    return torch.from_numpy(np.partition(values, index, axis=-1)[..., index : index + 1])


def _readable(x: Tensor) -> bool:
    """Whether values can be read at no cost: on the CPU, and not while torch traces."""
    return x.device.type == "cpu" and not is_compiling()


def boost(counts: Tensor, k: int) -> Tensor:
    """What Eq. 6 multiplies values by: (max(t) − t + min(t)) / v, group by group.

    v is the k-th largest count. In every counted row k units won, so at least k units have a count and v is 0 only
    where nothing was counted yet: the boost is then 1, as it is where all counts are equal. A unit that always won
    gets 0 if another never did.

    Args:
        counts: (…, n), times that each unit was active: t̄ of Eq. 5; integers.
        k: winners of a group.

    Returns:
        (…, n), float64.
    """
    low, high = counts.amin(-1, keepdim=True), counts.amax(-1, keepdim=True)
    v = counts.kthvalue(counts.shape[-1] - k + 1, dim=-1, keepdim=True).values  # (…, 1)
    return torch.where(v > 0, (high - counts + low).double() / v.clamp_min(1), 1.0)


def keep_probabilities(
    counts: Tensor, s: float, interpretation: Interpretation = "inhibition", delta: float = 0.0
) -> Tensor:
    """The probability with which "Smart" inhibition keeps each unit: Eqs. 7 and 8, group by group.

    Eq. 7 grows with activity, P = ((a − b) (t − min) / (max − min) + b)^0.83, where the paper's text wants rare units
    to be active more often. (It prints the formula without "+ b", and so with 0 as the smallest value.)

        inhibition  P is the probability of being switched off: 1 − P are kept
        inverted    P is that of being kept, with max − t in place of t − min
        printed     P, with + b, is that of being kept, as in the formula: what is often active stays so

    Eq. 8 then moves all of them by one amount, so that their median is s, and here they are held between b and a,
    because a probability can be neither below 0 nor above 1, and a unit must be able to come back. For an even number
    of units the median is the lower of the two middle ones, as in torch. Equal counts give s for every unit.

    Args:
        counts: (…, n), times that each unit was active; integers.
        s: the desired median, from b to a.
        interpretation: of Eq. 7.
        delta: δ of Eq. 8, how far the median may be from s before it is moved; the paper gives no value.

    Returns:
        (…, n), float64.
    """
    low, high = counts.amin(-1, keepdim=True), counts.amax(-1, keepdim=True)
    span = high - low
    share = ((high - counts) if interpretation == "inverted" else (counts - low)).double() / span.clamp_min(1)
    p = ((HIGHEST - LOWEST) * share + LOWEST) ** EXPONENT
    if interpretation == "inhibition":
        p = 1 - p
    shift = s - p.median(dim=-1, keepdim=True).values  # (…, 1)
    moved = torch.where(shift.abs() > delta, p + shift, p).clamp(LOWEST, HIGHEST)
    return torch.where(span > 0, moved, s)


def sampled(keep: Tensor, rows: int) -> Tensor:
    """A mask for each row, from torch's global generator: (G, n) probabilities -> (T, G, n) booleans."""
    return torch.rand(rows, *keep.shape, device=keep.device) < keep.float()
