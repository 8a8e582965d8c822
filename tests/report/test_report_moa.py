"""Figures and the table of routers, from metrics written by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reported import MIXED, routed, write_profile

import headdiv
from headdiv.core.errors import DataError
from headdiv.experiments import catalogue
from headdiv.experiments import results as store
from headdiv.experiments.papers import task_of
from headdiv.report import figures, moa

TRANSLATION, MLM = MIXED
ROUTERS, WORDS = "moa_translation_routers", "moa_translation_words"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", *MIXED)


def put(*runs):
    for metrics in runs:
        store.record(metrics, "p")


def router(load, gate):
    return {"load": load, "gate": gate, "entropy": 0.5, "words": [[] for _ in load], "tokens": 10}


def statistics(load, gate):
    return moa.RouterStatistics.model_validate(router(load, gate))


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=1, max_size=9))
def test_importance_is_each_expert_s_share_of_all_gates(pairs):
    load, gate = zip(*pairs, strict=True)
    total = sum(a * b for a, b in pairs)
    found = statistics(load, gate).importance
    assert found == pytest.approx([a * b / total for a, b in pairs])
    assert found.sum() == pytest.approx(1)


def test_an_expert_that_is_never_chosen_has_no_importance():
    assert statistics([0.0, 1.0], [0.0, 0.4]).importance.tolist() == [0, 1]
    assert statistics([0.0, 0.0], [0.0, 0.0]).importance.tolist() == [0, 0]


def test_the_busiest_come_first_and_of_equal_ones_the_lower_number():
    assert statistics([0.2, 0.3, 0.2, 0.3], [1] * 4).busiest == [1, 3, 0, 2]


def test_the_table_has_a_line_for_every_expert_of_every_module():
    run = routed("moa-8-4", 2)
    put(routed("moa-8-4", 1), run)
    table = headdiv.router_words("p", TRANSLATION, "moa-8-4", seed=2)
    assert list(table.columns) == ["module", "expert", "load", "gate", "words"]
    assert list(dict.fromkeys(table["module"])) == list(run["heads"]["router"])
    for module, lines in table.groupby("module", sort=False):
        stored = run["heads"]["router"][module]
        assert sorted(lines["expert"]) == list(range(1, 9))
        assert lines["load"].is_monotonic_decreasing
        for _, line in lines.iterrows():
            expert = line["expert"] - 1
            assert (line["load"], line["gate"]) == (stored["load"][expert], stored["gate"][expert])
    by_expert = table[table["module"] == "encoder 1"].set_index("expert")["words"]
    assert by_expert[1] == ""
    assert by_expert[2] == "encoder1$0 ×3.2, encoder1$1 ×2.2, encoder1$2 ×1.2"


@pytest.mark.parametrize(
    ("variant", "seed", "message"),
    [
        ("moa-32-4", None, "router_words needs one of moa-32-4 among the stored runs of profile p"),
        ("moa-8-4", 3, "seed 3 of moa-8-4 is not stored; there are: 1"),
        ("baseline", None, r"baseline \(seed 1\) have no heads.router; remove their metrics.json"),
    ],
)
def test_a_table_that_cannot_be_made_says_why(variant, seed, message):
    put(routed("baseline", 1), routed("moa-8-4", 1))
    with pytest.raises(DataError, match=message):
        headdiv.router_words("p", TRANSLATION, variant, seed)


def heat(ax):
    """The numbers of a heat map."""
    return ax.collections[0].get_array().reshape(-1, ax.get_xlim()[1].astype(int)).data


def test_load_importance_and_entropy_of_every_router_are_drawn():
    run = routed("moa-8-4", 1)
    put(routed("baseline", 1), run)
    load, weight, entropy = figures.draw(ROUTERS, "p").axes[:3]
    modules = run["heads"]["router"]
    assert [label.get_text() for label in load.get_yticklabels()] == list(modules)
    for row, stored in enumerate(modules.values()):
        assert heat(load)[row] == pytest.approx(sorted(np.array(stored["load"]) * 8, reverse=True))
        importance = moa.RouterStatistics.model_validate(stored).importance
        assert heat(weight)[row] == pytest.approx(sorted(importance * 8, reverse=True))
    assert [bar.get_width() for bar in entropy.patches] == [stored["entropy"] for stored in modules.values()]
    assert entropy.lines[0].get_xdata()[0] == pytest.approx(np.log(8))


def test_an_even_load_is_white_and_all_rows_have_the_same_colours():
    put(routed("moa-8-8", 1), routed("moa-32-4", 1))
    figure = figures.draw(ROUTERS, "p")
    even, uneven = figure.axes[0], figure.axes[3]
    assert heat(even) == pytest.approx(np.ones((6, 8)))
    assert min(even.collections[0].to_rgba(1.0)[:3]) > 0.93
    assert even.collections[0].norm.vmax == uneven.collections[0].norm.vmax >= 2


def test_a_single_expert_can_be_drawn():
    run = routed("moa-8-4", 1)
    run["heads"]["router"] = {"encoder 1": router([1.0], [1.0])}
    put(run)
    assert len(figures.draw(ROUTERS, "p").axes[0].get_yticklabels()) == 1


def texts(figure):
    return {ax.get_title(loc="left"): ax.texts[0].get_text().split("\n") for ax in figure.axes if ax.texts}


def test_the_words_of_the_busiest_experts_of_every_module_are_drawn():
    run = routed("moa-32-4", 1)
    long = run["heads"]["router"]["encoder 1"]["words"]
    long[:] = [[{"word": f"word-{number}", "ratio": 2.0, "count": 9} for number in range(10)]] * len(long)
    put(routed("moa-8-8", 1), routed("moa-8-4", 1), run)
    figure = figures.draw(WORDS, "p")
    found = texts(figure)
    assert len(found) == 6
    stored = moa.RouterStatistics.model_validate(run["heads"]["router"]["cross 2"])
    lines = found["encoder-decoder attention, layer 2"]
    for expert, name, words in zip(stored.busiest[:3], lines[::2], lines[1::2], strict=True):
        assert name.startswith(f"expert {expert + 1} ({100 * stored.load[expert]:.1f}")
        assert words.strip() == (
            " · ".join(word.word for word in stored.words[expert]) or "no word more than others do"
        )
    assert found["encoder self-attention, layer 1"][1].strip() == " · ".join(f"word-{number}" for number in range(4))
    figure.canvas.draw()  # dollar signs are no formulas


def test_one_kind_of_attention_has_its_layers_side_by_side():
    put(routed("moa-8-4", 1, experiment=MLM))
    figure = figures.draw("moa_mlm_words", "p")
    assert list(texts(figure)) == ["encoder self-attention, layer 1", "encoder self-attention, layer 2"]
    assert {ax.get_subplotspec().rowspan.start for ax in figure.axes} == {0}


def test_words_are_of_variants_that_choose():
    for experiment, name in ((TRANSLATION, WORDS), (MLM, "moa_mlm_words")):
        rows = task_of(experiment).variants
        choosing = {name for name, row in rows.items() if row.method.get("k", 0) < row.method.get("experts", 0)}
        assert set(catalogue.figure_entry(name).variants) == choosing


@pytest.mark.parametrize("name", [ROUTERS, WORDS, "moa_mlm_routers", "moa_mlm_words"])
def test_a_figure_without_its_runs_says_so(name):
    put(routed("baseline", 1), routed("baseline", 1, experiment=MLM))
    with pytest.raises(DataError, match=r"needs one of moa-.* among the stored runs of profile p"):
        figures.draw(name, "p")
