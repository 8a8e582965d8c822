"""Intervals over seeds and the paired bootstrap over sentences."""

import math
import statistics as plain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import BLEU, corpus_bleu
from sacrebleu.significance import PairedTest

from headdiv.analysis.statistics import (
    SAMPLES,
    SEED,
    coefficient_of_variation,
    interval,
    paired_bootstrap,
    sentence_counts,
)

# Student's t, two-sided 95 %, as tables print it.
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize("freedom", PRINTED)
def test_quantiles_are_those_of_printed_tables(freedom):
    values = list(np.random.default_rng(freedom).normal(size=freedom + 1))
    assert round(interval(values).half / plain.stdev(values) * math.sqrt(freedom + 1), 3) == PRINTED[freedom]


def test_an_interval_of_three_seeds():
    found = interval([30.0, 31.0, 32.0])
    assert (found.mean, found.count) == (31.0, 3)
    assert found.half == pytest.approx(4.302653 * 1.0 / math.sqrt(3), rel=1e-6)
    assert (found.low, found.high) == (31.0 - found.half, 31.0 + found.half)


def test_one_seed_has_no_interval_and_none_no_mean():
    assert interval([4.0]).mean == 4.0
    assert all(math.isnan(x) for x in (interval([4.0]).half, interval([4.0]).low, interval([]).mean))
    assert math.isnan(interval([1.0, math.nan]).mean)
    assert interval([2.0, 2.0]).half == 0


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6), st.floats(-50, 50))
def test_an_interval_moves_with_its_numbers(values, shift):
    one, other = interval(values), interval([value + shift for value in values])
    assert other.mean == pytest.approx(one.mean + shift, abs=1e-9)
    assert other.half == pytest.approx(one.half, abs=1e-6)
    assert one.half >= plain.stdev(values) / math.sqrt(len(values))


# ---- bootstrap


def sentences(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefgh"), 8)) for _ in range(n)]


def worse(lines, share, seed):
    rng = np.random.default_rng(seed)
    return [" ".join("z" if rng.random() < share else word for word in line.split()) for line in lines]


def bootstrap(base, systems, references, lowercase=False):
    """Of translations as text."""
    counts = {name: sentence_counts(lines, references, lowercase) for name, lines in {"": base, **systems}.items()}
    return paired_bootstrap(counts.pop(""), counts, lowercase)


def sampled_differences(base, system, references):
    """A literal twin: the whole test set drawn and scored anew for each sample."""
    draws = np.random.default_rng(SEED).choice(len(references), size=(SAMPLES, len(references)), replace=True)
    scored = [
        [
            BLEU().corpus_score([lines[i] for i in draw], [[references[i] for i in draw]]).score
            for lines in (base, system)
        ]
        for draw in draws
    ]
    return np.array([b - a for a, b in scored])


def test_the_bootstrap_scores_the_samples_as_sacrebleu_does():
    references = sentences(12)
    base, system = worse(references, 0.3, 1), worse(references, 0.2, 2)
    found = bootstrap(base, {"x": system}, references)
    scores = [corpus_bleu(lines, [references]).score for lines in (base, system)]
    assert (found.baseline, found.scores["x"]) == pytest.approx(tuple(scores))
    differences = sampled_differences(base, system, references)
    as_large = np.abs(differences - differences.mean()) >= abs(scores[1] - scores[0])
    assert found.p_values["x"] == pytest.approx((as_large.sum() + 1) / (SAMPLES + 1))
    assert 1 / (SAMPLES + 1) < found.p_values["x"] < 1


def test_draws_and_signature_are_sacrebleus():
    """Its own p-value, worked out from the same samples, is its own."""
    references = sentences(12)
    base, system = worse(references, 0.3, 1), worse(references, 0.2, 2)
    systems = [("base", base), ("x", system)]
    signatures, results = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=SAMPLES)()
    assert bootstrap(base, {"x": system}, references).signature == str(signatures["BLEU"])
    sizes = np.abs(sampled_differences(base, system, references))
    whole = abs(results["BLEU"][1].score - results["BLEU"][0].score)
    assert results["BLEU"][1].p_value == pytest.approx(((sizes - sizes.mean() > whole).sum() + 1) / (SAMPLES + 1))


def test_of_equally_good_systems_one_in_twenty_differs():
    found = []
    for trial in range(100):
        references = sentences(40, trial)
        pair = [worse(references, 0.25, 2 * trial + side) for side in (0, 1)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headdiv.analysis.statistics.SAMPLES", 100)
            found.append(bootstrap(pair[0], {"x": pair[1]}, references).p_values["x"])
    assert 0.01 <= np.mean(np.array(found) < 0.05) <= 0.09
    assert 0.4 < np.median(found) < 0.6
    assert max(found) > 0.9


def test_number_of_samples_and_seed_are_fixed_and_named(monkeypatch):
    references = sentences()
    base, systems = worse(references, 0.3, 1), {"x": worse(references, 0.28, 2)}
    found = bootstrap(base, systems, references)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert bootstrap(base, systems, references) == found
    assert found.signature.startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "case:lc" in bootstrap(base, systems, references, lowercase=True).signature


def test_equal_translations_do_not_differ():
    references = sentences()
    base = worse(references, 0.3, 1)
    found = bootstrap(base, {"same": list(base), "much": references}, references)
    assert found.p_values["same"] == 1
    assert found.p_values["much"] < 0.01


def test_translations_must_be_as_many_as_references():
    with pytest.raises(ValueError, match=r"^1 translations for 2 references$"):
        sentence_counts(["a"], ["a", "b"])
    with pytest.raises(ValueError, match=r"^1 sentences of x, 2 of the baseline$"):
        paired_bootstrap(np.zeros((2, 10)), {"x": np.zeros((1, 10))})


def test_the_variation_of_few_measurements_is_corrected():
    """Belz 2022: of two values the standard deviation is divided by c4 = 0.7979, and 1/8 is added."""
    assert coefficient_of_variation([9.0, 11.0]) == pytest.approx(100 * 1.125 * math.sqrt(2) / 0.797885 / 10, rel=1e-5)
    assert coefficient_of_variation([5.0, 5.0, 5.0]) == 0
