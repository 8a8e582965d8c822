"""A GPU computes what the CPU does, for every method with one of the tasks. Skipped without one: see docs/gpu.md."""

import copy

import numpy as np
import pytest
import torch
from examples import EXAMPLES, every_method, of_attention, some_pairs, tiny
from small_runs import learner_of
from test_devices import BATCHES, CASES, TRAIN, small_model
from torch import Tensor, nn

import headdiv
from headdiv.analysis.heads import ModelHeads
from headdiv.companion.models.batching import make_batch
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.sizes import DecodeConfig
from headdiv.gha import gha_inner_loop
from headdiv.methods import make_method

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def assert_close(found: Tensor, wanted: Tensor, share: float = 1e-4) -> None:
    """That two tensors are apart by no more than a share of the second one's length."""
    found, wanted = (x.detach().double().cpu() for x in (found, wanted))
    apart, length = (found - wanted).norm(), wanted.norm()
    assert apart <= share * length + 1e-6, f"{apart / length:.1e} of the length apart"


def step(device, task, options, precision="float32", seed=0):
    """The loss of a training step's batch, and all gradients and parameters after it."""
    model, method = small_model(task, options, device, dropout=0.0)
    torch.manual_seed(seed)
    learner = learner_of(model.train(), method, TRAIN.model_copy(update={"precision": precision}), task)
    sums = learner.step([BATCHES[task]().to(device)], 3, 10)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return sums.loss + sums.auxiliary, gradients, {**dict(model.named_parameters()), **dict(model.named_buffers())}


@pytest.mark.parametrize(("task", "options"), CASES)
def test_a_training_step_gives_the_numbers_of_the_cpu(task, options):
    wanted, another = (step("cpu", task, options, seed=seed) for seed in (0, 1))
    found = step("cuda", task, options)
    if wanted[0] != another[0]:  # it draws numbers, and a GPU draws others
        assert found[0] == pytest.approx(wanted[0], rel=0.5)
        assert all(x.isfinite().all() for x in found[2].values())
        return
    assert found[0] == pytest.approx(wanted[0], rel=1e-5)
    assert found[1].keys() == wanted[1].keys()
    assert_close(*(torch.cat([x.cpu().flatten() for x in gradients.values()]) for gradients in (found[1], wanted[1])))
    for name, moved in wanted[2].items():
        if name not in wanted[1] and moved.is_floating_point():  # w of DEACON, statistics, counts of homeostasis
            assert_close(found[2][name], moved, 1e-3)


@pytest.mark.parametrize(("task", "options"), CASES)
def test_bfloat16_learns_from_nearly_the_same_loss(task, options):
    wanted, found = step("cpu", task, options), step("cuda", task, options, "bfloat16")
    draws = wanted[0] != step("cpu", task, options, seed=1)[0]
    assert found[0] == pytest.approx(wanted[0], rel=0.5 if draws else 0.03)
    assert all(x.isfinite().all() for x in found[2].values())


@every_method()
def test_a_search_finds_the_outputs_of_the_cpu(options):
    model, _ = tiny(options, dtype=torch.float32)
    sources = [np.arange(4, 4 + n) for n in (3, 7, 1, 5)]
    wanted = translate(model, sources, DecodeConfig(beam=3, max_length_offset=5))
    assert translate(model.cuda(), sources, DecodeConfig(beam=3, max_length_offset=5), "cuda") == wanted


@every_method()
def test_measures_and_masks_of_heads_are_those_of_the_cpu(options):
    model, _ = tiny(options, dtype=torch.float32)
    batch, found = make_batch(some_pairs(), range(6)), {}
    for device in ("cpu", "cuda"):
        heads = ModelHeads(model.to(device))
        given = batch.to(device)
        first = next(iter(heads.counts))
        with heads.without([(first, 1)]), torch.no_grad():
            masked = model(given)
        found[device] = heads.to_frame([given]).select_dtypes("number"), masked
    np.testing.assert_allclose(found["cuda"][0], found["cpu"][0], rtol=1e-3, atol=1e-4)
    assert_close(found["cuda"][1], found["cpu"][1])


def attention(options):
    torch.manual_seed(0)
    options = {**options, "m": 2} if options["name"] == "deacon" else of_attention(options)
    return headdiv.MultiheadAttention(16, 2, make_method(options), batch_first=True)


def use(module, device, x, masks):
    x = x.detach().clone().to(device).requires_grad_()
    output, weights = module(x, x, x, **{name: mask.to(device) for name, mask in masks.items()})
    output.square().sum().backward()
    return output, weights, x.grad, *(p.grad for p in module.parameters() if p.grad is not None)


@pytest.mark.parametrize("training", [False, True])
@every_method("combined")
def test_the_drop_in_gives_outputs_weights_and_gradients_of_the_cpu(options, training):
    module = attention(options).train(training)
    x = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(3))
    masks = {
        "key_padding_mask": torch.arange(6) >= torch.tensor([[6], [5], [3]]),
        "attn_mask": torch.ones(6, 6, dtype=torch.bool).triu(1),
    }
    wanted, again = (use(copy.deepcopy(module), "cpu", x, masks) for _ in range(2))
    for number, found in enumerate(use(copy.deepcopy(module).cuda(), "cuda", x, masks)):
        if torch.equal(wanted[number], again[number]):  # else it draws numbers, and a GPU draws others
            assert_close(found, wanted[number], 1e-3)


@pytest.mark.slow
@every_method("combined", "moa")
def test_a_compiled_drop_in_computes_what_it_does_otherwise(options):
    module = attention(options).cuda().eval()
    x = torch.randn(3, 6, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    torch._dynamo.reset()
    with torch.no_grad():
        assert_close(torch.compile(module)(x, x, x)[0], module(x, x, x)[0], 1e-3)


@every_method()
def test_the_same_seed_gives_the_same_gradients_but_for_rounding(options):
    """Not bit for bit: losses on heads add up gradients in no fixed order there."""
    one, other = (step("cuda", "translation", options)[1] for _ in range(2))
    for name, gradient in one.items():
        assert_close(gradient, other[name], 1e-5)


@pytest.mark.parametrize("k", [8, 44])  # the second is computed on the GPU
def test_the_hebbian_loop_is_that_of_the_cpu(k):
    x = torch.randn(12, 200, k, generator=torch.Generator().manual_seed(0))
    C, w = x.transpose(1, 2) @ x / 200, torch.eye(k).expand(12, k, k)
    assert_close(gha_inner_loop(C.cuda(), w.cuda(), 500), gha_inner_loop(C, w, 500), 1e-3)


@pytest.mark.parametrize("options", [{"name": "baseline"}, {"name": "deacon", "m": 2}, EXAMPLES["disagreement"][0]])
def test_a_method_put_into_torch_s_encoder_learns_in_half_precision(options):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda().train()
    method = headdiv.insert(encoder, options)
    x = torch.randn(3, 6, 16, device="cuda")
    with torch.autocast("cuda", torch.bfloat16), headdiv.record_heads(encoder) as records:
        loss = encoder(x).float().square().mean()
    added = method.aux_loss(encoder, records, 0.5, 18)
    (loss if added is None else loss + added).backward()
    method.after_backward(encoder, 0.5)
    assert all(p.isfinite().all() and (p.grad is None or p.grad.isfinite().all()) for p in encoder.parameters())
