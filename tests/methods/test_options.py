"""What configurations say of methods: defaults, refusals, combinations, what results keep."""

import pytest
from examples import CONFIG, combined, deacon, dynamic, planned, sparse
from small_model import SmallSizes

from headdiv.core.errors import ConfigError
from headdiv.methods.base import Method
from headdiv.methods.combined import Combined, part_names
from headdiv.methods.registry import check_method, make_method, stored_method
from headdiv.nn.sizes import Sizes

LARGE, TWO = (SmallSizes(encoder_layers=n, decoder_layers=n) for n in (6, 2))
MIXING = {"name": "mixing", "start": 0.0}
KWTA = {"name": "homeostasis", "attention": "kwta", "s_att": 0.5}
RFB = {"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5, "q_att": 4}
SMART_BLOCK = {"name": "homeostasis", "block": "smart", "q_bo": 4}
APART = {"name": "disagreement", "term": "output"}
VALUES = {"name": "dpp", "term": "subspace"}
MOA = {"name": "moa", "experts": 4, "k": 2}
SWAPS = {"name": "rotation", "plan": [{"layers": [1, 1], "heads": [[1, 2]], "epochs": [2, 3]}]}


class Stack(Sizes):
    """A single stack, which may be an encoder or a decoder."""

    @property
    def attention_layers(self):
        return {"encoder": 24, "decoder": 24}


def manual(**more):
    return {"name": "rotation", "plan": [planned(**more)]}


def test_a_method_has_few_members_and_a_combination_combines_each():
    members = {name for name in vars(Method) if not name.startswith("_")}
    assert len(members) <= 14
    assert members - set(vars(Combined)) == {"before_optimizer_step"}  # after_backward by another name


# ---- what is refused: the key, and what is wrong with it


REFUSED = [
    (deacon("direct", 9), LARGE, "m", "more than the k = 8 inputs of the PCA layer"),
    (deacon("nonlinear", normalisation="layer"), LARGE, "normalisation", "expected 'batch'"),
    (deacon(normalisation="none", batch_norm_scale=2.0), LARGE, "batch_norm_scale", "scales nothing"),
    ({"name": "baseline", "m": 3}, LARGE, "m", "known here: none"),
    ({"name": "decon"}, LARGE, "name", "did you mean 'deacon'"),
    ({}, LARGE, "name", "is missing"),
    (sparse(), LARGE, "attention", "the method 'baseline'"),
    (sparse("kwta", s_att=0.01), LARGE, "s_att", "keeps no unit: a head has 32"),
    (sparse("kwta", "rfb-kwta", s_bo=0.001), LARGE, "s_bo", "keeps no unit: a block's output has 256"),
    (sparse("kwta", s_att=0.99), LARGE, "s_att", "keeps all units"),
    (sparse("smart", s_att=0.995), LARGE, "s_att", "no median"),
    ({**MOA, "k": 5}, LARGE, "k", "more than the 4 experts"),
    ({**MOA, "k": 1, "renormalise": True}, LARGE, "renormalise", "expected k ≥ 2"),
    ({**MOA, "renormalise": "x"}, LARGE, "renormalise", "found 'x'"),
    ({**MOA, "noise_floor": 0.01}, LARGE, "noise_floor", "expected noisy: true"),
    (manual(layers=[1, 9]), LARGE, "plan.0", "layers 1 to 6, found 9"),
    (manual(heads=[[1, 9]]), LARGE, "plan.0", "heads 1 to 8, found 9"),
    (manual(heads=[[1, 0]]), LARGE, "plan.0.heads.0.1", "greater than or equal to 1, found 0"),
    (manual(heads=[[1]]), LARGE, "plan.0.heads.0.1", "is missing"),
    (manual(), LARGE, "plan.0", "swapped with itself"),
    (manual(heads=[[1, 2], [2, 3]]), LARGE, "plan.0", "twice at once"),
    (dynamic(first=5, last=4), LARGE, "last", "before first = 5"),
    (dynamic(swaps=25), LARGE, "swaps", "more than the 24"),
    (dynamic("soft", swaps=9), LARGE, "swaps", "more than the 8"),
    (dynamic("soft", layers=4), LARGE, "layers", "more than half of the 6 layers"),
    ({"name": "rotation"}, TWO, "plan.0", "layers 1 to 2, found 5"),
    ({"name": "rotation"}, Stack(), "plan.0", "no cross attention, only encoder and decoder"),
    (sparse("kwta", s_att=0.5), SmallSizes(heads=256), "s_att", "a head has 1"),
]


@pytest.mark.parametrize(("options", "model", "key", "words"), REFUSED)
def test_what_a_model_has_no_room_for_is_named(options, model, key, words):
    with pytest.raises(ConfigError) as error:
        check_method(options, model, ("method",))
    assert str(error.value).startswith(f"method.{key}: ")
    assert words in str(error.value)


def test_what_another_model_or_nobody_uses_is_no_mistake():
    check_method({"name": "rotation"}, SmallSizes(decoder_layers=5))
    check_method({"name": "rotation", "plan": [planned(kind="encoder", layers=[1, 5])]}, Stack())
    assert check_method(sparse("dropout", "kwta", s_att=0.001), TWO)["s_att"] == 0.001


# ---- combinations


@pytest.mark.parametrize(
    ("methods", "key", "words"),
    [
        ([deacon(), {"name": "baseline"}], ".1.name", "changes nothing"),
        ([{"name": "combined", "methods": [deacon(), APART]}, KWTA], ".0.name", "list its methods here"),
        ([APART, {"name": "decon"}], ".1.name", "did you mean 'deacon'"),
        ([deacon(), MIXING], ".1", "'mixing' and 'deacon' both build the output stage of encoder attention"),
        ([deacon(), deacon()], ".1", "'deacon' is listed twice"),
        ([MOA, KWTA], ".1", "'moa' builds encoder attention as a whole and leaves nothing for 'homeostasis'"),
        ([SWAPS, MOA], ".1", "'rotation' swaps heads of ordinary attention, and 'moa' builds"),
        ([MOA, APART, VALUES], ".2", "'dpp' compares the heads' values, which all experts of 'moa' share"),
        ([SWAPS, dynamic("random", swaps=1)], ".1", "would each swap heads"),
    ],
)
def test_what_does_not_go_together_is_named(methods, key, words):
    whole = {"name": "combined", "methods": methods}
    for make in (make_method, lambda options: check_method(options, CONFIG, ("method",))):
        with pytest.raises(ConfigError) as error:
            make(whole)
        assert str(error.value).startswith(f"method.methods{key}: ")
        assert words in str(error.value)


@pytest.mark.parametrize(
    "methods",
    [
        (deacon(), RFB, SWAPS, APART, VALUES),
        (MOA, SMART_BLOCK, APART),
        (MIXING, dynamic("random", swaps=1)),
        (APART, APART | {"term": "position"}),
    ],
)
def test_all_options_are_filled_in_and_checking_again_changes_nothing(methods):
    whole = combined(*methods)
    assert whole["methods"] == [check_method(method, CONFIG) for method in methods]
    assert check_method(whole, CONFIG) == whole


def test_parts_are_called_by_their_methods():
    assert list(part_names(["dpp", "deacon", "dpp", "dpp"])) == ["dpp", "deacon", "dpp-2", "dpp-3"]
    assert list(make_method(combined(deacon(), APART, APART)).parts) == ["deacon", "disagreement", "disagreement-2"]


# ---- what results keep


def test_a_default_that_came_later_is_not_stored():
    """Runs from before the option keep their hash."""
    assert "update" not in check_method(deacon(m=2, update="hebbian", batch_norm_scale=1.0), CONFIG)
    assert check_method(deacon(m=2, batch_norm_scale=0.3), CONFIG)["batch_norm_scale"] == 0.3
    assert "noise_floor" not in check_method({**MOA, "noisy": True}, CONFIG)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ([planned(layers=[1, 5], epochs=[3, 7, 9, 11])], "cross layers 1 and 5, all heads, epochs 3 7 9 11"),
        ([planned(heads=[[1, 8], [2, 7]])], "cross layer 1, heads 1 2 with 8 7, epoch 2"),
    ],
)
def test_results_keep_the_plan_as_a_sentence(plan, sentence):
    method = check_method({"name": "rotation", "plan": plan}, LARGE)
    assert stored_method(method) == {"name": "rotation", "plan": sentence, "optimiser_state": True}
    combination = {"name": "combined", "methods": [method, {"name": "disagreement"}]}
    assert stored_method(combination)["methods"] == [stored_method(method), {"name": "disagreement"}]


def test_homeostasis_alone_is_the_papers_best_model():
    smart = {"attention": "smart", "block": "smart", "s_att": 0.9, "s_bo": 0.9, "q_att": 256, "q_bo": 16}
    assert make_method({"name": "homeostasis"}).options == make_method({"name": "homeostasis", **smart}).options
    assert make_method({"name": "homeostasis", "s_att": 0.8}).options.attention == "smart"
    assert make_method({"name": "homeostasis", "attention": "kwta"}).options.block == "none"
    assert make_method({"name": "homeostasis", "block": "dropout"}).options.attention == "none"
