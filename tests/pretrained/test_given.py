"""What attention is really given: another implementation set later, padding in masks of all forms, dropout."""

import pytest
import torch
from attachable import ARCHITECTURES, arguments, difference, logits, model_of, other, output

import headdiv
from headdiv.core.errors import DataError

every_architecture = pytest.mark.parametrize("kind", ARCHITECTURES)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_finite_bias_in_a_mask_is_no_padding(implementation):
    """Such as ALiBi's, or of relative positions: only what excludes a key does."""
    model = model_of("llama", attn_implementation=implementation)
    ids, N = torch.randint(4, 100, (2, 5), generator=torch.Generator().manual_seed(1)), 5
    later = torch.ones(N, N, dtype=torch.bool).triu(1)
    bias = -0.5 * (1 + torch.arange(N)[:, None] - torch.arange(N)).float()  # of a word itself too
    mask = bias.masked_fill(later, torch.finfo(torch.float32).min).expand(2, 1, N, N).clone()
    mask[1, :, :, 0] = torch.finfo(torch.float32).min  # padding on the left
    with headdiv.pretrained.attach(model).record() as records, torch.no_grad():
        model(input_ids=ids, attention_mask=mask)
    for record in records:
        assert record.layout.queries.lengths.tolist() == [5, 4]
        assert record.layout.keys.lengths.tolist() == [5, 4]


@every_architecture
def test_another_implementation_set_later_is_recorded_and_masked_too(kind):
    model = model_of(kind)
    batch, heads = arguments(model), headdiv.pretrained.attach(model)
    plain = logits(model, batch)
    model.set_attn_implementation("eager")
    assert any(
        abs(change.change) > 1e-4 for change in heads.leave_one_out(lambda: float(logits(model, batch).square().mean()))
    )
    model.set_attn_implementation("sdpa")
    with heads.without([(next(iter(heads.counts)), 2)]), heads.record() as records:
        assert difference(logits(model, batch), plain, batch) > 1e-3
    assert len(records) == len(heads.counts)
    model.set_attn_implementation("eager")
    heads.detach()
    assert model.config._attn_implementation == "eager"


def test_an_attention_that_is_bypassed_or_is_not_all_that_there_is_says_so():
    for kind, problem in (("diffllama", "runs more than once"), ("qwen3_next", "reads something else")):
        model, batch = other(kind)
        headdiv.pretrained.attach(model)
        for _ in range(2):
            with pytest.raises(DataError, match=rf"^decoder 1 \(.*Attention\): its .* {problem}"):
                output(model, batch)
    model = model_of("bert")
    headdiv.pretrained.attach(model)
    module = model.bert.encoder.layer[1].attention.self
    module.forward = lambda states, *_, **__: (states, None)
    with pytest.raises(DataError, match=r"^encoder 2 \(BertSelfAttention\): its attention did not run"):
        logits(model, arguments(model))
    model = model_of("bert")
    heads = headdiv.pretrained.attach(model)
    with (
        heads.record(),
        pytest.raises(DataError, match=r"^encoder 1: .* mask of shape \(7, 7\); expected \(3, 1, 7, 7\)"),
    ):
        model.bert.encoder(torch.zeros(3, 7, 32), attention_mask=torch.ones(7, 7).bool())


def counts(records):
    """Real queries and keys of the first layer's self-attention, by forward pass."""
    chosen = [record for record in records if record.spec.layer == 0 and record.spec.kind != "cross"]
    return [(record.layout.queries.tokens, record.layout.keys.tokens) for record in chosen]


def test_padding_is_seen_in_inner_models_and_in_masks_of_four_dimensions():
    model = model_of("bert")
    batch, heads = arguments(model), headdiv.pretrained.attach(model)
    real = batch["attention_mask"].bool()
    square = real[:, None, None, :] & real[:, None, :, None]
    added = torch.zeros(square.shape).masked_fill(~square, torch.finfo(torch.float32).min)
    with heads.record() as records, torch.no_grad():
        for mask in (batch["attention_mask"], square, added):
            model.bert(input_ids=batch["input_ids"], attention_mask=mask)
    assert counts(records) == [(15, 15)] * 3
    bart = model_of("bart")
    with headdiv.pretrained.attach(bart).record() as records:
        bart.model.encoder(**batch)
    assert counts(records) == [(15, 15)]


@pytest.mark.parametrize(
    ("window", "cache", "left"), [(None, None, True), (None, "static", False), (3, None, False), (3, "static", True)]
)
def test_padding_is_seen_in_caches(window, cache, left):
    model = model_of("mistral", sliding_window=window)
    batch = arguments(model, left=left)
    with headdiv.pretrained.attach(model).record() as records:
        model.generate(**batch, max_new_tokens=3, min_new_tokens=3, do_sample=False, cache_implementation=cache)
    mask, expected = batch["attention_mask"], [(15, 15)]
    for _ in range(2):  # the keys that the newest token sees
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        expected.append((3, int(mask[:, -(window or 99) :].sum())))
    assert counts(records) == expected


@pytest.mark.parametrize("kind", ["wav2vec2", "clip", "whisper"])
def test_a_mask_of_the_input_says_nothing_of_stacks_of_another_length(kind):
    model, batch = other(kind)
    heads = headdiv.pretrained.attach(model)
    with heads.record() as records:
        output(model, batch)
    counts = {record.spec.name: (record.layout.queries.tokens, record.layout.keys.tokens) for record in records}
    expected = {
        "wav2vec2": {"encoder 1": (35 + 23, 35 + 23)},
        "clip": {"encoder 1": (10, 10), "encoder 3": (10, 10)},
        "whisper": {"encoder 1": (20, 20), "decoder 1": (10, 10), "cross 1": (10, 20)},
    }[kind]
    assert expected.items() <= counts.items()
    table = heads.to_frame([batch], special=[int(batch["input_ids"][0, 0])] if kind == "clip" else [])
    assert not table.isna().any(axis=None)
    assert (table["l2"] > 0).all()


@pytest.mark.parametrize("kind", ["gemma2", "gpt_oss"])
def test_weights_under_attention_dropout_are_the_models_own(kind):
    weights = []
    for dropout in (0.0, 0.5):
        model, batch = other(kind, attention_dropout=dropout, attn_implementation="eager")
        with headdiv.pretrained.attach(model).record() as records:
            output(model.train(), batch)
        weights.append(records[0].weights)
    assert torch.equal(*weights)
