"""Plans as a person writes them: every form, and what is said of those that cannot be followed."""

import pytest
from examples import tiny
from hypothesis import given
from hypothesis import strategies as st

from headdiv.methods.swap_plan import FORM, Head, PlanError, Room, parse_plan, rooms

THERE = {"encoder": Room(6, 8), "decoder": Room(6, 8), "cross": Room(6, 8)}


def parsed(plan, there=THERE):
    """Epochs and (kind, (layer, head), (layer, head)) of each part, counted from 1."""
    return [
        (set(epochs), [(kind, *((head.layer + 1, head.head + 1) for head in pair)) for kind, *pair in swaps])
        for epochs, swaps in parse_plan(plan, there)
    ]


def refusal(plan, there=THERE):
    with pytest.raises(PlanError) as found:
        parse_plan(plan, there)
    return str(found.value)


def test_the_authors_plan():
    eight = [("cross", (1, head), (5, head)) for head in range(1, 9)]
    assert parsed("cross layers 1 and 5, all heads, epochs 3 7 9 11") == [({3, 7, 9, 11}, eight)]
    assert parsed("layers 1 and 5, all heads, epochs 3 7 9 11") == [({3, 7, 9, 11}, eight)]  # where it is not said


@pytest.mark.parametrize(
    ("plan", "epochs", "swaps"),
    [
        ("encoder layer 1, heads 1 2 with 8 7, epochs 3", {3},
         [("encoder", (1, 1), (1, 8)), ("encoder", (1, 2), (1, 7))]),
        ("decoder layers 2 and 6, heads 1 2 with 8 7, epoch 4", {4},
         [("decoder", (2, 1), (6, 8)), ("decoder", (2, 2), (6, 7))]),
        ("layers 2 and 6, heads 3, epochs 3 5-8 10", {3, 5, 6, 7, 8, 10}, [("cross", (2, 3), (6, 3))]),
        ("layers 6 and 2, heads 1-3, epochs 2-2", {2}, [("cross", (6, h), (2, h)) for h in (1, 2, 3)]),
        ("cross layer 1, heads 1-2 with 4-5, epochs 2 2", {2}, [("cross", (1, 1), (1, 4)), ("cross", (1, 2), (1, 5))]),
        ("  cross   layer 1,  heads 1 with\n 2, epochs   2 ", {2}, [("cross", (1, 1), (1, 2))]),
    ],
)  # fmt: skip
def test_every_form(plan, epochs, swaps):
    assert parsed(plan) == [(epochs, swaps)]


def test_parts_stand_one_after_the_other():
    told = parsed("encoder layer 1, heads 1 with 2, epochs 2; cross layers 1 and 2, heads 1, epochs 2 4")
    assert told == [({2}, [("encoder", (1, 1), (1, 2))]), ({2, 4}, [("cross", (1, 1), (2, 1))])]


def test_heads_are_counted_from_0_inside():
    ((_, swaps),) = parse_plan("encoder layer 1, heads 1 with 8, epochs 3", THERE)
    assert swaps == [("encoder", Head(0, 0), Head(0, 7))]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("", "'' is not a plan, " + FORM),
        ("all heads", "'all heads' is not a plan, " + FORM),
        ("self layer 1, heads 1 with 2, epochs 2", "'self layer 1, heads 1 with 2, epochs 2' is not a plan, " + FORM),
        ("layer 1, heads 1 with 2, epochs 2;", "'' is not a plan, " + FORM),
        ("layers 1, all heads, epochs 2", "'layers 1, all heads, epochs 2' is not a plan, " + FORM),
        ("layer 1, heads 1 with 2", "'layer 1, heads 1 with 2' is not a plan, " + FORM),
        ("layers 1 and 7, all heads, epochs 2",
         "'layers 1 and 7, all heads, epochs 2' names layer 7; cross attention has layers 1 to 6"),
        ("encoder layers 0 and 6, all heads, epochs 2",
         "'encoder layers 0 and 6, all heads, epochs 2' names layer 0; encoder attention has layers 1 to 6"),
        ("layer 1, heads 1 with 9, epochs 2",
         "'layer 1, heads 1 with 9, epochs 2' names head 9; there are heads 1 to 8"),
        ("layer 1, heads 0 with 2, epochs 2",
         "'layer 1, heads 0 with 2, epochs 2' names head 0; there are heads 1 to 8"),
        ("layer 1, heads 1 2 with 8, epochs 2", "'layer 1, heads 1 2 with 8, epochs 2' pairs 2 heads with 1"),
        ("layer 1, heads 1, epochs 2", "'layer 1, heads 1, epochs 2' swaps a head with itself, or twice at once"),
        ("layers 1 and 1, all heads, epochs 2",
         "'layers 1 and 1, all heads, epochs 2' swaps a head with itself, or twice at once"),
        ("layer 1, heads 1 2 with 2 3, epochs 2",
         "'layer 1, heads 1 2 with 2 3, epochs 2' swaps a head with itself, or twice at once"),
        ("layer 1, heads 1 with 2, epochs 1 3",
         "'layer 1, heads 1 with 2, epochs 1 3' swaps before epoch 1; expected 2 or later, "
         "when something has been learnt"),
        ("layer 1, heads 1 with 2, epochs 0",
         "'layer 1, heads 1 with 2, epochs 0' swaps before epoch 0; expected 2 or later, "
         "when something has been learnt"),
        ("layer 1, heads 1 with 2, epochs 3 8-5",
         "'layer 1, heads 1 with 2, epochs 3 8-5': '8-5' is neither a number nor a range such as 5-7"),
        ("layer 1, heads 1- with 2, epochs 3",
         "'layer 1, heads 1- with 2, epochs 3': '1-' is neither a number nor a range such as 5-7"),
        ("layer 1, heads 1 with 2, epochs 1-2-3",
         "'layer 1, heads 1 with 2, epochs 1-2-3': '1-2-3' is neither a number nor a range such as 5-7"),
        ("layer 1, heads 1 with 2, epochs -", "'layer 1, heads 1 with 2, epochs -': '-' is neither a number nor a range"
         " such as 5-7"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_named(plan, message):
    assert refusal(plan) == message


def test_kinds_that_a_model_lacks_are_named():
    plan = "layer 1, heads 1 with 2, epochs 2"
    assert refusal(plan, {"decoder": Room(1, 2)}) == f"{plan!r}: the model has no cross attention, only decoder"


numbers = st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True)


@given(
    kind=st.sampled_from(list(THERE)), heads=numbers, partners=numbers, epochs=st.sets(st.integers(2, 40), min_size=1)
)
def test_what_is_written_is_read(kind, heads, partners, epochs):
    n = min(len(heads), len(partners))
    heads, partners = heads[:n], partners[:n]
    told = (" ".join(map(str, which)) for which in (heads, partners, sorted(epochs)))
    text = "{} layers 2 and 3, heads {} with {}, epochs {}".format(kind, *told)
    expected = [(kind, (2, a), (3, b)) for a, b in zip(heads, partners, strict=True)]
    assert parsed(text) == [(epochs, expected)]


def test_rooms_are_the_models_own():
    model, _ = tiny({"name": "baseline"}, encoder_layers=3, decoder_layers=2)
    assert rooms(model) == {"encoder": Room(3, 3), "decoder": Room(2, 3), "cross": Room(2, 3)}
    assert rooms(model.encoder) == {"encoder": Room(3, 3)}
