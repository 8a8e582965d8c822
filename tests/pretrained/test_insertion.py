"""Methods in models that are there already, in transformers' training, and in what that saves."""

import pytest
import torch
from attachable import ARCHITECTURES, arguments, difference, logits, model_of
from torch import nn

import headdiv
from headdiv.core.errors import ConfigError, DataError
from headdiv.methods.base import Method
from headdiv.methods.deacon import pca_layers
from headdiv.methods.head_scale import ScaledOutput
from headdiv.methods.homeostasis import Inhibition
from headdiv.nn.records import attention_modules
from headdiv.pretrained.attached import attachment_of
from headdiv.pretrained.trainer import predictions

DEACON = {"name": "deacon", "architecture": "direct", "m": 3, "gha_steps": 5}
MIXING = {"name": "mixing", "start": 0.0}
KWTA = {"name": "homeostasis", "attention": "kwta", "s_att": 0.5, "kinds": ["encoder", "decoder", "cross"]}


@pytest.mark.parametrize(
    ("kind", "options"), [*((kind, DEACON) for kind in ARCHITECTURES), ("bert", MIXING), ("llama", KWTA)], ids=str
)
def test_a_method_between_heads_and_output_projection_trains_is_saved_and_loads_back(kind, options, tmp_path):
    model = model_of(kind)
    batch, plain = arguments(model, labels=True), logits(model, arguments(model))
    method = headdiv.insert(model, options)
    if options is MIXING:  # starts as the model was
        assert difference(logits(model, arguments(model)), plain, batch) < 1e-4
    else:
        assert difference(logits(model, arguments(model)), plain, batch) > 1e-3
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.train()
    loss = model(**batch).loss
    added = method.aux_loss(model, [], 0.5, 12)
    (loss if added is None else loss + added).backward()
    method.after_backward(model, 0.5)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert {name for name in before if name.endswith((".w", "alphas", "stage.weight"))} <= moved
    model.eval().save_pretrained(tmp_path)
    loaded = headdiv.pretrained.load(tmp_path)
    assert torch.equal(logits(loaded, batch), logits(model, batch))
    assert loaded.config.headdiv["method"]["name"] == options["name"]
    assert [module.spec for module in attention_modules(loaded)] == [module.spec for module in attention_modules(model)]


def test_padding_reaches_no_inserted_module():
    model = model_of("bert")
    headdiv.insert(model, DEACON)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    statistics = []
    for extra in (0, 4):  # columns of padding
        batch = {name: nn.functional.pad(x, (0, extra)) for name, x in arguments(model).items()}
        for layer in pca_layers(model).values():
            layer.norm.reset_running_stats()
            layer.inputs.moments = None
        model(**batch)
        statistics.append(
            [x for layer in pca_layers(model).values() for x in (layer.norm.running_mean, layer.inputs.moments[2])]
        )
        assert all(layer.inputs.moments[0] == 15 * 8 for layer in pca_layers(model).values())
        statistics[-1] = [x.clone() for x in statistics[-1]]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*statistics, strict=True))


def test_all_components_start_as_the_model_was_up_to_the_normalisation():
    model = model_of("gpt2")
    for block in model.transformer.h:
        nn.init.normal_(block.attn.c_proj.bias)  # which starts at 0
    plain = logits(model, arguments(model))
    headdiv.insert(model, {**DEACON, "m": 4, "normalisation": "none"})
    assert difference(logits(model, arguments(model)), plain, arguments(model)) < 1e-4


def test_an_output_stage_starts_from_the_models_own_times_its_scale():
    model = model_of("bert")
    dense = model.bert.encoder.layer[0].attention.output.dense
    weight, bias = dense.weight.detach().clone(), nn.init.normal_(dense.bias).detach().clone()
    headdiv.insert(model, {"name": "head-scale", "output_scale": 0.1})
    stage = next(module for module in model.modules() if isinstance(module, ScaledOutput))
    torch.testing.assert_close((stage.weight.data, stage.bias.data), (0.1 * weight, bias))


@pytest.mark.parametrize("options", [DEACON, MIXING, KWTA], ids=lambda options: options["name"])
def test_torchs_own_transformer_takes_a_method_and_its_weights(options):
    torch.manual_seed(1)
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
    source, target = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    model.eval()
    plain = model(source, target)
    method = headdiv.insert(model, options)
    assert [module.spec.name for module in attention_modules(model)] == ["encoder 1", "decoder 1", "cross 1"]
    assert torch.allclose(model(source, target), plain, atol=1e-5) == (options is MIXING)
    model.train()(source, target).sum().backward()
    method.after_backward(model, 0.5)
    with pytest.raises(DataError, match="Transformer: has a method already"):
        headdiv.insert(model, options)


def test_heads_of_torchs_own_attention_are_looked_at_as_ordinary_ones():
    model, x = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), torch.randn(2, 5, 16)
    plain = model(x)
    for look in (headdiv.ModelHeads, headdiv.pretrained.attach):
        with pytest.raises(DataError, match=r"headdiv.insert\(model, 'baseline'\) puts in the place of torch's"):
            look(model)
    headdiv.insert(model, "baseline")
    assert torch.allclose(model(x), plain, atol=1e-6)
    assert len(headdiv.ModelHeads(model).to_frame([x])) == 4


def test_dropped_heads_are_dropped_for_whole_sentences_and_only_in_training():
    model = model_of("bert")
    plain, batch = logits(model, arguments(model)), arguments(model, labels=True)
    method = headdiv.insert(model, {"name": "combined", "methods": [{"name": "drop-head", "start": 0.7}, APART]})
    assert difference(logits(model, arguments(model)), plain, batch) < 1e-5
    inputs = []
    stage = attachment_of(model).heads[0].projections.output
    stage.stage.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    stage.train()
    with headdiv.record_heads(model) as records:
        model(**batch).loss.backward()
    factors = (inputs[0].view(-1, 4, 8) / records[0].outputs).mean(-1)  # (T, H)
    sentences = records[0].layout.queries.sentence_of_row()
    for sentence in range(3):
        sentence_factors = factors[sentences == sentence]
        assert torch.allclose(sentence_factors, sentence_factors[:1].expand_as(sentence_factors), atol=1e-3)
        assert torch.allclose(sentence_factors[0].sum(), torch.tensor(4.0), atol=1e-2)
    assert (factors < 1e-3).any()
    method.after_backward(model, 0.1)
    assert float(stage.own.rate) == 0


@pytest.mark.parametrize("options", [{**DEACON, "direction": "sanger"}, MIXING, {"name": "hsic", "term": "output"}])
def test_methods_train_in_a_bfloat16_model(options):
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        model = model_of("bert").to(dtype).train()
        method = headdiv.insert(model, options)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        with headdiv.record_heads(model) as records:
            loss = model(**arguments(model, labels=True)).loss
        added = method.aux_loss(model, records, 0.5, 12)
        losses.append([x.item() for x in (loss, added) if x is not None])
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        (loss if added is None else loss + added).backward()
        method.after_backward(model, 0.5)
    assert losses[1] == pytest.approx(losses[0], rel=0.1, abs=1e-3)
    assert all(p.isfinite().all() and (p.grad is None or p.grad.isfinite().all()) for p in model.parameters())
    own_parameters = {name: p for name, p in model.named_parameters() if name.endswith((".w", "alphas"))}
    assert all(p.grad is not None or not torch.equal(p, before[name]) for name, p in own_parameters.items())


def test_labels_that_are_ignored_within_a_text_are_no_padding():
    model = model_of("bart")
    headdiv.insert(model, MIXING)
    batch = arguments(model, labels=True)
    plain = logits(model, batch)
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    batch["labels"] = batch["labels"].clone()
    batch["labels"][:, :3] = -100
    assert torch.equal(logits(model, batch), plain)
    ends = torch.tensor([[5, -100, 6, 7, -100, -100]]).repeat(3, 1)
    with headdiv.record_heads(model) as records:
        model(input_ids=batch["input_ids"], labels=ends)
    assert {record.layout.queries.tokens for record in records if record.spec.kind != "encoder"} == {3 * 4}


def test_other_widths_stay_as_they_are():
    model = nn.ModuleList([nn.MultiheadAttention(8, 2, kdim=5, vdim=3)])
    parameters = {id(p) for p in model.parameters()}
    batch = torch.randn(3, 2, 8), torch.randn(4, 2, 5), torch.randn(4, 2, 3)
    expected = model[0](*batch)
    headdiv.insert(model, MIXING)
    torch.testing.assert_close(model.eval()[0](*batch), expected)
    assert {id(p) for p in model[0].attention.in_projection.parameters()} < parameters


APART = {"name": "disagreement", "term": "output"}


class Squashed(Method):
    """Its output stage is no projection."""

    name = "squashed"

    def output_stage(self, spec):
        return nn.Sequential(nn.Linear(spec.heads * spec.d_head, spec.d_model), nn.Tanh())


MORE = "changes more than what is between heads and output projection"
REFUSALS = [  # options, and key words of the error
    ({"name": "rotation"}, MORE),
    ({"name": "moa", "experts": 4, "k": 2}, MORE),
    ({"name": "homeostasis", "block": "kwta"}, MORE),
    ({"name": "combined", "methods": [{"name": "rotation"}, APART]}, MORE),
    ({**MIXING, "kinds": ["cross"]}, r"^method 'mixing': .* no cross attention, only encoder$"),
    ({**DEACON, "m": 9}, r"'deacon': m: 9 is more than the k = 4 inputs"),
    ({"name": "combined", "methods": [APART, {**DEACON, "m": 9}]}, r"'combined': methods.1.m: 9 is more than"),
]


@pytest.mark.parametrize(("options", "words"), REFUSALS)
def test_what_has_no_place_in_a_model_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        headdiv.insert(model_of("bert"), options)


@pytest.mark.usefixtures("own_methods")
def test_what_cannot_be_inserted_says_so():
    model = model_of("bert")
    with pytest.raises(ConfigError, match=r"'Squashed' is not registered, .* expected headdiv\.register\(Squashed"):
        headdiv.insert(model, Squashed())
    headdiv.register(Squashed)
    with pytest.raises(ConfigError, match=r"Sequential cannot start from .* init_from\(weight, bias\)"):
        headdiv.insert(model, Squashed())
    with pytest.raises(ConfigError, match=r"'drop-head' builds attention modules of its own and is not inserted"):
        headdiv.insert(nn.TransformerEncoderLayer(12, 3, 20), {"name": "drop-head"})
    two = nn.ModuleList(nn.MultiheadAttention(8, heads) for heads in (4, 2))
    with pytest.raises(ConfigError, match="1: method: m: "):
        headdiv.insert(two, {"name": "deacon", "m": 3})
    assert all(type(module) is nn.MultiheadAttention for module in two)
    headdiv.insert(model, DEACON)
    with pytest.raises(DataError, match="has a method already"):
        headdiv.insert(model, MIXING)
    with pytest.raises(DataError, match="heads cannot be removed from a InsertedOutput"):
        headdiv.pretrained.attach(model).remove([("encoder 1", 1)])


# ---- transformers' trainer


class Texts(torch.utils.data.Dataset):
    def __init__(self, model, count=12):
        self.batches = [arguments(model, seed, labels=True, lengths=(6,)) for seed in range(count)]

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, i):
        return {name: x[0] for name, x in self.batches[i].items()}


def trainer_of(folder, method, kind="gpt2", **settings):
    import transformers

    settings = {"max_steps": 4, "learning_rate": 1e-2, "seed": 3, "save_strategy": "no"} | settings
    settings = {"per_device_train_batch_size": 2} | settings
    arguments = transformers.TrainingArguments(
        str(folder), report_to=[], logging_steps=1, use_cpu=True, disable_tqdm=True, **settings
    )
    model = model_of(kind)
    return headdiv.pretrained.Trainer(model=model, args=arguments, train_dataset=Texts(model), method=method)


METHODS = [
    pytest.param(MIXING, marks=pytest.mark.slow),
    pytest.param(KWTA, marks=pytest.mark.slow),
    {"name": "combined", "methods": [DEACON, {"name": "disagreement", "term": "position"}]},
]


@pytest.mark.parametrize("method", METHODS, ids=["mixing", "homeostasis", "combined"])
def test_transformers_training_with_a_method_resumes_to_the_same_model(method, tmp_path):
    whole = trainer_of(tmp_path / "a", method, save_strategy="steps", save_steps=2)
    whole.train()
    assert ("auxiliary_loss" in whole.state.log_history[0]) == (method is not KWTA)
    resumed = trainer_of(tmp_path / "a", method)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    state, other = whole.model.state_dict(), resumed.model.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.allclose(state[name].float(), other[name].float(), atol=1e-6) for name in state)
    loaded = headdiv.pretrained.load(tmp_path / "a" / "checkpoint-4")
    batch = arguments(loaded)
    assert torch.equal(logits(loaded, batch), logits(whole.model.eval(), batch))


def test_each_step_of_transformers_training_has_the_methods_own_update(tmp_path):
    trainer, progresses = trainer_of(tmp_path, DEACON), []
    update = trainer.head_method.after_backward

    def noted(model, progress):
        layers = pca_layers(model).values()
        before = [layer.w.clone() for layer in layers]
        update(model, progress)
        progresses.append(progress)
        moved = [float((layer.w - w).detach().norm()) for layer, w in zip(layers, before, strict=True)]
        assert moved == pytest.approx([0.2] * len(moved))  # δP
        assert all(layer.w.grad is None for layer in layers)  # nothing for the optimiser

    trainer.head_method.after_backward = noted
    trainer.train()
    assert progresses == [0.0, 0.25, 0.5, 0.75]


def test_frozen_parameters_and_evaluation_are_left_alone_in_transformers_training(tmp_path):
    trainer, rests = trainer_of(tmp_path, {**MIXING, "start": 0.5}), []
    update = trainer.head_method.after_backward

    def noted(model, progress):
        alphas = [p for name, p in model.named_parameters() if name.endswith("alphas")]
        rests.append(all(torch.equal(A, torch.eye(len(A))) for A in alphas))
        update(model, progress)

    trainer.head_method.after_backward = noted
    trainer.train()
    assert rests == [True, True, True, False]  # those of step 3 are seen before the optimiser moves them
    trainer = trainer_of(tmp_path, {"name": "disagreement", "term": "output", "weight": 3.0})
    batch = arguments(trainer.model, labels=True, lengths=(6, 6))
    trainer.model.eval()
    with torch.no_grad():
        assert torch.equal(trainer.compute_loss(trainer.model, batch), trainer.model(**batch).loss)


def test_a_second_training_takes_its_own_method_unless_another_stands_in_the_model(tmp_path):
    trainer = trainer_of(tmp_path, {"name": "baseline"})
    settings = {"args": trainer.args, "train_dataset": trainer.train_dataset}
    other = headdiv.pretrained.Trainer(model=trainer.model, method={"name": "dpp", "term": "output"}, **settings)
    assert type(other.head_method).__name__ == "Dpp"
    for _ in range(2):
        second = headdiv.pretrained.Trainer(model=trainer.model, method=DEACON, **settings)
        assert second.head_method.options.m == 3
    with pytest.raises(DataError, match="has a method already"):
        headdiv.pretrained.Trainer(model=trainer.model, method={**DEACON, "m": 2}, **settings)


@pytest.mark.parametrize("inserted", [True, False])
def test_a_training_takes_the_method_that_a_model_with_torchs_attention_has(inserted, tmp_path):
    if inserted:
        model = nn.TransformerEncoderLayer(16, 4, 32)
        method = headdiv.insert(model, DEACON)
    else:
        method = headdiv.make_method(DEACON)
        model = nn.Sequential(headdiv.MultiheadAttention(16, 4, method))
    settings = {"args": trainer_of(tmp_path, "baseline").args, "model": model}
    assert headdiv.pretrained.Trainer(method=method, **settings).head_method is method
    with pytest.raises(DataError, match="has a method already"):
        headdiv.pretrained.Trainer(method={**DEACON, "m": 2}, **settings)


class Shrinking(Method):
    """Adds a loss that has nothing to do with predictions."""

    def aux_loss(self, model, records, progress, count):
        return 0.3 * model.get_input_embeddings().weight.square().sum()

    def counts_predictions(self):
        return False


def test_a_model_trained_with_an_own_loss_that_is_not_registered_loads_as_it_is(tmp_path):
    model = model_of("bert")
    headdiv.insert(model, Shrinking(Shrinking.Options()))
    model.save_pretrained(tmp_path)
    batch = arguments(model)
    assert torch.equal(logits(headdiv.pretrained.load(tmp_path), batch), logits(model.eval(), batch))


@pytest.mark.parametrize(
    "method", [{"name": "disagreement", "term": "output", "weight": 3.0}, Shrinking(Shrinking.Options())]
)
def test_the_added_loss_is_that_of_the_whole_step_whatever_the_accumulation(tmp_path, method):
    states, logged = [], []
    for size, steps in ((4, 1), (2, 2)):
        settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 2}
        trainer = trainer_of(tmp_path / str(steps), method, optim="sgd", **settings)
        for module in trainer.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        trainer.train()
        states.append(trainer.model.state_dict())
        logged.append([entry["auxiliary_loss"] for entry in trainer.state.log_history if "auxiliary_loss" in entry])
    assert len(logged[0]) == 2
    assert logged[1] == pytest.approx(logged[0], rel=1e-3)
    assert all(torch.allclose(states[0][name], states[1][name], atol=1e-4) for name in states[0])
    assert attachment_of(trainer.model) is not None


def test_padding_of_a_decoder_whose_input_was_made_of_labels_reaches_no_inserted_module(tmp_path):
    """As `DataCollatorForSeq2Seq` makes it: no mask of the decoder, which the labels stand for."""
    trainer = trainer_of(tmp_path, KWTA, "bart", max_steps=1, label_smoothing_factor=0.1)
    batch = arguments(trainer.model, labels=True)
    batch["labels"][1, 2:] = -100
    batch["decoder_input_ids"] = trainer.model.prepare_decoder_input_ids_from_labels(batch["labels"])
    with headdiv.record_heads(trainer.model) as records:
        trainer.compute_loss(trainer.model.train(), batch)
    assert {record.layout.queries.tokens for record in records if record.spec.kind != "encoder"} == {3 * 6 - 4}


def test_a_model_that_is_made_anew_has_the_method(tmp_path):
    """`model_init`, which transformers calls again when training begins."""
    original = trainer_of(tmp_path, "baseline", max_steps=2)
    settings = {"args": original.args, "train_dataset": original.train_dataset, "method": KWTA}
    trainer = headdiv.pretrained.Trainer(model_init=lambda: model_of("gpt2"), **settings)
    first = trainer.model
    trainer.train()
    assert trainer.model is not first
    (counted, *_) = [module for module in trainer.model.modules() if isinstance(module, Inhibition)]
    assert int(counted.total[-1]) == 2 * 2 * 6  # rows of two steps


def test_the_share_of_a_batch_is_of_what_the_loss_is_a_mean_over():
    labels = torch.tensor([[5, 6, 7, -100], [5, 6, -100, -100]])
    assert [predictions({"labels": labels}, shifted) for shifted in (False, True)] == [5, 3]
