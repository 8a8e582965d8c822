"""The timeline of swaps, from metrics written by hand."""

import pytest
from matplotlib.colors import to_hex
from reported import headed, swap, write_profile

from headdiv.experiments import results as store
from headdiv.report import figures, heads, swaps

MHR = "mhr/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", MHR)


def test_swaps_are_read_with_the_epoch_before_which_they_were_made():
    pairs = [swap("cross", (1, 2), (5, 2)), swap("encoder", (1, 1), (2, 3))]
    run = headed("soft", 1, epochs=4, swaps={1: (pairs, False), 3: (pairs[::-1], True)})
    assert swaps.swaps_of(run) == [
        swaps.SwapEvent(2, "cross", (1, 2), (5, 2), False),
        swaps.SwapEvent(2, "encoder", (1, 1), (2, 3), False),
        swaps.SwapEvent(4, "encoder", (1, 1), (2, 3), True),
        swaps.SwapEvent(4, "cross", (1, 2), (5, 2), True),
    ]
    assert swaps.swaps_of(headed("soft", 1)) == []


def test_the_timeline_has_a_row_for_every_variant_that_moves_heads():
    pairs = [swap("cross", (1, 2), (2, 3))]
    there = {1: (pairs, False), 3: (pairs, True)}
    for variant in ("soft", "manual", "baseline", "alphas"):
        store.record(headed(variant, 1, epochs=4, swaps=there if variant == "soft" else None), "p")
    store.record(headed("soft", 2, epochs=4), "p")
    figure = figures.draw("mhr_swaps", "p")
    assert [ax.get_title() for ax in figure.axes[:3]] == list(heads.KINDS.values())
    assert len(figure.axes) == 2 * 3
    assert [ax.get_ylabel() for ax in figure.axes[::3]] == [
        "Manual swaps (in\nthe paper layers\n1 and 5)\nlayer",
        "Dynamic, soft\nlayer",
    ]
    assert [len(ax.lines) for ax in figure.axes] == [0, 0, 0, 0, 0, 2]
    away, home = figure.axes[5].lines
    assert (list(away.get_xdata()), list(home.get_xdata())) == ([2, 2], [4, 4])
    assert list(away.get_ydata()) == list(home.get_ydata()) == [2, 5 + 3]  # three heads a layer and a gap
    assert (to_hex(away.get_color()), to_hex(home.get_color())) == (heads.BLUE, heads.ORANGE)
    assert figure.get_suptitle() == "Heads that change places: toy, 4 epochs, seed 1"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["two heads change places", "and return"]


def test_pairs_of_one_epoch_stand_side_by_side_and_within_it():
    pairs = [swap("decoder", (1, head), (2, head)) for head in (1, 2, 3)]
    store.record(headed("manual", 1, epochs=6, swaps={4: (pairs, False)}), "p")
    x = [line.get_xdata()[0] for line in figures.draw("mhr_swaps", "p").axes[1].lines]
    assert x == sorted(set(x))
    assert x[1] == 5
    assert 4.5 < x[0] < x[2] < 5.5


def test_a_variant_of_ones_own_is_shown_if_it_moves_heads(project):
    own = {"two": {"name": "rotation", "plan": "encoder layer 1, heads 1 with 2, epochs 2"}}
    text = (project.home / "config" / "p.yaml").read_text(encoding="utf-8")
    (project.home / "config" / "p.yaml").write_text(text.replace("own:", "two:"), encoding="utf-8")
    told = headed("two", 1)
    told["config"]["method"] = own["two"]
    store.record(told, "p")
    assert figures.draw("mhr_swaps", "p").axes[0].get_ylabel() == "two\nlayer"
