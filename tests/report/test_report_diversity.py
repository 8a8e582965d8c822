"""BLEU against measures of how alike heads are: rank correlation, parabola, bootstrap over variants."""

import numpy as np
import pandas as pd
import pytest
from reported import headed, measures, put, write_profile

from headdiv.companion.report import figures
from headdiv.companion.report.diversity import diversity_table, relation, runs_table
from headdiv.companion.report.groups import by_variant

EXPERIMENT = "headtohead/translation"


def run(variant, seed, bleu):
    return headed(variant, seed, experiment=EXPERIMENT, bleu=bleu) | {"heads": measures(int(bleu))}


def table(x, y, seeds=2):
    return pd.DataFrame({"variant": np.repeat(range(len(x) // seeds), seeds), "cka": x, "bleu": y})


def literal_spearman(x, y):
    """Without ties: 1 − 6 Σ d² / (n(n² − 1))."""
    ranks = [[sum(other < value for other in values) for value in values] for values in (x, y)]
    n = len(x)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(*ranks, strict=True)) / (n * (n * n - 1))


def test_an_arch_has_its_optimum_and_a_line_has_none():
    x = np.linspace(0.1, 0.9, 12)
    arch = relation(table(x, 30 - 50 * (x - 0.6) ** 2), "cka")
    assert arch.optimum == pytest.approx(0.6, abs=0.05)
    line = relation(table(x, 20 - 5 * x + 0.1 * x**2), "cka")
    assert line.optimum is None
    assert line[:3] == pytest.approx((-1, -1, -1))


def test_the_correlation_is_the_literal_one_and_the_interval_is_of_variants():
    rng = np.random.default_rng(3)
    x, noise = rng.normal(size=40), rng.normal(size=40)
    noisy = relation(table(x, x + noise, seeds=1), "cka")
    assert noisy.rho == pytest.approx(literal_spearman(x, x + noise))
    assert noisy.low < noisy.rho < noisy.high
    copies = table(np.repeat(x[:10], 4), np.repeat((x + noise)[:10], 4), seeds=4)
    once = relation(table(x[:10], (x + noise)[:10], seeds=1), "cka")
    assert relation(copies, "cka")[:3] == pytest.approx(once[:3])  # four equal seeds say no more than one


def test_the_table_comes_from_five_variants_on(project):
    variants = ["baseline", "direct-8", "alphas", "dis-o"]
    write_profile(project, "p", EXPERIMENT, variants=[*variants, "own"])
    for i, variant in enumerate(variants):
        put(*(run(variant, seed, bleu=20.0 + i + seed) for seed in (1, 2)))
    assert diversity_table(by_variant("p", EXPERIMENT)).empty
    put(run("own", 3, bleu=28.0))
    assert diversity_table(by_variant("p", EXPERIMENT)).empty  # no seed of the profile's
    put(run("own", 1, bleu=28.0))
    (row,) = diversity_table(by_variant("p", EXPERIMENT)).to_dict("records")
    assert (row["Runs"], row["Measure"]) == ("all (9 runs of 5 variants)", "cosine of outputs")
    assert runs_table(by_variant("p", EXPERIMENT))["bleu"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 7]  # to its seed's
    figure = figures.draw("headtohead_diversity", "p")
    assert ["ρ" in ax.get_title() for ax in figure.axes] == [False, True, False]  # the cosine alone is stored


@pytest.mark.parametrize("cosine", [0.6, -0.6, 0.06])
def test_a_lone_method_stands_at_the_edge_of_an_axis_that_the_others_fill(project, cosine):
    variants = ["baseline", "direct-8", "alphas", "dis-o", "moa-32-4", "moa-8-4"]
    write_profile(project, "p", EXPERIMENT, variants=variants)
    for place, variant in enumerate(variants):
        stored = run(variant, 1, bleu=20.0 + place)
        for module in stored["heads"]["measures"].values():
            value = {"moa-32-4": cosine, "moa-8-4": 1.1 * cosine}.get(variant, 0.01 * place)
            module["cosine"] = np.where(np.eye(3), 1.0, value).tolist()
        put(stored)
    ax = figures.draw("headtohead_diversity", "p").axes[1]
    texts = [text.get_text() for text in ax.texts]
    assert texts == {0.6: ["0.600 to 0.660 →"], -0.6: ["← −0.660 to −0.600"], 0.06: []}[cosine]
    low, high = ax.get_xlim()
    assert (low < cosine < high) == (not texts)
    assert low < 0 < 0.03 < high
