"""The timeline of swaps, from metrics written by hand."""

import pytest
from matplotlib.colors import to_hex
from reported import headed, swap, write_profile

from headdiv.experiments import results as store
from headdiv.experiments.results import RunResult
from headdiv.report import figures, swaps
from headdiv.report.groups import KINDS
from headdiv.report.plotting import BLUE, ORANGE

MHR = "mhr/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", MHR)


def test_swaps_are_read_with_the_epoch_before_which_they_were_made():
    pairs = [swap("cross", (1, 2), (5, 2)), swap("encoder", (1, 1), (2, 3))]
    run = RunResult.parse(headed("soft", 1, epochs=4, swaps={1: (pairs, False), 3: (pairs[::-1], True)}))
    found = [(event.epoch, event.kind, event.one, event.other, event.back) for event in swaps.swaps_of(run)]
    assert found == [
        (2, "cross", (1, 2), (5, 2), False),
        (2, "encoder", (1, 1), (2, 3), False),
        (4, "encoder", (1, 1), (2, 3), True),
        (4, "cross", (1, 2), (5, 2), True),
    ]
    assert swaps.swaps_of(RunResult.parse(headed("soft", 1))) == []


def test_the_timeline_has_a_row_for_every_variant_that_moves_heads(project):
    pairs = [swap("cross", (1, 2), (2, 3))]
    swapped = {1: (pairs, False), 3: (pairs, True)}
    for variant in ("soft", "manual", "baseline", "alphas"):
        store.record(headed(variant, 1, epochs=4, swaps=swapped if variant == "soft" else None), "p")
    path = project.home / "config" / "p.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("own:", "two:"), encoding="utf-8")
    own = headed("two", 1, epochs=4)
    own["config"]["method"] = {"name": "rotation", "plan": "encoder layer 1, heads 1 with 2, epochs 2"}
    store.record(own, "p")
    figure = figures.draw("mhr_swaps", "p")
    assert [ax.get_title() for ax in figure.axes[:3]] == list(KINDS.values())
    assert [ax.get_ylabel().split()[0] for ax in figure.axes[::3]] == ["Manual", "Dynamic,", "two"]
    assert [len(ax.lines) for ax in figure.axes] == [0, 0, 0, 0, 0, 2, 0, 0, 0]
    there, back = figure.axes[5].lines
    assert (list(there.get_xdata()), list(back.get_xdata())) == ([2, 2], [4, 4])
    assert list(there.get_ydata()) == list(back.get_ydata()) == [2, 5 + 3]  # three heads a layer and a gap
    assert (to_hex(there.get_color()), to_hex(back.get_color())) == (BLUE, ORANGE)


def test_pairs_of_one_epoch_stand_side_by_side_and_within_it():
    pairs = [swap("decoder", (1, head), (2, head)) for head in (1, 2, 3)]
    store.record(headed("manual", 1, epochs=6, swaps={4: (pairs, False)}), "p")
    x = [line.get_xdata()[0] for line in figures.draw("mhr_swaps", "p").axes[1].lines]
    assert x == sorted(set(x))
    assert x[1] == 5
    assert 4.5 < x[0] < x[2] < 5.5
