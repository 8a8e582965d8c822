"""Drawings and tables of routers, from metrics written by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from reported import MIXED, routed, write_profile

import headdiv
from headdiv.core.errors import DataError
from headdiv.experiments import catalogue
from headdiv.experiments import results as store
from headdiv.experiments.papers import task_of
from headdiv.report import figures, moa, show

TRANSLATION, MLM = MIXED
ROUTERS, WORDS = ("moa_translation_routers", "moa_translation_words")


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", *MIXED)


def put(*told):
    for metrics in told:
        store.record(metrics, "p")


def router(load, gate):
    return {"load": load, "gate": gate, "entropy": 0.5, "words": [[] for _ in load], "tokens": 10}


# ---- numbers


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=1, max_size=9))
def test_importance_is_each_expert_s_share_of_all_gates(pairs):
    load, gate = zip(*pairs, strict=True)
    total = sum(a * b for a, b in pairs)
    found = moa.importance(router(load, gate))
    assert found == pytest.approx([a * b / total for a, b in pairs])
    assert found.sum() == pytest.approx(1)


def test_an_expert_that_is_never_chosen_has_no_importance():
    assert moa.importance(router([0.0, 1.0], [0.0, 0.4])).tolist() == [0, 1]
    assert moa.importance(router([0.0, 0.0], [0.0, 0.0])).tolist() == [0, 0]


def test_the_busiest_come_first_and_of_equal_ones_the_lower_number():
    assert moa.busiest(router([0.2, 0.3, 0.2, 0.3], [1] * 4)) == [1, 3, 0, 2]


# ---- the table


def test_every_expert_of_every_module_has_a_line():
    told = routed("moa-8-4", 1)
    put(told, routed("moa-8-4", 2))
    table = headdiv.router_words("p", TRANSLATION, "moa-8-4")
    assert list(table.columns) == ["module", "expert", "load", "gate", "words"]
    assert list(dict.fromkeys(table["module"])) == list(told["heads"]["router"])
    for place, lines in table.groupby("module", sort=False):
        stored = told["heads"]["router"][place]
        assert sorted(lines["expert"]) == list(range(1, 9))
        assert lines["load"].is_monotonic_decreasing
        for _, line in lines.iterrows():
            assert line["load"] == stored["load"][line["expert"] - 1]
            assert line["gate"] == stored["gate"][line["expert"] - 1]
    kind = table["module"][0].split()[0]
    by_expert = table[table["module"] == f"{kind} 1"].set_index("expert")["words"]
    assert by_expert[1] == ""
    assert by_expert[2] == f"{kind}1$0 ×3.2, {kind}1$1 ×2.2, {kind}1$2 ×1.2"


def test_the_table_of_another_seed():
    put(routed("moa-8-4", 1), routed("moa-8-4", 2))
    first, second = (headdiv.router_words("p", TRANSLATION, "moa-8-4", seed) for seed in (1, 2))
    assert not first.equals(second)
    pd.testing.assert_frame_equal(first, headdiv.router_words("p", TRANSLATION, "moa-8-4"))


@pytest.mark.parametrize(
    ("variant", "seed", "message"),
    [
        ("moa-32-4", None, "router_words needs one of moa-32-4 among the stored runs of profile p"),
        ("moa-8-4", 3, "router_words: seed 3 of moa-8-4 is not stored; there are: 1"),
        (
            "baseline",
            None,
            "router_words: the stored results of baseline (seed 1) have no heads.router; remove their metrics.json, "
            "and `snakemake reproduce-all --config profile=p` makes them anew",
        ),
    ],
)
def test_a_table_that_cannot_be_made_says_why(variant, seed, message):
    put(routed("baseline", 1), routed("moa-8-4", 1))
    with pytest.raises(DataError) as found:
        headdiv.router_words("p", TRANSLATION, variant, seed)
    assert str(found.value) == message


# ---- load, importance, entropy


def heat(ax):
    """The numbers of a heat map."""
    return ax.collections[0].get_array().reshape(-1, ax.get_xlim()[1].astype(int)).data


def test_shares_are_in_units_of_an_even_one_and_in_the_module_s_own_order():
    told = routed("moa-8-4", 1)
    put(routed("baseline", 1), told)
    figure = figures.draw(ROUTERS, "p")
    load, weight, entropy = figure.axes[:3]
    modules = told["heads"]["router"]
    assert [label.get_text() for label in load.get_yticklabels()] == list(modules)
    for row, router in enumerate(modules.values()):
        assert heat(load)[row] == pytest.approx(sorted(np.array(router["load"]) * 8, reverse=True))
        assert heat(weight)[row] == pytest.approx(sorted(moa.importance(router) * 8, reverse=True))
    assert [bar.get_width() for bar in entropy.patches] == [router["entropy"] for router in modules.values()]
    (line,) = entropy.lines
    assert line.get_xdata()[0] == pytest.approx(np.log(8))
    assert entropy.get_title(loc="right") == "log E = 2.08"
    assert load.get_title(loc="left") == "MoA, 4 of 8 experts"
    assert figure.get_suptitle() == "Routers: toy, 2 epochs, seed 1"


def test_an_even_load_is_white_in_every_row_whatever_the_largest_is():
    put(routed("moa-8-8", 1), routed("moa-32-4", 1))
    figure = figures.draw(ROUTERS, "p")
    even, uneven = figure.axes[0], figure.axes[3]
    assert [ax.get_title(loc="left") for ax in (even, uneven)] == ["MoA, 8 of 8 experts", "MoA, 4 of 32 experts"]
    assert heat(even) == pytest.approx(np.ones((6, 8)))
    colours = even.collections[0]
    assert min(colours.to_rgba(1.0)[:3]) > 0.93
    assert colours.norm.vmax == uneven.collections[0].norm.vmax >= 2
    assert len({to_hex(colours.to_rgba(value)) for value in (0.0, 0.5, 1.0, 2.0)}) == 4


def test_a_single_expert_can_be_drawn():
    told = routed("moa-8-4", 1)
    told["heads"]["router"] = {"encoder 1": router([1.0], [1.0])}
    put(told)
    assert len(figures.draw(ROUTERS, "p").axes[0].get_yticklabels()) == 1


# ---- words


def texts(figure):
    return {ax.get_title(loc="left"): ax.texts[0].get_text().split("\n") for ax in figure.axes if ax.texts}


def test_the_busiest_experts_of_every_module_are_told_of_with_their_words():
    told = routed("moa-32-4", 1)
    put(routed("moa-8-8", 1), routed("moa-8-4", 1), told)
    figure = figures.draw(WORDS, "p")
    assert figure.get_suptitle() == "Words of the busiest experts · MoA, 4 of 32 experts: toy, 2 epochs, seed 1"
    found = texts(figure)
    assert list(found) == [
        f"{kind}, layer {layer}"
        for layer in (1, 2)
        for kind in ("encoder self-attention", "decoder self-attention", "encoder-decoder attention")
    ]
    stored = told["heads"]["router"]["cross 2"]
    lines = found["encoder-decoder attention, layer 2"]
    for expert, (name, words) in zip(moa.busiest(stored)[:3], zip(lines[::2], lines[1::2], strict=True), strict=True):
        assert name == f"expert {expert + 1} ({100 * stored['load'][expert]:.1f} %)"
        own = [word["word"] for word in stored["words"][expert]]
        assert words.strip() == (" · ".join(own) if own else "no word more than others do")
    figure.canvas.draw()  # dollar signs are no formulas


def test_words_that_do_not_fit_are_left_out():
    told = routed("moa-8-4", 1)
    for expert in told["heads"]["router"]["encoder 1"]["words"]:
        expert[:] = [{"word": f"word-{number}", "ratio": 2.0, "count": 9} for number in range(10)]
    put(told)
    line = texts(figures.draw(WORDS, "p"))["encoder self-attention, layer 1"][1].strip()
    assert line == " · ".join(f"word-{number}" for number in range(4))
    assert len(line) <= moa.LINE


def test_one_kind_of_attention_has_its_layers_side_by_side():
    told = routed("moa-8-4", 1, experiment=MLM)
    put(told)
    figure = figures.draw("moa_mlm_words", "p")
    assert list(texts(figure)) == ["encoder self-attention, layer 1", "encoder self-attention, layer 2"]
    first, second = (ax.get_subplotspec() for ax in figure.axes)
    assert (first.rowspan.start, second.rowspan.start) == (0, 0)


# ---- which profiles have them


def test_figures_need_variants_with_routers():
    def of(*variants):
        return list(catalogue.figures_of((TRANSLATION, variant) for variant in variants))

    assert of("baseline") == ["moa_translation_curves"]
    assert of("baseline", "moa-8-8") == ["moa_translation_curves", ROUTERS]  # who serves every word prefers none
    assert of("moa-8-4") == ["moa_translation_curves", ROUTERS, WORDS]


def test_words_are_of_variants_that_choose():
    for experiment, name in ((TRANSLATION, WORDS), (MLM, "moa_mlm_words")):
        rows = task_of(experiment).variants
        choosing = {name for name, row in rows.items() if row.method.get("k", 0) < row.method.get("experts", 0)}
        assert set(catalogue.figure_entry(name).variants) == choosing


@pytest.mark.parametrize("name", [ROUTERS, WORDS, "moa_mlm_routers", "moa_mlm_words"])
def test_a_figure_without_its_runs_says_so(name):
    put(routed("baseline", 1), routed("baseline", 1, experiment=MLM))
    with pytest.raises(DataError) as found:
        figures.draw(name, "p")
    variants = ", ".join(catalogue.figure_entry(name).variants)
    assert str(found.value) == f"{name} needs one of {variants} among the stored runs of profile p"


def test_a_profile_without_the_paper_has_a_line_in_the_notebook(project):
    write_profile(project, "alone", "qa")
    assert show.show_figure(WORDS, "alone").data == "*Profile alone has no moa/translation.*"
