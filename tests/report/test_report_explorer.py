"""What the explorer shows: labels, scales, and lines of text where there is nothing to draw."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_hex

from headdiv.companion.analysis.attention_maps import AttentionMap
from headdiv.companion.report import explorer_panels as explorer
from headdiv.companion.report.explorer_panels import (
    look_at,
    show_attention,
    show_components,
    show_likeness,
    show_maps,
    show_masking,
)
from headdiv.companion.report.explorer_view import MEASURES, View, similarity
from headdiv.companion.report.plotting import ORANGE

SOURCE = "The old dog sees a small cat."
PANELS = (show_maps, show_attention, show_likeness, show_masking, show_components)


@pytest.fixture
def view(run):
    return View(run, SOURCE, None, "cross 1", 3)


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize(
    ("queries", "keys", "shown", "every"),
    [
        ([f"word{i}" for i in range(200)], ["a", "b"], [f"word{i}" for i in range(0, 200, 3)], 3),
        (["$x_$", "Donaudampfschifffahrtsgesellschaft"], ["\\frac"], ["$x_$", "Donaudampfschifff…"], 1),
    ],
)
def test_labels_can_be_read_whatever_the_text(view, monkeypatch, queries, keys, shown, every):
    """Fewer of a long text; long tokens are cut; tokens are no formulas."""
    found = AttentionMap(queries, keys, np.full((8, len(queries), len(keys)), 1 / len(keys)))
    monkeypatch.setattr(View, "attention", lambda self: found)
    drawn = show_attention(view)
    ax = drawn.axes[0]
    assert (ticks(ax.yaxis), ticks(ax.xaxis)) == (shown, keys)
    assert (f"(one label for {every} tokens)" in ax.get_ylabel()) == (every > 1)
    assert max(drawn.get_size_inches()) < 15
    drawn.canvas.draw()  # as a formula "$x_$" would be refused here
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(boxes))


# ---- what is looked at


def test_deacons_run_is_taken_before_the_others(finished):
    view = look_at("tiny")
    assert (view.name, view.place, view.head) == ("deacon/translation direct-8 seed 1", "cross 1", 1)
    assert look_at("tiny", variant="baseline").name == "deacon/translation baseline seed 1"
    view = look_at("tiny", "deacon/translation", "direct-8", 1, SOURCE, "Der Hund", "encoder 1", 4)
    assert (view.text, view.other, view.place, view.head) == (SOURCE, "Der Hund", "encoder 1", 4)


def test_without_a_trained_run_there_is_a_line_everywhere(project):
    line = look_at("tiny")
    assert line.data == (
        "*Profile tiny has no trained run on this machine; "
        "`headdiv train deacon/translation baseline --seed 1 --profile tiny` trains one.*"
    )
    for show in PANELS:
        assert show(line) is line
    assert look_at("tiny", "deacon/translation", "direct-8", 1).data == (
        "*Profile tiny has no trained run of deacon/translation direct-8 seed 1 on this machine; "
        "`headdiv train deacon/translation direct-8 --seed 1 --profile tiny` trains one.*"
    )


# ---- attention


def test_a_map_names_tokens_sides_and_its_scale(view):
    drawn, found = show_attention(view), view.attention()
    ax, bar = drawn.axes[0], drawn.axes[0].child_axes[0]
    assert ticks(ax.yaxis) == found.queries
    assert ticks(ax.xaxis) == found.keys
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("target: token that looks", "source: token that is looked at")
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), found.weights[2])
    assert image.get_clim() == (0, pytest.approx(found.weights.max()))
    assert bar.get_ylabel() == "attention weight"
    assert ax.get_title("left") == "encoder-decoder attention, layer 1, head 3\ndeacon/translation direct-8 seed 1"


def test_small_maps_have_every_weight_at_the_pointer_and_mark_unknown_words(view, monkeypatch):
    weights = np.zeros((8, 2, 1))
    weights[2, :, 0] = (1, 0.5)
    monkeypatch.setattr(View, "attention", lambda self: AttentionMap(["<unk>", "a & b"], ["c"], weights))
    page = show_maps(view, view).data
    assert page.count("<svg") == 2 * 8
    assert page.count('fill-opacity="0.50"><title>a &amp; b → c: 0.500</title>') == 2
    assert page.count(f'fill="{ORANGE}" text-anchor="end">&lt;unk&gt;<') == 2 * 8
    assert page.count(f'<text x="2" y="12" fill="{ORANGE}">3<') == 2


# ---- similarity


@pytest.mark.parametrize("measure", MEASURES)
def test_the_matrix_stands_in_the_order_of_its_tree(view, measure):
    drawn, alike = show_likeness(view, measure=measure), similarity(view, measure)
    tree, ax = drawn.axes[:2]
    order = [int(text) - 1 for text in ticks(ax.yaxis)]
    assert sorted(order) == list(range(8))
    assert ticks(ax.xaxis) == ticks(ax.yaxis)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), alike[np.ix_(order, order)])
    assert image.get_clim() == (MEASURES[measure].low, 1)
    assert ax.child_axes[0].get_ylabel() == MEASURES[measure].label
    assert len(tree.collections[0].get_segments()) == 7
    assert ax.texts[1].get_text() == f"{alike[order[0], order[1]]:.2f}".replace("-", "−")
    (chosen,) = (label for label in ax.get_yticklabels() if to_hex(label.get_color()) == to_hex(ORANGE))
    assert chosen.get_text() == "3"


def test_a_single_head_has_nobody_to_be_compared_with(view, monkeypatch):
    monkeypatch.setattr(explorer.explorer, "similarity", lambda *_: np.ones((1, 1)))
    assert (
        show_likeness(view).data
        == "*encoder-decoder attention, layer 1 has a single head; similarity is between two or more.*"
    )


# ---- masking and components


def test_components_show_both_and_say_how_much_is_kept(view):
    drawn = show_components(view)
    left, right = drawn.axes[:2]
    assert (left.get_xlabel(), left.get_ylabel()) == ("principal component of the inputs", "column of w")
    assert left.child_axes[0].get_ylabel() == "|cosine|"
    assert left.images[0].get_clim() == (0, 1)
    best, kept = right.lines
    assert [best.get_label(), kept.get_label()] == ["principal components", "columns of w"]
    assert len(best.get_xdata()) == len(kept.get_xdata()) == 8
    assert (kept.get_ydata() <= best.get_ydata() + 1e-9).all()
    assert drawn.get_suptitle() == (
        "encoder-decoder attention, layer 1: 8 columns for 8 inputs keep 100.0 % of the variance, 100.0 % is possible\n"
        "deacon/translation direct-8 seed 1"
    )
