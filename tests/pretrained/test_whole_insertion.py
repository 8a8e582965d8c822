"""A method is put into every attention module of a model or into none; nothing is lost; it can be taken out again."""

import copy

import pytest
import torch
from attachable import arguments, logits, model_of, other, output
from torch import nn
from torch.nn.utils import prune

import headdiv
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.modules import active_modules
from headdiv.methods.base import Method
from headdiv.methods.deacon import pca_layers
from headdiv.nn.records import attention_modules
from headdiv.pretrained.attached import attachment_of

DEACON = {"name": "deacon", "architecture": "direct", "m": 3}
MIXING = {"name": "mixing", "start": 0.0}
SCALE = {"name": "head-scale", "gate": 1.0}
KWTA = {"name": "homeostasis", "attention": "kwta", "s_att": 0.5, "kinds": ["encoder", "decoder", "cross"]}
METHODS = [DEACON, MIXING, SCALE, KWTA]
every_method = pytest.mark.parametrize("options", METHODS, ids=lambda options: options["name"])


def every_method_or_kind(*kinds):
    """Every method in BERT, and one in models of other kinds."""
    cases = [*(("bert", options) for options in METHODS), *((kind, DEACON) for kind in kinds)]
    return pytest.mark.parametrize(("kind", "options"), cases, ids=str)


def state_of(model):
    return {name: x.clone() for name, x in model.state_dict().items()}, [name for name, _ in model.named_modules()]


def same(one, other):
    return (
        one[1] == other[1]
        and list(one[0]) == list(other[0])
        and all(torch.equal(x, other[0][n]) for n, x in one[0].items())
    )


def of_torch():
    torch.manual_seed(1)
    return nn.Transformer(16, 4, 2, 1, 32, dropout=0.0, batch_first=True).eval()


@pytest.mark.parametrize(("memory_too", "adapted"), [(False, False), (True, False), (True, True)])
def test_padding_of_targets_is_no_query_of_torchs_cross_attention(memory_too, adapted):
    """Not in DEACON's statistics, and not in records; also in a copy of the layer, and in peft's of the attention."""
    source, target, lengths = torch.randn(3, 5, 16), torch.randn(3, 4, 16), torch.tensor([4, 0, 2])
    memory_padding = torch.arange(5).expand(3, 5) >= torch.tensor([[5], [0], [3]]) if memory_too else None
    results = []
    for extra in (0, 6):  # columns of padding
        torch.manual_seed(0)
        model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 1)
        headdiv.insert(model, DEACON)
        model = copy.deepcopy(model).train()
        if adapted:
            peft, inserted = pytest.importorskip("peft"), [*headdiv.inserted_modules(model)]
            model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["linear1"], modules_to_save=inserted))
        model(target, source)  # of which no padding is known afterwards
        layers = list(pca_layers(model).values())
        for layer in layers:
            layer.forget_interrupted_step()
        padding = torch.arange(4 + extra) >= lengths[:, None]
        padded = nn.functional.pad(target, (0, 0, 0, extra))
        with headdiv.record_heads(model) as records:
            output = model(padded, source, tgt_key_padding_mask=padding, memory_key_padding_mask=memory_padding)
        assert [layer.inputs.moments[0] for layer in layers] == [6 * 4, 6 * 4]
        assert records[1].layout.queries.lengths.tolist() == lengths.tolist()
        output[~padding].sum().backward()
        gradients = [p.grad for p in model.parameters() if p.requires_grad]
        results.append(
            [output[~padding], records[1].outputs, *(layer.inputs.moments[2] for layer in layers), *gradients]
        )
        assert all(x.isfinite().all() for x in results[-1])
        self_attention = next(iter(active_modules(model, headdiv.MultiheadAttention).values()))
        self_attention.register_full_backward_hook(lambda *_: None)  # query, key and value become three objects
        with headdiv.record_heads(model) as records:
            model(padded.requires_grad_(), source)
        assert records[1].layout.queries.full  # the padding was that of the pass before
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


@every_method_or_kind("gpt2", "llama", "torch")
def test_what_was_frozen_stays_frozen(options, kind):
    model = of_torch() if kind == "torch" else model_of(kind)
    model.requires_grad_(False)
    headdiv.insert(model, options)
    trainable = {name.rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trainable <= {"w", "b", "alphas", "beta", "gate", "weight", "bias"}  # weight, bias: of a normalisation
    projections = [p for p in model.parameters() if p.requires_grad and p.dim() == 2 and p.shape[0] == 32]
    assert not projections
    assert not any(p.requires_grad for name, p in model.named_parameters() if "in_projection" in name)


def test_an_attention_with_two_names_is_replaced_under_both_and_its_parameters_are_the_same():
    attention = nn.MultiheadAttention(16, 4)
    model = nn.ModuleDict(
        {"one": nn.ModuleDict({"a": attention, "c": attention}), "two": nn.ModuleDict({"b": attention})}
    )
    weight = attention.in_proj_weight
    headdiv.insert(model, MIXING)
    assert model["one"]["a"] is model["one"]["c"] is model["two"]["b"] is not attention
    assert model["one"]["a"].attention.in_projection.weight is weight
    assert [*headdiv.inserted_modules(model)] == ["one.a"]
    headdiv.remove_method(model)
    assert model["one"]["a"] is model["one"]["c"] is model["two"]["b"] is attention


def test_what_cannot_be_replaced_as_a_whole_is_refused():
    class Own(nn.MultiheadAttention):
        pass

    with pytest.raises(DataError, match=r"^1: a .*Own of .*; expected torch.nn.MultiheadAttention itself"):
        headdiv.insert(nn.Sequential(nn.Linear(2, 2), Own(16, 4)), MIXING)
    model, batch = other("siglip")
    del batch["attention_mask"]  # the model reads the last token, padding or not
    before, plain = state_of(model), output(model, batch)
    with pytest.raises(
        DataError, match=r"SiglipModel: has torch.nn.MultiheadAttention \(vision_model.head.attention\) beside"
    ):
        headdiv.insert(model, MIXING)
    assert same(state_of(model), before)
    headdiv.insert(model.text_model, MIXING)
    assert torch.allclose(output(model, batch), plain, atol=1e-4)
    assert len(attention_modules(model)) == 2


class Linear(nn.Linear):
    """In the place of one with adapters beside it."""


def adapted(model):
    for layer in model.bert.encoder.layer:
        layer.attention.output.dense = Linear(32, 32)


def pruned(model):
    for layer in model.bert.encoder.layer:
        prune.random_unstructured(layer.attention.output.dense, "weight", 0.5)


def with_peft(model):
    model.peft_config = {"default": object()}


REFUSED = {
    adapted: r"^encoder 1: the method needs .* plain Linear of torch.nn, found a Linear of test_whole",
    pruned: "encoder 1: its output projection holds weight_mask, which would be lost",
    with_peft: r"adapters of peft, .*modules_to_save=\[\*headdiv.inserted_modules\(model\)\]",
}


@pytest.mark.parametrize("options", [DEACON, {"name": "drop-head", "start": 0.5}], ids=lambda options: options["name"])
@pytest.mark.parametrize("change", REFUSED)
def test_what_a_projection_holds_besides_its_weights_is_refused(change, options):
    model = model_of("bert")
    change(model)
    before = state_of(model)
    with pytest.raises(DataError, match=REFUSED[change]):
        headdiv.insert(model, options)
    assert same(state_of(model), before)
    assert attachment_of(model) is None
    headdiv.insert(model, {"name": "disagreement", "term": "output"})  # which puts nothing there


@pytest.mark.parametrize("name", ["in_proj_weight", "out_proj.weight"])
def test_pruned_attention_of_torch_is_refused(name):
    model = of_torch()
    path, _, parameter = f"decoder.layers.0.self_attn.{name}".rpartition(".")
    prune.random_unstructured(model.get_submodule(path), parameter, 0.5)
    with pytest.raises(DataError, match=rf"decoder.layers.0.self_attn holds {name}_mask, which would be lost"):
        headdiv.insert(model, "baseline")


@every_method
def test_adapters_that_are_made_afterwards_train_and_save_the_method(options, tmp_path):
    peft = pytest.importorskip("peft")
    states = []
    for trained in (True, False):
        model = model_of("llama")
        method = headdiv.insert(model, options)
        config = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=[*headdiv.inserted_modules(model)])
        if trained:
            adapted = peft.get_peft_model(model, config).train()
            with headdiv.record_heads(adapted) as records:
                loss = adapted(**arguments(model, labels=True)).loss
            added = method.aux_loss(adapted, records, 0.5, 6)
            (loss if added is None else loss + added).backward()
            assert all(w.requires_grad for w in method.own_parameters(adapted))
            method.after_backward(adapted, 0.5)
            torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=0.1).step()
            assert all(len(modules) == 2 for modules in method.artifacts(adapted).values())
            adapted.save_pretrained(tmp_path)
        else:
            adapted = peft.PeftModel.from_pretrained(model, tmp_path)
        states.append(logits(adapted.eval(), arguments(model)))
    torch.testing.assert_close(*states)  # not to the bit: torch.matmul takes another way where nothing needs a gradient


class Third(Method):
    """Cannot be put into the second module."""

    name = "third"

    def output_stage(self, spec):
        if spec.layer == 1:
            raise ConfigError("no second layer")
        return nn.Linear(spec.heads * spec.d_head, spec.d_model)


@pytest.mark.usefixtures("own_methods")
@pytest.mark.parametrize("attached", [False, True])
def test_an_error_in_the_middle_leaves_the_model_as_it_was(attached):
    headdiv.register(Third)
    for model in (model_of("gpt2"), of_torch()):
        if attached and not isinstance(model, nn.Transformer):
            headdiv.pretrained.attach(model)
        before = state_of(model)
        with pytest.raises(ConfigError, match="no second layer"):
            headdiv.insert(model, Third(Third.Options()))
        assert same(state_of(model), before)
        headdiv.insert(model, MIXING)


@every_method_or_kind("gpt2", "t5", "torch")
def test_a_method_can_be_taken_out_again(options, kind, tmp_path):
    model = of_torch() if kind == "torch" else model_of(kind)
    batch = (torch.randn(2, 5, 16), torch.randn(2, 3, 16)) if kind == "torch" else arguments(model)
    run = (lambda: model(*batch)) if kind == "torch" else (lambda: logits(model, batch))
    with pytest.raises(DataError, match="found no method"):
        headdiv.remove_method(model)
    plain, before = run(), state_of(model)
    headdiv.insert(model, options)
    assert len(headdiv.inserted_modules(model)) == len(attention_modules(model))
    copied = copy.deepcopy(model)
    headdiv.remove_method(model)
    assert not headdiv.inserted_modules(model)
    if kind != "torch":
        assert "method" not in model.config.headdiv
        headdiv.pretrained.attach(model).detach()
    assert same(state_of(model), before)
    assert torch.equal(run(), plain)
    headdiv.insert(model, options)
    headdiv.remove_method(copied)
    assert same((state_of(copied)[0], []), (before[0], []))


@pytest.mark.parametrize("wrapped", [nn.DataParallel, lambda model: nn.Sequential(model, nn.Tanh())])
def test_a_method_is_found_and_taken_out_within_and_around_what_wraps_the_model(wrapped):
    for inside in (True, False):
        model = model_of("bert")
        wrapper = wrapped(model)
        inserting, removing = (model, wrapper) if inside else (wrapper, model)
        headdiv.insert(inserting, MIXING)
        assert headdiv.pretrained.inserted_method(removing) is not None
        assert headdiv.pretrained.attach(removing).modules == headdiv.pretrained.attach(inserting).modules
        headdiv.remove_method(removing)
        assert "method" not in model.config.headdiv
        headdiv.pretrained.attach(removing).detach()
        assert attachment_of(inserting) is None


@pytest.mark.parametrize("part", ["text_model", "vision_model"])
def test_a_model_of_which_a_part_has_a_method_is_refused(part):
    model, _ = other("clip")
    headdiv.insert(model.get_submodule(part), MIXING)
    with pytest.raises(DataError, match="CLIPModel: a part of it"):
        headdiv.insert(model, MIXING)


@pytest.mark.parametrize("options", ["baseline", {"name": "disagreement", "term": "output"}])
@pytest.mark.parametrize("bias", [True, False])
def test_torchs_attention_has_what_was_trained_once_a_method_that_keeps_it_is_out(options, bias):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, bias=bias)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 16)
    headdiv.insert(model, options)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    model(x)[..., 0].sum().backward()
    optimiser.step()
    model.load_state_dict({name: y + torch.randn(y.shape) / 5 for name, y in model.state_dict().items()}, assign=True)
    trained = model(x)
    headdiv.remove_method(model)
    assert torch.allclose(model(x), trained, atol=1e-5)


def test_a_method_is_not_taken_out_where_torchs_attention_would_have_the_removed_heads_again():
    model, batch = of_torch(), (torch.randn(2, 5, 16), torch.randn(2, 3, 16))
    headdiv.insert(model, "baseline")
    headdiv.ModelHeads(model).remove([("decoder 1", 2)])
    before = model(*batch)
    with pytest.raises(DataError, match="decoder 1: has 3 heads of 4"):
        headdiv.remove_method(model)
    assert torch.equal(model(*batch), before)


def test_a_method_is_not_taken_out_where_adapters_on_a_projection_would_be_lost():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    model, batch = of_torch(), (torch.randn(2, 5, 16), torch.randn(2, 3, 16))
    headdiv.insert(model, {"name": "homeostasis", "attention": "kwta", "s_att": 0.5})
    adapted = peft.get_peft_model(model, config).eval()
    before = adapted(*batch)
    with pytest.raises(DataError, match=r"encoder 1: its in_projection holds base_layer.*, which would be lost"):
        headdiv.remove_method(adapted)
    assert torch.equal(adapted(*batch), before)


@pytest.mark.parametrize("options", [{"name": "disagreement", "term": "output"}, MIXING], ids=lambda o: o["name"])
@pytest.mark.parametrize("part", ["o_proj", "layers.1"])
def test_heads_are_those_of_the_parts_that_peft_copies(part, options):
    """Also where the copied part is more, or less, than what the method inserted."""
    peft, results = pytest.importorskip("peft"), []
    for adapted in (False, True):
        model = wrapper = model_of("llama")
        method, batch = headdiv.insert(model, options), arguments(model, labels=True)
        if adapted:
            wrapper = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], modules_to_save=[part]))
        heads = headdiv.pretrained.attach(wrapper)
        with headdiv.record_heads(wrapper.train()) as records:
            loss = wrapper(**batch).loss
        added = method.aux_loss(wrapper, records, 0.5, 12)
        method.after_backward(wrapper, 0.5)
        scores = [change.change for change in heads.importance([batch])]
        with heads.edited({"decoder 2": lambda outputs, _: outputs * 0}):
            edited = wrapper(**batch).loss
        results.append([loss, added, *scores, edited])
    torch.testing.assert_close(*results)
    if options is MIXING:
        assert headdiv.pretrained.inserted_method(wrapper).options == method.options
