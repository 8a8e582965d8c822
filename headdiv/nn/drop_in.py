"""The methods' attention in other people's models, with the call signature of `torch.nn.MultiheadAttention`.

method = headdiv.make_method({"name": "deacon", "architecture": "direct", "m": 8})
for layer in model.layers:
    layer.self_attn = headdiv.MultiheadAttention(256, 8, method, batch_first=True)
own = {id(p) for p in method.own_parameters(model)}
optimiser = torch.optim.AdamW(p for p in model.parameters() if id(p) not in own)
…
loss.backward()
method.after_backward(model, progress)  # share of the training that is done, 0 to 1
optimiser.step()
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headdiv.nn.attention import AttentionLayout, AttentionSpec, Kind, record_heads
from headdiv.nn.packing import Side, attention_mask
from headdiv.nn.transformer import ModuleFactory


class MultiheadAttention(nn.Module):
    """A method's attention module with torch's interface. Padding is left out of the computation.

    Args:
        embed_dim: D, width of queries, keys and values.
        num_heads: H.
        method: builds the attention module (`headdiv.make_method`).
        bias: whether query, key and value projections have one.
        batch_first: (B, N, D) instead of torch's default (N, B, D).
        kind: where the module stands; some methods treat the kinds differently.
        layer: its layer, from 0.

    Raises:
        ValueError: num_heads does not divide embed_dim.
    """

    # nn.TransformerEncoderLayer looks at these before it takes a fast path that bypasses this module.
    _qkv_same_embed_dim = False
    in_proj_bias = None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        method: ModuleFactory,
        *,
        bias: bool = True,
        batch_first: bool = False,
        kind: Kind = "encoder",
        layer: int = 0,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"num_heads: {num_heads} does not divide embed_dim = {embed_dim}")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.attention = method.attention(AttentionSpec(kind, layer, embed_dim, num_heads, bias))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in torch, with these differences.

        key and value must be one tensor. In self-attention (query is key) positions that
        ``key_padding_mask`` excludes are no queries either: their output is zero, and they enter no batch
        statistics. is_causal works with and without attn_mask.

        Returns:
            Output, shaped as query, and weights (B, N, S), or (B, H, N, S) if they are not to be averaged.

        Raises:
            ValueError: key and value differ, or the inputs are not batched.
        """
        if key is not value:
            raise ValueError("key and value must be the same tensor: projections of one memory are shared")
        if query.dim() != 3:
            raise ValueError(f"query must have three dimensions (a batch), found {query.dim()}")
        own = query is key
        if not self.batch_first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        B, N, _ = query.shape
        everything = torch.ones(B, key.shape[1], dtype=torch.bool, device=key.device)
        real = everything if key_padding_mask is None else ~_excluded(key_padding_mask)
        keys = _side(real)
        queries = keys if own else _side(everything.new_ones(B, N))
        mask = attention_mask(queries, keys, causal=is_causal and own).to(query.dtype)
        if attn_mask is not None:
            mask = mask + self._added(attn_mask, mask)
        layout = AttentionLayout(queries, keys, mask)
        rows = query.reshape(B * N, -1)[queries.slots]
        memory = None if own else key.reshape(-1, self.embed_dim)[keys.slots]
        weights = None
        if need_weights:
            with record_heads(self) as records:
                output = self.attention(rows, memory, layout)
            weights = records[0].weights * real[:, None, None, :]
            weights = weights.mean(dim=1) if average_attn_weights else weights
        else:
            output = self.attention(rows, memory, layout)
        padded = output.new_zeros(B * N, self.embed_dim).index_copy(0, queries.slots, output).view(B, N, -1)
        return (padded if self.batch_first else padded.transpose(0, 1)), weights

    def _added(self, attn_mask: Tensor, like: Tensor) -> Tensor:
        """(N, S) or (B·H, N, S), of booleans (True: not allowed) or numbers, as what is added to the scores."""
        if attn_mask.dim() == 3:
            attn_mask = attn_mask.view(-1, self.num_heads, *attn_mask.shape[1:])
        if attn_mask.dtype == torch.bool:
            return torch.zeros(attn_mask.shape, dtype=like.dtype, device=like.device).masked_fill(attn_mask, -1e9)
        return attn_mask.to(like.dtype).clamp(min=-1e9)  # finite, as everywhere here


def _excluded(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask < 0  # torch also takes −inf at padding


def _side(real: Tensor) -> Side:
    """The layout in which each line of (B, N) is a window of its own, whatever positions are real."""
    B, N = real.shape
    slots = real.flatten().nonzero().flatten()
    rows = torch.zeros(B * N, dtype=torch.int64, device=real.device)
    rows[slots] = torch.arange(len(slots), device=real.device)
    sentences = torch.arange(B, device=real.device)[:, None].expand(B, N).masked_fill(~real, -1)
    positions = (real.cumsum(1) - 1).flatten()[slots]
    return Side(real.sum(1), positions, slots, rows, sentences, full=bool(real.all()))
