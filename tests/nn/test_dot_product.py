"""The arithmetic of attention by itself: windows slot by slot, and the product's own backward pass."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from packed import H, K, random

from headdiv.nn.dot_product import ScaledDotProduct, into_windows, out_of_windows
from headdiv.nn.packing import assign_windows, lay_out


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), width=st.integers(1, 12))
def test_windows_hold_the_rows_slot_by_slot(lengths, width):
    side = lay_out(lengths, assign_windows(lengths, width=width))
    x = random(1, side.tokens, 3 * H * K)
    parts = into_windows(x, side, 3, H)
    for part, window in enumerate(parts):
        for t, slot in enumerate(side.slots.tolist()):
            r, n = divmod(slot, side.sentences.shape[1])
            for h in range(H):
                first = part * H * K + h * K
                assert torch.equal(window[r, h, n], x[t, first : first + K])
        assert torch.equal(out_of_windows(window, side), x[:, part * H * K : (part + 1) * H * K])


def test_backward_takes_a_softmax_that_autocast_has_widened(monkeypatch):
    """A GPU's autocast turns every softmax into float32; the CPU's does not."""
    softmax = torch.softmax
    q, k, v = (random(i, 2, H, 3, K).bfloat16().requires_grad_() for i in range(3))
    mask = torch.zeros(2, 1, 3, 3)
    ScaledDotProduct.apply(q, k, v, mask)[0].sum().backward()
    narrow = [x.grad for x in (q, k, v)]
    for x in (q, k, v):
        x.grad = None
    monkeypatch.setattr(torch, "softmax", lambda x, dim: softmax(x.float(), dim=dim))
    ScaledDotProduct.apply(q, k, v, mask)[0].sum().backward()
    torch.testing.assert_close([x.grad for x in (q, k, v)], narrow, atol=0.05, rtol=0.05)
