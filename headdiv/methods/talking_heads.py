"""Talking-heads attention (Shazeer et al. 2020, arXiv 2003.02436): heads are mixed before and after the softmax.

    J_h = Q_h K_hᵀ / √K      W = softmax(J P_l + mask)      O_h = (W P_w)_h V_h

P_l and P_w (H, H) mix the heads of every query and key: column g holds what head g takes of each head h. The number of
heads is the same at all three stages (the paper's h_k = h = h_v), which adds 2 H² parameters per module. They start as
identities here, so that a fresh model is its baseline; the paper does not say how they start.

Letters: R windows, H heads, N query slots, S key slots, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headdiv.methods.base import Method, MethodOptions
from headdiv.methods.losses import no_shares_of_attention
from headdiv.methods.registry import register
from headdiv.nn.caches import Cache
from headdiv.nn.dot_product import after_dropout, masked_softmax
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout
from headdiv.nn.sizes import AttentionSpec


class TalkingHeadsAttention(MultiHeadAttention):
    """The baseline's module with two mixtures; it holds a window's weights whatever its width."""

    rowwise_heads = True

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.mix_logits = nn.Parameter(torch.eye(spec.heads))  # P_l
        self.mix_weights = nn.Parameter(torch.eye(spec.heads))  # P_w

    def initialise(self, generator: torch.Generator) -> None:
        """Identities; submodules draw their own parameters."""
        for mixture in (self.mix_logits, self.mix_weights):
            nn.init.eye_(mixture)

    def weigh_values(self, q: Tensor, k: Tensor, v: Tensor, layout: AttentionLayout | Cache) -> tuple[Tensor, Tensor]:
        """See `MultiHeadAttention`; the weights are those after the second mixture, before dropout."""
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)  # (R, H, N, S)
        scores = torch.einsum("rhns,hg->rgns", scores, self.mix_logits.to(scores.dtype))
        p = masked_softmax(scores + layout.written_out(), layout).to(v.dtype)
        weights = torch.einsum("rhns,hg->rgns", p, self.mix_weights.to(p.dtype))
        return after_dropout(weights, layout) @ v, weights


@register
class TalkingHeads(Method):
    """The method: a `TalkingHeadsAttention` in each position."""

    name = "talking-heads"

    class Options(Method.Options):
        """None."""

        def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
            return no_shares_of_attention(other, name, others_name)

    options: Options

    def attention(self, spec: AttentionSpec) -> TalkingHeadsAttention:
        return TalkingHeadsAttention(spec)
