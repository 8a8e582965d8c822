"""Swaps of heads against slices written out, and the schedule and choices of dynamic rotation against literal ones."""

import copy
import itertools
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from examples import CONFIG, dynamic, planned, some_pairs, tiny
from hypothesis import given
from hypothesis import strategies as st
from small_model import loss_of, make_batch

from headdiv.analysis.heads import ModelHeads
from headdiv.analysis.similarity import HeadComparison, Observed, compare_heads
from headdiv.core.errors import TrainingError
from headdiv.methods import make_method, rotation
from headdiv.methods.base import EpochEnd
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.rotation import HeadIndex, swap_heads
from headdiv.nn.records import attention_modules, record_heads

BASELINE = {"name": "baseline"}
SIZES = {"encoder_layers": 2, "decoder_layers": 3, "dropout": 0.0, "attention_bias": True}
LAYERS = {"encoder": 2, "decoder": 3, "cross": 3}
H, K, D = CONFIG.heads, CONFIG.d_model // CONFIG.heads, CONFIG.d_model


OPTIMISERS = {  # and what they remember of rows; Adafactor's columns have none
    "AdamW": (partial(torch.optim.AdamW, fused=True), ["exp_avg", "exp_avg_sq"]),
    "SGD": (partial(torch.optim.SGD, momentum=0.9), ["momentum_buffer"]),
    "Adafactor": (torch.optim.Adafactor, ["row_var", "variance"]),
}


def learnt(options=BASELINE, optimiser="AdamW", **sizes):
    """A model whose optimiser remembers something of every parameter, and its method."""
    model, method = tiny(options, torch.float32, **(SIZES | sizes))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():  # biases too
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    optimiser = OPTIMISERS[optimiser][0](model.parameters())
    batch = make_batch(some_pairs(), range(6))
    loss_of(model, model(batch), batch).backward()
    optimiser.step()
    return model, method, optimiser


def everything(model, optimiser):
    """Copies of all tensors of both, by name."""
    results = dict(model.named_parameters())
    state = {
        f"{name}.{key}": value for name, p in results.items() for key, value in optimiser.state.get(p, {}).items()
    }  # fmt: skip
    return {name: value.detach().clone() for name, value in {**results, **state}.items()}


def differing(one, other):
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def name_of(kind, layer):
    return f"{'encoder' if kind == 'encoder' else 'decoder'}.{layer}.attention.{kind}.in_projection"


# ---- swaps


@pytest.mark.parametrize(("name", "state"), [*((name, True) for name in OPTIMISERS), ("AdamW", False)])
@pytest.mark.parametrize(
    ("kind", "one", "other"), [("cross", (0, 0), (2, 1)), ("encoder", (1, 2), (0, 2)), ("decoder", (1, 0), (1, 2))]
)
def test_a_swap_exchanges_these_rows_and_nothing_else(name, state, kind, one, other):
    model, _, optimiser = learnt(optimiser=name)
    before = everything(model, optimiser)
    swap_heads(model, [(kind, HeadIndex(*one), HeadIndex(*other))], optimiser if state else None)
    after = everything(model, optimiser)
    expected = dict(before)
    keys = ["", *(f".{key}" for key in OPTIMISERS[name][1] if state)]
    for part, key in itertools.product(("weight", "bias"), keys):
        names = [f"{name_of(kind, layer)}.{part}{key}" for layer, _ in (one, other)]
        if names[0] not in before:  # Adafactor's are of matrices or of vectors
            continue
        for each in names:
            expected[each] = expected[each].clone()
        for block in range(3):  # W^Q, W^K, W^V
            for k in range(K):
                mine, theirs = (block * D + head * K + k for _, head in (one, other))
                expected[names[0]][mine] = before[names[1]][theirs]
                expected[names[1]][theirs] = before[names[0]][mine]
    assert differing(after, expected) == set()


def heads_of(kind):
    return st.tuples(st.integers(0, LAYERS[kind] - 1), st.integers(0, H - 1)).map(lambda numbers: HeadIndex(*numbers))


swaps = st.sampled_from(list(LAYERS)).flatmap(lambda kind: st.tuples(st.just(kind), heads_of(kind), heads_of(kind)))
MODEL, _, OPTIMISER = learnt()


@given(results=st.lists(swaps, max_size=6), optimiser_state=st.booleans())
def test_swaps_and_then_their_reverse_restore_everything(results, optimiser_state):
    optimiser = OPTIMISER if optimiser_state else None
    before = everything(MODEL, OPTIMISER)
    swap_heads(MODEL, results, optimiser)
    moved = {kind for kind, one, other in results if one != other}
    changed = differing(everything(MODEL, OPTIMISER), before)
    assert all(any(f"attention.{kind}.in_projection" in name for kind in moved) for name in changed)
    swap_heads(MODEL, results[::-1], optimiser)
    assert differing(everything(MODEL, OPTIMISER), before) == set()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (MultiheadAttention(D, H, bias=False), r"\[\(12, 12\), \(12,\)\] and \[\(12, 12\)\]; expected"),
        (MultiheadAttention(D, 2), "encoder 2 has 2 heads, and number 3"),
        (MultiheadAttention(24, H), r"\(24, 24\).*; expected one width"),
    ],
)
def test_what_cannot_be_swapped_whole_is_not_swapped_in_part(other, message):
    torch.manual_seed(0)
    modules = torch.nn.ModuleList([MultiheadAttention(D, H, layer=0), copy.deepcopy(other)])
    modules[1].attention.spec = replace(modules[1].attention.spec, layer=1)
    before = copy.deepcopy(modules.state_dict())
    possible = ("encoder", HeadIndex(0, 0), HeadIndex(0, 1))
    with pytest.raises(TrainingError, match=message):
        swap_heads(modules, [possible, ("encoder", HeadIndex(0, 2), HeadIndex(1, 2))])
    assert all(torch.equal(value, before[name]) for name, value in modules.state_dict().items())


@pytest.mark.parametrize("frozen", ["first", "second"])
def test_heads_of_which_one_was_not_trained_move_without_the_optimisers_state_alone(frozen):
    model, _, optimiser = learnt()
    one, other = HeadIndex(0, 1), HeadIndex(1, 2)
    layer = model.encoder[(one if frozen == "first" else other).layer]
    for parameter in layer.parameters():
        optimiser.state.pop(parameter)
    before = everything(model, optimiser)
    with pytest.raises(TrainingError, match=r"^heads of encoder 1 and encoder 2 are .* a state for one of the two;"):
        swap_heads(model, [("encoder", one, other)], optimiser)
    assert differing(everything(model, optimiser), before) == set()
    swap_heads(model, [("encoder", one, other)])
    assert len(differing(everything(model, optimiser), before)) == 4  # weights and biases


def test_heads_with_adapters_stay_where_they_are():
    peft = pytest.importorskip("peft")
    modules = torch.nn.ModuleList(MultiheadAttention(D, H, layer=layer) for layer in range(2))
    adapted = peft.get_peft_model(modules, peft.LoraConfig(r=3 * D, target_modules=["in_projection"]))
    before = copy.deepcopy(adapted.state_dict())
    with pytest.raises(TrainingError, match=r"the projection of encoder 1, .*; expected adapters"):
        swap_heads(adapted, [("encoder", HeadIndex(0, 0), HeadIndex(1, 2))])
    assert all(torch.equal(value, before[name]) for name, value in adapted.state_dict().items())


# ---- plans


def end_of(model, optimiser, epoch, history=(), observe=None, seed=3):
    return EpochEnd(model, optimiser, epoch, 30, seed, list(history), observe)


def test_a_plan_is_followed_at_its_epochs_alone():
    plan = [
        {"layers": [1, 3], "epochs": [3, 7]},
        {"kind": "encoder", "layers": [2, 2], "heads": [[1, 3]], "epochs": [4]},
    ]
    model, method, optimiser = learnt({"name": "rotation", "plan": plan})
    expected = {
        3: {"swaps": [{"kind": "cross", "one": [1, h], "other": [3, h]} for h in (1, 2, 3)], "back": False},
        4: {"swaps": [{"kind": "encoder", "one": [2, 1], "other": [2, 3]}], "back": False},
    }
    expected[7] = expected[3]
    start = everything(model, optimiser)
    for coming in range(2, 9):
        before = everything(model, optimiser)
        results = method.after_epoch(end_of(model, optimiser, coming - 1))
        assert results == expected.get(coming, {})
        assert json.loads(json.dumps(results)) == results
        assert bool(differing(everything(model, optimiser), before)) == (coming in expected)
    changed = differing(everything(model, optimiser), start)  # the second swap of the first part undid the first
    assert {name.partition(".in_projection")[0] for name in changed} == {"encoder.1.attention.encoder"}


@pytest.mark.parametrize("optimiser_state", [True, False])
def test_what_the_optimiser_remembers_moves_or_stays(optimiser_state):
    model, method, optimiser = learnt(dynamic("random", optimiser_state=optimiser_state))
    before = everything(model, optimiser)
    assert method.after_epoch(end_of(model, optimiser, 1))
    changed = differing(everything(model, optimiser), before)
    assert changed
    assert any("exp_avg" in name for name in changed) == optimiser_state


def test_a_stack_that_the_model_lacks_is_named():
    """A single stack may be either's; which one it is shows at the first swap at the latest."""
    plan = [planned(kind="decoder", heads=[[1, 2]], epochs=[5])]
    model, method, optimiser = learnt({"name": "rotation", "plan": plan})
    with pytest.raises(TrainingError, match=r"^method\.plan\.0: the model has no decoder attention, only encoder$"):
        method.after_epoch(end_of(model.encoder, optimiser, 1))
    _, method, _ = learnt(dynamic("random", kinds=["cross"]))
    with pytest.raises(TrainingError, match=r"^method\.kinds: the model has no cross attention, only encoder$"):
        method.after_epoch(end_of(model.encoder, optimiser, 1))


# ---- dynamic choices


def measured(importance, measure):
    """Measures of one module whose heads have this importance (H,)."""
    values = torch.tensor(importance, dtype=torch.float64)
    other = torch.zeros(H, dtype=torch.float64)
    l2 = torch.zeros(H, H, dtype=torch.float64)
    l2[:, 0] = values * (H - 1)  # not a distance, but its mean over the others is as wanted
    confidence = values if measure == "confidence" else other
    unused = other.diag()
    return HeadComparison(1, confidence, other, unused, l2 if measure == "l2" else unused, unused, unused, unused, 0.0)


def choose(options, importance):
    """The swaps chosen where heads have this importance, by kind (layers, H); all counted from 0."""
    results = [
        (module.spec, measured(importance[module.spec.kind][module.spec.layer], options["measure"]))
        for module in attention_modules(MODEL)
    ]
    end = end_of(MODEL, OPTIMISER, 1, observe=list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "compare_heads", lambda *_: results)
        return [(kind, tuple(one), tuple(other)) for kind, one, other in make_method(options).choose(end)]


grids = st.fixed_dictionaries({
    kind: st.lists(st.lists(st.integers(0, 5), min_size=H, max_size=H), min_size=layers, max_size=layers)
    for kind, layers in LAYERS.items()
})  # fmt: skip


@given(importance=grids, k=st.integers(1, 3), measure=st.sampled_from(["confidence", "l2"]))
def test_hard_swaps_the_least_with_the_most_important(importance, k, measure):
    """Algorithm 1; of equal heads the earlier is the less important."""
    expected = []
    for kind, grid in ((kind, importance[kind]) for kind in LAYERS):
        ordered = sorted((value, layer, head) for layer, row in enumerate(grid) for head, value in enumerate(row))
        expected += [(kind, ordered[i][1:], ordered[-1 - i][1:]) for i in range(k)]
    assert choose(dynamic(swaps=k, measure=measure), importance) == expected


@given(importance=grids, k=st.integers(1, 3))
def test_soft_swaps_the_least_important_of_low_and_high_layers(importance, k):
    """Algorithm 2, the i-th layer with the i-th from the end."""
    expected = []
    for kind, grid in ((kind, importance[kind]) for kind in LAYERS):
        low, high = (sorted(range(H), key=lambda head, row=row: (row[head], head)) for row in (grid[0], grid[-1]))
        expected += [(kind, (0, low[i]), (LAYERS[kind] - 1, high[i])) for i in range(k)]
    assert choose(dynamic("soft", swaps=k, measure="l2"), importance) == expected


@pytest.mark.parametrize("options", [dynamic(swaps=10), dynamic("soft", swaps=4), dynamic("soft", layers=2)])
def test_more_swaps_than_the_model_has_heads_for_are_refused(options):
    with pytest.raises(TrainingError, match=r"^method\.(swaps|layers): .* \(encoder attention\)$"):
        choose(options | {"measure": "l2"}, {kind: np.zeros((layers, H)) for kind, layers in LAYERS.items()})


def test_modules_of_different_numbers_of_heads_are_refused():
    model, method, optimiser = learnt(dynamic("random", swaps=1))
    ModelHeads(model).remove([("decoder 2", 1)])
    with pytest.raises(TrainingError, match=r"^decoder attention has modules of 2 and 3 heads; expected one number$"):
        method.choose(end_of(model, optimiser, 1))


def test_soft_takes_as_many_layers_as_are_named():
    grid = np.arange(18).reshape(6, 3)[:, ::-1]
    results = make_method(dynamic("soft", swaps=1, layers=3))._choose("cross", grid, np.random.default_rng(0))
    assert results == [("cross", HeadIndex(i, 2), HeadIndex(5 - i, 2)) for i in range(3)]


def test_random_swaps_are_of_different_heads_and_follow_the_seed():
    model, method, optimiser = learnt(dynamic("random", swaps=3))

    def drawn(epoch, seed):
        return method.choose(end_of(model, optimiser, epoch, seed=seed))  # nothing is observed

    results = drawn(1, 3)
    assert results == drawn(1, 3)
    assert len({tuple(drawn(epoch, seed)) for epoch in (1, 2) for seed in (3, 4)}) == 4
    assert [kind for kind, *_ in results] == ["encoder"] * 3 + ["decoder"] * 3 + ["cross"] * 3
    decoder, cross = ([pair for each, *pair in results if each == kind] for kind in ("decoder", "cross"))
    assert decoder != cross
    seen = {kind: set() for kind in LAYERS}
    for epoch in range(30):
        heads = [(kind, head) for kind, *pair in drawn(epoch, 1) for head in pair]
        assert len(set(heads)) == 18
        for kind, head in heads:
            seen[kind].add(head)
    assert {kind: len(heads) for kind, heads in seen.items()} == {kind: n * H for kind, n in LAYERS.items()}


@pytest.mark.parametrize("measure", ["confidence", "l2"])
def test_importance_is_that_of_the_validation_split(measure):
    model, method, optimiser = learnt(dynamic(swaps=1, measure=measure, kinds=["cross"]))

    def observe():
        batch = make_batch(some_pairs(), range(6))
        with torch.no_grad(), record_heads(model) as records:
            model(batch)
        yield Observed(records, {})

    results = {
        (spec.layer, head): value
        for spec, m in compare_heads(observe()) if spec.kind == "cross"
        for head, value in enumerate(m.confidence if measure == "confidence" else m.l2.sum(1) / (H - 1))
    }  # fmt: skip
    ((_, one, other),) = method.choose(end_of(model, optimiser, 1, observe=observe))
    assert (one, other) == (min(results, key=results.get), max(results, key=results.get))


def test_nothing_left_to_observe_is_an_error_and_no_measure_of_zero():
    model, method, optimiser = learnt(dynamic(swaps=1, kinds=["cross"]))
    used_up = iter([])
    with pytest.raises(TrainingError, match=r"^observe: found no words for the heads of cross 1, .*anew in every call"):
        method.choose(end_of(model, optimiser, 1, observe=lambda: used_up))


# ---- the schedule


def schedule(epochs=30, **options):
    """What happens before which epoch: +1 swaps, -1 back; every choice and its return restore the model."""
    model, method, optimiser = learnt(dynamic("random", swaps=2, **options))
    before, history, results = everything(model, optimiser), [], {}
    held = None
    for epoch in range(1, epochs):
        record = method.after_epoch(end_of(model, optimiser, epoch, json.loads(json.dumps(history))))
        if record:
            results[epoch + 1] = -1 if record["back"] else 1
            if record["back"]:
                assert record["swaps"] == held[::-1]
                assert differing(everything(model, optimiser), before) == set()
            held = record["swaps"]
        history.append(record)
    return results


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {2: 1, 6: -1, 7: 1, 11: -1, 12: 1, 16: -1, 17: 1, 21: -1}),  # the authors'
        ({"first": 3, "every": 10, "last": 15, "rest": 2}, {3: 1, 13: -1, 15: 1, 16: -1}),
        ({"first": 2, "every": 40, "last": 9}, {2: 1, 10: -1}),  # heads return at the end at the latest
        ({"epochs": 5}, {2: 1}),  # what is swapped when the training ends stays so
        ({"every": 2, "rest": 3, "last": 12}, {2: 1, 4: -1, 7: 1, 9: -1, 12: 1, 13: -1}),
        ({"swap_back": False}, dict.fromkeys([2, 6, 10, 14, 18], 1)),
    ],
)
def test_heads_are_swapped_and_return_in_time(options, expected):
    assert schedule(**options) == expected
