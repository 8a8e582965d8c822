"""Heads of any model with headdiv's attention: measured, ranked, edited; records by sentence."""

import pytest
import torch
from attachable import random_model
from examples import EXAMPLES, heads_by_sentence, some_pairs, tiny
from small_model import make_batch
from torch import nn
from torch.nn.utils import prune

import headdiv
from headdiv.analysis.heads import ModelHeads
from headdiv.core.errors import ConfigError, DataError
from headdiv.nn.attention import AttentionModule
from headdiv.nn.multi_head_attention import MultiHeadAttention

D, H = 12, 3
PADDING = torch.arange(5) >= torch.tensor([5, 4, 2])[:, None]


class Two(nn.Module):
    def __init__(self, method="baseline"):
        super().__init__()
        self.layers = nn.ModuleList(headdiv.MultiheadAttention(D, H, method, batch_first=True) for _ in range(2))

    def forward(self, x, padding=None):
        for layer in self.layers:
            x = x + layer(x, x, x, padding)[0]
        return x


def model_of(method="baseline"):
    torch.manual_seed(0)
    model = Two(method).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # which start at 0
            nn.init.normal_(parameter)
    return model


def batch_of(seed=1):
    return torch.randn(3, 5, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), PADDING


def loss(output):
    return output.square().sum((1, 2)).mean()


def test_a_model_with_the_drop_in_has_a_table_and_a_pruning_curve():
    heads = ModelHeads(model_of())
    table = heads.to_frame([batch_of(), batch_of(2)])
    assert list(table.index) == [(f"encoder {layer}", head) for layer in (1, 2) for head in (1, 2, 3)]
    order = headdiv.pretrained.least_important_first(heads.importance([batch_of()], loss))
    curve = heads.pruning_curve(lambda: loss(heads.model(*batch_of())), order, steps=3)
    assert [point.kept for point in curve] == [6, 4, 2, 0]
    assert [point.kept for point in heads.pruning_curve(lambda: 0.0, order[:1])] == [6, 5]
    with heads.without(order):
        assert curve[-1].value == pytest.approx(float(loss(heads.model(*batch_of()))))


def test_importance_is_the_gradient_of_each_example_at_its_masks():
    model, (x, padding) = model_of(), batch_of()
    scores = {(head.place, head.head): head.change for head in ModelHeads(model).importance([(x, padding)], loss)}
    for layer, module in enumerate(model.layers, 1):
        expected = torch.zeros(H, dtype=torch.float64)
        for i in range(len(x)):
            mask = torch.ones(H, dtype=torch.float64, requires_grad=True)
            handle = module.attention.mask_heads(mask)
            expected += torch.autograd.grad(loss(model(x[i : i + 1], padding[i : i + 1])), mask)[0].abs() / len(x)
            handle.remove()
        assert [scores[f"encoder {layer}", head] for head in (1, 2, 3)] == pytest.approx(expected.tolist())


def attached():
    torch.manual_seed(0)
    model = random_model("bert").double()
    ids = torch.randint(4, 90, (3, 5))
    batches = [{"input_ids": x * ~PADDING, "attention_mask": (~PADDING).long()} for x in (ids, ids.flip(1))]
    return headdiv.pretrained.attach(model), batches, lambda output: output.logits[~PADDING]


def dropped_in():
    return ModelHeads(model_of()), [batch_of(), batch_of(2)], lambda output: output[~PADDING]


@pytest.mark.slow
@pytest.mark.parametrize("made", [attached, dropped_in])
def test_masks_and_edits_act_on_a_compiled_model(made):
    """Whose code was made without them, and would not notice hooks."""
    heads, (batch, _), read = made()
    run = torch.compile(heads.model, backend="eager")
    call = (lambda: read(run(**batch))) if isinstance(batch, dict) else (lambda: read(run(*batch)))
    with torch.no_grad():
        plain = call()
        halved = heads.edited({"encoder 1": lambda outputs, _: outputs * 0.5})
        for opened in (heads.without([("encoder 1", 2)]), halved):
            with opened:
                output, expected = call(), read(heads._run(batch))
            torch.testing.assert_close(output, expected)
            assert not torch.allclose(output, plain)
        torch.testing.assert_close(call(), plain)


@pytest.mark.parametrize(
    ("name", "own_cache"), [("baseline", True), ("moa", True), ("drop-head", True), ("baseline", False)]
)
def test_edits_act_in_cached_decoding_too(name, own_cache, monkeypatch):
    for member in () if own_cache else ("self_cache", "cross_cache", "step"):
        monkeypatch.setattr(MultiHeadAttention, member, getattr(AttentionModule, member))
    model, _ = tiny(EXAMPLES[name][0])
    batch, seen = make_batch(some_pairs(1, seed=5), [0]), []

    def edit(outputs, queries):
        seen.append(queries.positions.tolist())
        return outputs * queries.positions[:, None, None] * torch.arange(outputs.shape[1])[:, None]

    with torch.no_grad(), ModelHeads(model).edited({"decoder 1": edit, "cross 1": edit}):
        memory = model.encode(batch.source, batch.encoder)
        expected = model.decode(batch, memory)
        state = model.start(memory[None], memory.new_zeros(1, len(memory)))
        steps = [model.step(word[None], state)[0] for word in batch.target_in]
    torch.testing.assert_close(torch.stack(steps), expected)
    assert len(expected) > 1
    for position, (own, cross) in enumerate(zip(seen[2::2], seen[3::2], strict=True)):
        assert own == ([position] if own_cache else [*range(position + 1)])
        assert cross == [position]


def test_measures_count_a_word_that_sees_no_key_as_zeros():
    """The first one, where the mask is strictly causal."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, later = nn.TransformerEncoder(layer, 1).eval(), torch.ones(2, 2).bool().triu()
    headdiv.insert(model, "baseline")
    table = ModelHeads(model, run=lambda x: model(x, mask=later)).to_frame([torch.randn(3, 2, 8)])
    assert not table.isna().any(axis=None)
    assert table["confidence"].tolist() == [0.5, 0.5]  # the second one sees the first


@pytest.mark.slow
def test_masks_and_edits_opened_within_compiled_code_are_refused():
    """There they would be compiled in, or left out, as torch sees fit."""
    heads, (batch, _), _ = dropped_in()
    for opened in (lambda: heads.without([("encoder 1", 2)]), lambda: heads.edited({})):

        @torch.compile(backend="eager")
        def run(x, opened=opened):
            with opened():
                return heads.model(x * 1, batch[1])

        for _ in range(2):  # the first time while it is compiled
            with pytest.raises(ConfigError, match="around the call of the compiled function"):
                run(batch[0])


@pytest.mark.parametrize("made", [attached, dropped_in])
def test_outputs_of_another_run_are_edited_in(made):
    """They act on what follows, not on the record, and are what masking does where they are 0."""
    heads, (one, other), rows = made()
    heads.model.eval()
    place = next(iter(heads.counts))
    with heads.record() as records:
        plain = rows(heads.run(one))
        heads.run(other)
    own, theirs = (next(r for r in records[start:] if r.spec.name == place) for start in (0, len(records) // 2))
    with heads.edited({place: lambda *_: own.outputs}):
        torch.testing.assert_close(rows(heads.run(one)), plain)
    with heads.edited({place: lambda *_: theirs.outputs}), heads.record() as again:
        assert not torch.equal(rows(heads.run(one)), plain)
    torch.testing.assert_close(again[0].outputs, own.outputs)
    assert not torch.equal(again[1].outputs, records[1].outputs)
    kept = torch.tensor([1.0, 0.0, 1.0, 1.0][: heads.counts[place]], dtype=torch.float64)
    with heads.edited({place: lambda outputs, _: outputs * kept[:, None]}):
        edited = rows(heads.run(one))
    with heads.without([(place, 2)]):
        torch.testing.assert_close(rows(heads.run(one)), edited)
    assert torch.equal(rows(heads.run(one)), plain)


def test_removed_heads_are_masked_ones_with_fewer_parameters():
    model, gone = model_of(), [("encoder 1", 2), ("encoder 2", 1), ("encoder 2", 3)]
    heads = ModelHeads(model)
    with heads.without(gone):
        expected = model(*batch_of())
    heads.remove(gone)
    torch.testing.assert_close(model(*batch_of()), expected)
    assert heads.counts == {"encoder 1": 2, "encoder 2": 1}
    assert [layer.num_heads for layer in model.layers] == [2, 1]
    assert sum(p.numel() for p in model.parameters()) == 2 * 12 + 3 * (4 * 4 * 12 + 3 * 4)
    loss(model(*batch_of())).backward()
    with pytest.raises(DataError, match="expected one that stays"):
        heads.remove([("encoder 2", 1)])


@pytest.mark.parametrize("options", [EXAMPLES["baseline"][0], EXAMPLES["moa"][0]], ids=lambda o: o["name"])
def test_padded_records_are_those_of_each_sentence_alone(options):
    model, _ = tiny(options)
    pairs = some_pairs(5)
    batch, alone = make_batch(pairs, range(5)), heads_by_sentence(model, pairs)
    with headdiv.record_heads(model) as records:
        model(batch)
    for number, record in enumerate(records):
        padded = record.padded()
        for line, pair in enumerate(batch.numbers.tolist()):
            _, weights, values, outputs = alone[pair][number]
            N, S = outputs.shape[1], weights.shape[2]
            assert (padded.queries[line].sum(), padded.keys[line].sum()) == (N, S)
            torch.testing.assert_close(padded.outputs[line, :, :N], outputs)
            torch.testing.assert_close(padded.weights[line, :, :N, :S], weights)
            torch.testing.assert_close(padded.values[line, :, :S], values.expand(padded.values.shape[1], -1, -1))
            assert not padded.weights[line, :, N:].any()
            assert not padded.weights[line, :, :, S:].any()


def test_importance_in_half_precision_is_the_sum_of_its_products():
    """Over 600 words: bfloat16 has 8 bits, in which each further word would be rounded."""
    model, x = model_of().bfloat16(), torch.randn(1, 600, D, generator=torch.Generator().manual_seed(1)).bfloat16()
    heads, outputs_of = ModelHeads(model), {}

    def keeping(place):
        def edit(outputs, _):
            outputs_of[place] = outputs
            outputs.retain_grad()
            return outputs

        return edit

    with heads.edited({place: keeping(place) for place in heads.counts}):
        loss(model(x)).backward()
    expected = [(outputs.double() * outputs.grad.double()).sum((0, 2)).abs() for outputs in outputs_of.values()]
    scores = [head.change for head in heads.importance([x], loss)]
    torch.testing.assert_close(torch.tensor(scores).double(), torch.cat(expected), rtol=1e-4, atol=0)


def test_heads_that_the_loss_does_not_depend_on_have_importance_0():
    model = model_of()
    model.not_run = headdiv.MultiheadAttention(D, H, layer=7)

    def run(x):
        model.layers[0](x, x, x)  # whose output nobody reads
        return model.layers[1](x, x, x)[0]

    importance = ModelHeads(model, run).importance([batch_of()[0]], loss)
    scores = {(head.place, head.head): head.change for head in importance}
    assert all(scores[place, head] == 0 for place in ("encoder 1", "encoder 8") for head in (1, 2, 3))
    assert all(scores["encoder 2", head] > 0 for head in (1, 2, 3))


def test_a_module_that_runs_on_fewer_examples_the_second_time_is_refused():
    """Which of the first ones they are cannot be known."""
    model = model_of()

    def run(x):
        layer = model.layers[0]
        return layer(x, x, x)[0].sum((1, 2)).mean() + layer(*[x[:1]] * 3)[0].mean()

    with pytest.raises(DataError, match=r"^encoder 1: runs on 3 and on 1 sentences in one forward pass"):
        ModelHeads(model, run).importance([batch_of()[0]], lambda loss: loss)


class Halved(headdiv.Method):
    def before_output(self, spec):
        return nn.Linear(spec.heads * spec.d_head, spec.heads * spec.d_head)


def pruned():
    model = model_of()
    prune.random_unstructured(headdiv.ModelHeads(model).modules[0].output, "weight", 0.5)
    return model


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: model_of("drop-head").eval(), "^encoder 1: heads cannot be removed from DropHeadAttention; expected"),
        (lambda: model_of(Halved()), "^encoder 1: heads cannot be removed where its before_output is Linear of torch"),
        (lambda: model_of("mixing"), "^encoder 1: heads .* where its output is MixingOutput of headdiv"),
        (pruned, "encoder 1: its output holds weight_mask, which would be lost"),
    ],
)
def test_heads_are_not_removed_where_something_else_would_be_lost(made, words):
    model = made()
    before = loss(model(*batch_of()))
    with pytest.raises(DataError, match=words):
        ModelHeads(model).remove([("encoder 1", 1)])
    assert loss(model(*batch_of())) == before


def edited_to(result):
    def use(heads):
        with heads.edited({"encoder 1": lambda *_: result}):
            heads.run(batch_of())

    return use


TWICE = [("encoder 1", 2), ("encoder 2", 2), ("encoder 1", 2)]
REFUSALS = [  # a use of heads, and key words of the error
    (lambda _: ModelHeads(nn.Linear(2, 2)), "found no attention that headdiv built"),
    (lambda _: headdiv.record_heads(nn.Linear(2, 2)).__enter__(), "found no heads to record"),
    (lambda heads: heads.to_frame([batch_of()], special=[0]), "special: the batches do not say"),
    (lambda heads: heads.to_frame([torch.randn(0, 5, D).double()]), "batches: found no word"),
    (lambda heads: heads.importance([batch_of()]), "^loss: found None, expected a scalar"),
    (lambda heads: headdiv.masked_heads(heads.model, {"cross 4": [1]}).__enter__(), "no attention 'cross 4'"),
    (lambda heads: heads.edited({"cross 4": lambda outputs, _: outputs}).__enter__(), "no attention 'cross 4'"),
    (
        lambda heads: heads.pruning_curve(lambda: 0.0, [("encoder 1", 1)], steps=0),
        "steps: found 0, expected at least 1",
    ),
    (lambda heads: heads.pruning_curve(lambda: 0.0, TWICE), "order: found head 2 of 'encoder 1' 2 times"),
    (
        lambda heads: headdiv.masked_heads(heads.model, {"encoder 1": [1]}).__enter__(),
        "encoder 1 has 3 heads, found a mask of 1",
    ),
    (lambda heads: heads.without([("encoder 1", 0)]), "the model has no head 0 in 'encoder 1'; heads are 1 to 3 in"),
    (lambda heads: heads.leave_one_out(lambda: 0.0, [("encoder 2", 4)]), "the model has no head 4 in 'encoder 2'"),
    (edited_to(torch.zeros(11, 1, 4)), r"an edit returned the shape \(11, 1, .*, expected \(T, H, K\) = \(11"),
    (edited_to(None), "an edit returned None"),
]


@pytest.mark.parametrize(("use", "words"), REFUSALS)
def test_a_mistake_is_one_sentence(use, words):
    with pytest.raises(DataError, match=words):
        use(ModelHeads(model_of()))
