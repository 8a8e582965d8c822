"""The homeostasis paper's equations written out with loops: shared by the tests of kWTA and of the method."""

import statistics


def literal_winners(row, k):
    """Eq. 1: M is the set of the k largest elements; of equal ones the first."""
    best = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    return [i in best for i in range(len(row))]


def literal_boost(t, k):
    """Eq. 6, v being the k-th of the counts in descending order."""
    v = sorted(t, reverse=True)[k - 1]
    return [(max(t) - count + min(t)) / v if v else 1.0 for count in t]


def literal_keep(t, s, reading, delta):
    """Eqs. 7 and 8, one unit at a time."""
    a, b = 0.99, 0.01
    if max(t) == min(t):
        return [s] * len(t)
    share = [(count - min(t)) / (max(t) - min(t)) for count in t]
    if reading == "inverted":
        share = [1 - x for x in share]
    p = [((a - b) * x + b) ** 0.83 for x in share]
    if reading == "inhibition":
        p = [1 - x for x in p]
    median = statistics.median_low(p)
    if abs(median - s) > delta:
        p = [x + s - median for x in p]
    return [min(max(x, b), a) for x in p]
