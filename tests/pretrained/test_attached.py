"""Attached models: the same outputs, records, masks, removal; nothing left behind."""

import copy
import subprocess
import sys

import pandas as pd
import pytest
import torch
import transformers
from attachable import ARCHITECTURES, ENCODER, SQUARE, arguments, difference, logits, model_of, other, output

import headdiv
from headdiv.analysis.masking import least_important_first
from headdiv.core.errors import ConfigError, DataError
from headdiv.pretrained import attached
from headdiv.pretrained.attached import attachment_of

every_architecture = pytest.mark.parametrize("kind", ARCHITECTURES)


def literal_mask(heads, gone):
    """Set the columns of the output projections that belong to these heads to 0."""
    for module in heads.modules:
        K, projection = module.spec.d_head, module.projections.output
        weight = projection.weight.data.T if not hasattr(projection, "nf") else projection.weight.data
        for place, head in gone:
            if place == module.spec.name:
                weight[(head - 1) * K : head * K] = 0


@pytest.mark.parametrize(
    ("kind", "implementation"), [*((kind, "sdpa") for kind in ARCHITECTURES), ("bert", "eager"), ("t5", "eager")]
)
def test_outputs_are_the_same_to_the_last_bit_and_detaching_leaves_the_model_as_it_was(kind, implementation):
    model = model_of(kind, attn_implementation=implementation)
    batch, names = arguments(model), [name for name, _ in model.named_modules()]
    plain, state = logits(model, batch), copy.deepcopy(model.state_dict())
    heads = headdiv.pretrained.attach(model)
    assert torch.equal(logits(model, batch), plain)
    with heads.record() as records:
        assert torch.equal(logits(model, batch), plain)
    assert [record.spec.name for record in records] == list(heads.counts)
    with headdiv.masked_heads(model, {place: torch.ones(count) for place, count in heads.counts.items()}):
        assert torch.equal(logits(model, batch), plain)
    assert headdiv.pretrained.attach(model).modules == heads.modules  # once is enough
    assert list(model.state_dict()) == list(state)
    heads.detach()
    assert attachment_of(model) is None
    assert model.config._attn_implementation == implementation
    assert [name for name, _ in model.named_modules()] == names
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(logits(model, batch), plain)


@every_architecture
def test_records_are_the_weights_that_the_model_itself_gives_for_real_tokens(kind):
    eager, fused = (model_of(kind, attn_implementation=name) for name in ("eager", "sdpa"))
    batch = arguments(eager)
    result = eager(**batch, output_attentions=True)
    by_kind = {"encoder": result.get("encoder_attentions"), "cross": result.get("cross_attentions")}
    by_kind["decoder"] = result.get("decoder_attentions")
    by_kind = {name: attentions for name, attentions in by_kind.items() if attentions} or {"decoder": result.attentions}
    heads, real = headdiv.pretrained.attach(fused), batch["attention_mask"].bool()
    with heads.record() as records, torch.no_grad():
        fused(**batch)
    for record in records:
        weights = by_kind.get(record.spec.kind, by_kind.get("decoder"))[record.spec.layer]
        queries = real if weights.shape[2] == real.shape[1] else torch.ones(real.shape[0], weights.shape[2]).bool()
        recorded, returned = (x.transpose(1, 2)[queries] for x in (record.weights, weights))
        assert torch.allclose(recorded, returned, atol=1e-5)
        assert record.outputs.shape == (int(queries.sum()), 4, record.spec.d_head)
        assert record.values.shape[0] == record.layout.keys.tokens
        sentence = record.layout.queries.sentence_of_row() == 1  # outputs are the weighted sum of the values
        values = record.values[record.layout.keys.sentence_of_row() == 1]
        sentence_weights = recorded[queries.nonzero()[:, 0] == 1][..., : len(values)]
        assert torch.allclose(
            torch.einsum("nhs,shk->nhk", sentence_weights, values), record.outputs[sentence], atol=1e-5
        )


@every_architecture
def test_masking_is_a_literal_mask_and_removal_is_masking_with_fewer_parameters(kind):
    model = model_of(kind)
    batch, heads = arguments(model), headdiv.pretrained.attach(model)
    places = list(heads.counts)
    gone = [(places[0], 2), *((place, head) for place in places[1::2] for head in (1, 2, 4))]
    with heads.without(gone):
        masked = logits(model, batch)
    literal = model_of(kind)
    literal_mask(headdiv.pretrained.attach(literal), gone)
    assert difference(logits(literal, batch), masked, batch) < 1e-5
    assert difference(logits(model, batch), masked, batch) > 1e-3
    parameters = model.num_parameters()
    heads.remove(gone, batch)
    assert difference(logits(model, batch), masked, batch) < 1e-5
    assert model.num_parameters() < parameters
    assert heads.counts == {place: 4 - sum(place == gone_place for gone_place, _ in gone) for place in places}
    with heads.without([(places[0], 2)]):  # the third of the model as it was
        masked_again = logits(model, batch)
    heads.remove([(places[0], 2)])
    assert difference(logits(model, batch), masked_again, batch) < 1e-5
    assert model.config.headdiv["removed"][places[0]] == [2, 3]
    heads.detach()
    assert (attachment_of(model) is None) == (kind != "t5")  # groups are even again
    assert difference(logits(model, batch), masked_again, batch) < 1e-5


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_all_heads_of_a_module_and_generation_after_removal(kind):
    model = model_of(kind)
    batch, heads = arguments(model, lengths=(5, 5)), headdiv.pretrained.attach(model)
    gone = [("decoder 2", head) for head in (1, 2, 3, 4)] + [("decoder 1", 1)]
    ids = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    settings = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6}
    with heads.without(gone):
        masked, tokens = logits(model, batch), model.generate(**ids, **settings)
    heads.remove(gone)
    assert heads.counts["decoder 2"] == 1
    assert difference(logits(model, batch), masked, batch) < 1e-5
    assert torch.equal(model.generate(**ids, **settings), tokens)  # with cached keys and values


def test_weights_of_a_text_of_padding_alone_are_zero_as_its_heads_are():
    model = model_of("bart", attn_implementation="sdpa")
    batch = arguments(model)
    batch["attention_mask"][1] = 0
    with headdiv.pretrained.attach(model).record() as records, torch.no_grad():
        model(**batch)
    for record in (record for record in records if record.spec.kind == "cross"):
        assert not record.outputs[record.layout.queries.sentence_of_row() == 1].any()
        assert record.weights.any(-1)[[0, 2]].all()
        assert not record.weights[1].any()


def test_records_of_generation_leave_out_the_texts_padding():
    model = model_of("bart")
    batch = {key: value for key, value in arguments(model).items() if key != "decoder_input_ids"}  # 7, 5, 3 tokens
    with headdiv.pretrained.attach(model).record() as records:
        model.generate(**batch, max_new_tokens=3, do_sample=False, num_beams=2)
    encoder = [record for record in records if record.spec.kind == "encoder"]
    assert [len(record.outputs) for record in encoder] == [7 + 5 + 3] * 2  # layers
    cross = [record for record in records if record.spec.kind == "cross"]
    assert [len(record.values) for record in cross] == [2 * (7 + 5 + 3)] * 2 * 3  # beams; layers, steps


def test_heads_are_ranked_by_what_the_metric_loses_without_each():
    model = model_of("bert")
    heads, batch = headdiv.pretrained.attach(model), arguments(model, labels=True)

    def metric():
        return model(**batch).loss.item()

    changes, plain = heads.leave_one_out(metric), metric()
    with heads.without([("encoder 2", 3)]):
        assert changes[6].change == pytest.approx(metric() - plain, abs=1e-6)
    curve = heads.pruning_curve(metric, least_important_first(changes), 4)
    assert [point.kept for point in curve] == [8, 6, 4, 2, 0]
    assert curve[0].value == pytest.approx(metric())


def test_measures_leave_out_padding_and_special_tokens_whichever_side_they_are_on():
    model = model_of("gpt2")
    heads = headdiv.pretrained.attach(model)
    sides = []
    for left in (False, True):
        batch = arguments(model, left=left)
        batch["input_ids"] = batch["input_ids"].fliplr() if left else batch["input_ids"]
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
        sides.append(heads.to_frame([batch], special=[0]))
    assert list(sides[0].index) == [(f"decoder {layer}", head) for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert not sides[0].isna().any().any()
    ids = arguments(model)["input_ids"]
    ((_, measured), *_) = heads.measures([arguments(model)], special=ids[0, :2].tolist())
    assert measured.queries == 13


def test_batches_may_be_arguments_in_order():
    model = model_of("bert")
    heads, ids = headdiv.pretrained.attach(model), arguments(model)["input_ids"]
    for batch in (ids, (ids,)):
        pd.testing.assert_frame_equal(heads.to_frame([batch]), heads.to_frame([{"input_ids": ids}]))


class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **batch):
        return self.model(**batch)


@pytest.mark.parametrize(("kind", "wrapped"), [("bart", False), ("t5", False), ("t5", True)])
def test_special_tokens_are_those_that_the_decoder_reads_where_only_labels_are_given(kind, wrapped):
    model = model_of(kind)
    heads = headdiv.pretrained.attach(Wrapper(model) if wrapped else model)
    batch = arguments(model, labels=True)
    read = model.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    special = [int(read[0, 0]), int(read[0, 1]), int(batch["input_ids"][0, 0])]
    written = {**batch, "decoder_input_ids": read}
    pd.testing.assert_frame_equal(heads.to_frame([batch], special), heads.to_frame([written], special))
    encoder, *_, cross = heads.measures([batch], special)
    assert cross[1].queries == int((~torch.isin(read, torch.tensor(special))).sum())
    assert encoder[1].queries < int(batch["attention_mask"].sum())


@pytest.mark.parametrize(("kind", "side"), [("bert", ""), ("bart", ""), ("bart", "decoder_")])
def test_special_tokens_that_cannot_be_found_are_no_words_to_measure(kind, side):
    model = model_of(kind)
    heads, batch = headdiv.pretrained.attach(model), arguments(model)
    embeddings = model.get_input_embeddings()(batch.pop(f"{side}input_ids")).detach()
    embedded = {**batch, f"{side}inputs_embeds": embeddings}
    for given in (embedded, batch) if side else (embedded,):  # BART reads the source where no target is given
        assert len(heads.to_frame([given])) == sum(heads.counts.values())
        with pytest.raises(DataError, match=r"^special: the batches do not say which tokens they hold"):
            heads.to_frame([given], special=[0])


def test_a_refusal_to_remove_heads_leaves_the_model_as_it_was():
    heads = headdiv.pretrained.attach(model_of("bert"))
    query, before = heads.modules[1].projections.inputs[0], copy.deepcopy(heads.model.state_dict())
    query.__class__ = type("Linear", (torch.nn.Linear,), {"__module__": "peft.tuners.lora.layer"})
    with pytest.raises(DataError, match=r"encoder 2: heads cannot be removed from a Linear of peft.* a plain Linear"):
        heads.remove([("encoder 1", 1), ("encoder 2", 1)])
    torch.testing.assert_close(heads.model.state_dict(), before, rtol=0, atol=0)
    assert heads.counts == {"encoder 1": 4, "encoder 2": 4}


def test_heads_of_a_layer_that_peft_copies_are_removed_once_it_is_merged():
    peft, model = pytest.importorskip("peft"), model_of("llama")
    heads, batch, gone = headdiv.pretrained.attach(model), arguments(model), [("decoder 1", 1), ("decoder 2", 1)]
    config = peft.LoraConfig(target_modules=["down_proj"], modules_to_save=["layers.1"])
    wrapper = peft.get_peft_model(model, config).eval()
    with pytest.raises(DataError, match=r"decoder 2: heads cannot be removed while adapters run a copy.*merged"):
        heads.remove(gone)
    assert heads.counts == {"decoder 1": 4, "decoder 2": 4}
    heads.detach()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in wrapper.modules())
    heads = headdiv.pretrained.attach(wrapper.merge_and_unload())
    with heads.without(gone):
        masked = logits(heads.model, batch)
    heads.remove(gone)
    assert difference(logits(heads.model, batch), masked, batch) < 1e-5


def test_a_model_that_does_not_run_with_fewer_heads_is_refused_and_stays_as_it_was():
    model, batch = other("olmo2")
    heads = headdiv.pretrained.attach(model)
    before, plain = copy.deepcopy(model.state_dict()), output(model, batch)
    with pytest.raises(DataError, match=r"^Olmo2ForCausalLM: its code does not work with fewer heads"):
        heads.remove([(place, 1) for place in heads.counts], batch)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(output(model, batch), plain)
    assert set(heads.counts.values()) == {4}
    assert not hasattr(model.config, "headdiv")


def test_one_head_has_no_pairs_and_no_batch_no_measures():
    heads = headdiv.pretrained.attach(model_of("bert"))
    heads.remove([("encoder 1", head) for head in (1, 2, 3)])
    table = heads.to_frame([arguments(heads.model)])
    assert table.loc["encoder 1", ["cosine", "l2", "cka", "js"]].isna().all(axis=None)
    assert not table.loc["encoder 2"].isna().any(axis=None)
    for measure in (heads.to_frame, heads.importance):
        with pytest.raises(DataError, match="batches: found none"):
            measure([])


def test_heads_of_a_detached_model_are_those_that_were_attached_anew():
    model = model_of("bert")
    heads, batch, gone = headdiv.pretrained.attach(model), arguments(model), [("encoder 1", 2)]
    heads.detach()
    for use in (lambda: heads.importance([batch]), lambda: heads.counts):
        with pytest.raises(DataError, match=r"BertForMaskedLM: is detached; expected headdiv.pretrained.attach"):
            use()
    attached_again = headdiv.pretrained.attach(model)
    with heads.without(gone):
        masked = logits(model, batch)
    with attached_again.without(gone):
        assert difference(logits(model, batch), masked, batch) == 0


def test_labels_of_whole_texts_say_nothing_of_padding():
    """One label for each text: transformers reads the decoder's input from the encoder's."""
    plain = model_of("bart")
    model = transformers.BartForSequenceClassification(copy.deepcopy(plain.config)).eval()
    batch = {"input_ids": torch.tensor([[5, 6, 2], [7, 8, 2]]), "labels": torch.tensor([0, 1])}
    expected = logits(model, batch)
    headdiv.pretrained.attach(model)
    assert torch.equal(logits(model, batch), expected)


def flash():
    model = model_of("bert")
    model.config._attn_implementation_internal = "flash_attention_2"
    return model


def with_attached_config():
    model = model_of("bert")
    headdiv.pretrained.attach(model)
    return type(model)(model.config)


def long():
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 2, "vocab_size": 50}
    return transformers.LongT5ForConditionalGeneration(transformers.LongT5Config(**sizes))


def segment_anything():
    """Attention with names that are known, and no attribute that says how wide its heads are."""
    vision = {**ENCODER, **SQUARE, "mlp_dim": 64, "output_channels": 16, "num_pos_feats": 8, "global_attn_indexes": [1]}
    return transformers.SamModel(transformers.SamConfig(vision_config=vision))


REFUSED = {  # models that are not attached, and key words of the error
    lambda: torch.nn.Linear(2, 2): r"Linear: no attention that is known here; expected .*query/key/value",
    lambda: torch.nn.ModuleList([model_of("bert"), model_of("bert")]): "ModuleList: is several models",
    flash: "runs as 'flash_attention_2'; expected 'sdpa' or 'eager'",
    with_attached_config: "or a model with the same config, is attached already; expected .*deepcopy",
    long: "LongT5ForConditionalGeneration: no attention that is known here",
    segment_anything: "SamModel: no attention that is known here",
}


@pytest.mark.parametrize("make", REFUSED)
def test_what_cannot_be_attached_is_refused(make):
    with pytest.raises(DataError, match=REFUSED[make]):
        headdiv.pretrained.attach(make())


def test_what_cannot_be_removed_is_refused(monkeypatch):
    heads = headdiv.pretrained.attach(model_of("bert"))
    with pytest.raises(DataError, match=r"no head 5 in 'encoder 1'"):
        heads.remove([("encoder 1", 5)])
    with pytest.raises(DataError, match=r"expected a batch: remove\(heads, batch\)"):
        headdiv.pretrained.attach(other("vit")[0]).remove([("encoder 1", 1)])
    monkeypatch.setitem(attached.sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'headdiv\[hf\]'"):
        attached.transformers()


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_removal_that_changes_the_output_is_refused_in_every_precision(kind):
    """Per-head norms of StableLM shift to other heads."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2}
    config = transformers.StableLmConfig(**sizes, intermediate_size=64, vocab_size=100, qk_layernorm=True)
    torch.manual_seed(0)
    model = transformers.StableLmForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        parameter.data = torch.randn_like(parameter) * (1.0 if "layernorm" in name else 0.2)
    model.to(getattr(torch, kind))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(DataError, match="its output is another than that of the masked model"):
        headdiv.pretrained.attach(model).remove([("decoder 1", 1)])
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_heads_are_removed_in_half_precision():
    model = model_of("llama").bfloat16()
    heads = headdiv.pretrained.attach(model)
    heads.remove([("decoder 1", 1), ("decoder 2", 3)])
    assert heads.counts == {"decoder 1": 3, "decoder 2": 3}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


MANY = """
import resource, sys, torch
from transformers import BertConfig, BertForMaskedLM
from headdiv.pretrained import attach
torch.set_num_threads(1)
sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
heads = attach(BertForMaskedLM(BertConfig(vocab_size=500, **sizes)))
def batches(count):
    draw = torch.Generator().manual_seed(1)
    for _ in range(count // 20):
        yield {"input_ids": torch.randint(4, 500, (20, 24), generator=draw)}
for count in (500, 3000):
    measured = heads.measures(batches(count))[0][1]
    assert measured.queries == 24 * count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text():
    output_text = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True).stdout
    few, many = map(int, output_text.split())
    assert many - few < 4 * 1024, output_text
