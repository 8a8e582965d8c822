"""The arithmetic of attention by itself: windows slot by slot, and the product's own backward pass."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from packed import H, K, random
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from headdiv.nn import packing
from headdiv.nn.dot_product import ScaledDotProduct, dot_product, into_windows, out_of_windows
from headdiv.nn.packing import AttentionLayout, assign_windows, attention_mask, pack

EVERY = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), width=st.integers(1, 12))
def test_windows_hold_the_rows_slot_by_slot(lengths, width):
    rows = pack(lengths, assign_windows(lengths, width=width))
    x = random(1, rows.tokens, 3 * H * K)
    parts = into_windows(x, rows, 3, H)
    for part, window in enumerate(parts):
        for t, slot in enumerate(rows.slots.tolist()):
            r, n = divmod(slot, rows.sentences.shape[1])
            for h in range(H):
                first = part * H * K + h * K
                assert torch.equal(window[r, h, n], x[t, first : first + K])
        assert torch.equal(out_of_windows(window, rows).flatten(1), x[:, part * H * K : (part + 1) * H * K])


def test_in_half_precision_gradients_are_those_of_the_softmax():
    exact = [random(i, 2, H, 3, K).bfloat16().double().requires_grad_() for i in range(3)]
    half = [x.detach().bfloat16().requires_grad_() for x in exact]
    grad = random(3, 2, H, 3, K)
    q, k, v = exact
    (((q @ k.mT / K**0.5).softmax(-1) @ v) * grad).sum().backward()
    (ScaledDotProduct.apply(*half, torch.zeros(2, 1, 3, 3))[0] * grad).sum().backward()
    for x, literal in zip(half, exact, strict=True):
        torch.testing.assert_close(x.grad.double(), literal.grad, atol=0.03, rtol=0.03)


@pytest.mark.parametrize(
    ("lengths", "device", "chosen", "used"),
    [
        ([5, 3], "cuda", EVERY, False),
        ([4, 4], "cuda", EVERY, True),  # full: the same shape in every batch
        ([5, 3], "cuda", [SDPBackend.CUDNN_ATTENTION], True),  # or nothing could compute it
        ([5, 3], "cuda", [SDPBackend.MATH], False),
        ([5, 3], "cpu", [SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION], True),
    ],
)
def test_a_gpu_computes_windows_of_changing_shape_without_cudnn(lengths, device, chosen, used, monkeypatch):
    """Its kernel is slow at every shape that is new to it. The caller's own choice is there again afterwards."""
    flags, seen = torch.backends.cuda, []
    monkeypatch.setattr(packing, "WIDE", 0)
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda q, *_, **more: seen.append(flags.cudnn_sdp_enabled()) or q
    )
    rows = pack(lengths, [[0], [1]])
    layout = AttentionLayout(rows, rows, attention_mask(rows, rows))
    with FakeTensorMode():
        q = torch.empty(2, H, max(lengths), K, device=device)
    with sdpa_kernel(chosen):
        dot_product(q, q, q, layout)
        assert seen == [used]
        assert flags.cudnn_sdp_enabled() is (SDPBackend.CUDNN_ATTENTION in chosen)
