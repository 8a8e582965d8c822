"""The methods' attention in other people's models, with the call signature of `torch.nn.MultiheadAttention`.

method = headdiv.make_method("deacon", m=8)
for layer in model.layers:
    layer.self_attn = headdiv.MultiheadAttention(256, 8, method, dropout=0.1, batch_first=True)
own = {id(p) for p in method.own_parameters(model)}
optimiser = torch.optim.AdamW(p for p in model.parameters() if id(p) not in own)
…
loss.backward()
method.before_optimizer_step(model, progress)  # fraction of the training that is done, 0 to 1
optimiser.step()

A forward pass has three steps: `_to_rows` makes the arguments rows of real tokens, the method's attention works on
these, and `_to_torch_shapes` brings the result into the shape that torch has.

Letters: B sentences, N queries and S keys of a sentence, D model width, H heads, T rows of real tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from headdiv.core.modules import Holder
from headdiv.methods.base import Method, acts_on_block
from headdiv.methods.combined import parts_of
from headdiv.methods.registry import make_method
from headdiv.methods.rotation import SwappingMethod
from headdiv.nn.linear import WeightAndBias
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout, PackedRows, added_mask, full_rows, padded_rows, real_rows
from headdiv.nn.projections import SeparateProjections, equal, from_torch
from headdiv.nn.records import record_heads
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, BlockSpec, Kind, Sizes


class _NoFastPath:
    """Stands in for a weight: torch's encoder then passes on its input as it is, not as nested tensors."""

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        return NotImplemented


@dataclass(frozen=True)
class Rows:
    """The arguments of a forward pass: T rows of real queries, T' of real keys, and the layout of both."""

    queries: Tensor  # (T, D)
    memory: Tensor | None  # (T', D); keys and values side by side where they differ; None: the queries
    layout: AttentionLayout
    real: Tensor | None  # (B, N), False for queries that are padding; None: there is none
    batched: bool  # whether the arguments had a batch dimension


class MultiheadAttention(nn.Module):
    """A method's attention module with torch's interface. Padding is left out of the computation.

    Ordinary heads start like torch's. `load_state_dict` takes what `torch.nn.MultiheadAttention` saved, for modules
    with the same projections.

    Args:
        embed_dim: D, width of queries, keys and values.
        num_heads: H.
        method: builds the attention module: one object of `headdiv.make_method` for all modules of a model, or a name
            or options, from which each module makes its own method, its attribute ``method``; by default ordinary
            heads.
        dropout: fraction of the attention weights that are dropped in training.
        bias: whether query, key and value projections have one; the output always has one.
        add_bias_kv, add_zero_attn: torch's keys beside those of the input; True is refused.
        kdim, vdim: widths of keys and values, D by default.
        batch_first: (B, N, D) instead of torch's default (N, B, D).
        device, dtype: of the parameters.
        kind: the module's kind of attention; some methods treat the kinds differently. "cross" says that padding of
            keys is not padding of queries, whatever these are; which queries are padding is known only where
            `headdiv.insert` put the module after self-attention, as in `torch.nn.TransformerDecoderLayer`.
        layer: its layer, from 0; some methods treat layers differently, and measures and masks name modules by both.
            If left out, the modules of a kind are numbered in the order of the model, as soon as a method, a measure
            or a mask looks for the model's heads.

    Raises:
        ConfigError: ``method`` is not a method, or there is none with these options.
        ValueError: num_heads does not divide embed_dim, the method does not fit this many heads of this width or acts
            on the outputs of layers, or add_bias_kv, add_zero_attn, kind, kdim or vdim has a value that is not
            supported.
    """

    # What nn.TransformerEncoder(Layer) checks before it takes a fast path that bypasses this module.
    _qkv_same_embed_dim = False
    in_proj_bias = None
    in_proj_weight = _NoFastPath()
    out_proj = SimpleNamespace(weight=None, bias=None)
    holder: Holder | None = None  # the layer whose ``self_attn`` puts out the queries of this cross-attention
    query_rows: PackedRows | None = None  # of the last pass of self-attention with padding

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        method: Method | Mapping[str, Any] | str = "baseline",
        *,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        kind: Kind = "encoder",
        layer: int | None = None,
    ) -> None:
        super().__init__()
        if add_bias_kv or add_zero_attn:
            raise ValueError("add_bias_kv, add_zero_attn: expected False, since keys are those of the input alone")
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, found {embed_dim} and {num_heads}")
        if kind not in ATTENTION_KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, ATTENTION_KINDS))}, found {kind!r}")
        self.method = method = method if isinstance(method, Method) else make_method(method)
        if problem := method.options.check(Sizes(d_model=embed_dim, heads=num_heads)):
            raise ValueError(f"method: {problem[0]}: {problem[1]}")
        if acts_on_block(method, BlockSpec("encoder" if kind == "encoder" else "decoder", layer or 0, embed_dim)):
            raise ValueError(
                f"method: {method!r} acts on the outputs of layers too, which an attention module does not reach; "
                "expected a method of attention alone, of homeostasis the option `attention` without `block`"
            )
        self.embed_dim, self.dropout, self.batch_first = embed_dim, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.attention = method.attention(AttentionSpec(kind, layer or 0, embed_dim, num_heads, bias))
        self.attention.method, self.attention.numbered = method, layer is not None
        if isinstance(self.attention, MultiHeadAttention):
            _initialise(self.attention)
        if (self.kdim, self.vdim) != (embed_dim, embed_dim):
            if not isinstance(self.attention, MultiHeadAttention) or any(
                isinstance(part, SwappingMethod) for part in parts_of(method)
            ):
                raise ValueError(f"kdim, vdim: expected None, since {method!r} needs one projection of one memory")
            width = num_heads * self.attention.spec.d_head
            self.attention.in_projection = SeparateProjections((embed_dim, self.kdim, self.vdim), width, bias)
        self.to(device=device, dtype=dtype)

    @property
    def num_heads(self) -> int:
        """H, the number of heads that are left."""
        return self.attention.spec.heads

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

        In self-attention, positions that ``key_padding_mask`` excludes (by True or -inf) are not queries either: their
        output and weights are zero, and they enter no batch statistics. There, is_causal alone is a mask; with
        attn_mask it adds nothing. Values may differ from keys where the method has ordinary projections.

        Where a query may see no key its heads and weights are zero, whether weights are wanted or not.

        Self-attention means that query equals key, whether it is the same object, a view of it or a copy, in a module
        whose ``kind`` is not "cross". Where only values could tell, they are compared; a GPU waits for that.

        Returns:
            Output, shaped like query, and weights (B, N, S), or (B, H, N, S) if they are not to be averaged, after
            dropout. Without a batch there is no B.

        Raises:
            ValueError: an argument has a different shape or type, or is nested; key and value differ, and the method
                has one projection for both; is_causal comes without attn_mask, and query is not key; or torch traces,
                and the objects do not show whether query and key are equal.
        """
        rows = self._to_rows(query, key, value, key_padding_mask, attn_mask, is_causal)
        output, weights = self._attend(rows, need_weights)
        return self._to_torch_shapes(output, weights, rows, average_attn_weights)

    if TYPE_CHECKING:  # nn.Module's own says nothing of arguments and results

        def __call__(
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
            """See `forward`."""

    def _to_rows(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> Rows:
        """The arguments of `forward` as rows of real queries and keys, and one mask between them."""
        if query.is_nested or key.is_nested or value.is_nested:
            raise ValueError("found a nested tensor, expected one with padding and key_padding_mask")
        batched = not query.dim() == key.dim() == value.dim() == 2
        self._refuse_wrong_shapes(query, key, value, batched)
        two_memories = self._has_two_memories(key, value)
        is_self = self._is_self_attention(query, key, key_padding_mask is not None or (is_causal and attn_mask is None))
        one_memory = query is key and is_self and not two_memories
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        N, S = query.shape[1], key.shape[1]
        if is_causal and attn_mask is None:
            if not is_self:
                raise ValueError("is_causal needs attn_mask where query is not key: which keys are later is not known")
            attn_mask = torch.ones(N, N, dtype=torch.bool, device=query.device).triu(1)
        layout, real = self._layout(query, S, is_self, key_padding_mask, attn_mask)
        memory = None if one_memory else real_rows(torch.cat([key, value], dim=2) if two_memories else key, layout.keys)
        return Rows(real_rows(query, layout.queries), memory, layout, real, batched)

    def _has_two_memories(self, key: Tensor, value: Tensor) -> bool:
        """Whether keys and values are projected from rows of their own."""
        if isinstance(self.attention, MultiHeadAttention):
            return key is not value or isinstance(self.attention.in_projection, SeparateProjections)
        if key is not value and (is_compiling() or not equal(key, value)):
            raise ValueError(f"key and value must be the same tensor: {self.method!r} has one projection of both")
        return False

    def _is_self_attention(self, query: Tensor, key: Tensor, key_mask: bool) -> bool:
        """Whether query and key are the same; without a mask of keys it makes no difference and is not checked."""
        if self.attention.spec.kind == "cross":
            return False
        if query is key:
            return True
        if not key_mask or query.shape != key.shape:
            return False
        if is_compiling():
            raise ValueError(
                "query and key are two tensors of one shape, and a trace cannot tell whether they are equal; expected "
                "the same object for self-attention, or a module with kind='cross'"
            )
        return equal(query, key)

    def _refuse_wrong_shapes(self, query: Tensor, key: Tensor, value: Tensor, batched: bool) -> None:
        """Raise a ValueError where the shape of an argument is wrong, or they do not go together."""
        form = ("batch, length" if self.batch_first else "length, batch") if batched else "length"
        for name, x, width in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if x.dim() != 2 + batched or x.shape[-1] != width:
                raise ValueError(f"{name}: found the shape {tuple(x.shape)}, expected ({form}, {width})")
        batch = 0 if self.batch_first else 1
        if value.shape[:-1] != key.shape[:-1] or (batched and key.shape[batch] != query.shape[batch]):
            found = ", ".join(str(tuple(x.shape[:-1])) for x in (query, key, value))
            raise ValueError(
                f"expected one batch size, and as many values as keys; found {found} as ({form}) of query, key, value"
            )

    def _layout(
        self, query: Tensor, S: int, is_self: bool, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> tuple[AttentionLayout, Tensor | None]:
        """The layout of query (B, N, D) and S keys, its own or a memory's; and which of (B, N) are real, None: all."""
        B, N, _ = query.shape
        # Without masks one zero stands for all: (B, 1, N, S) is written nowhere.
        mask, slots = query.new_zeros(1, 1, 1, 1).expand(1, 1, N, S), self.attention.head_slots
        if attn_mask is not None:
            addend = added_mask("attn_mask", attn_mask, [(N, S), (B * slots, N, S)], query.dtype)
            mask = mask + (addend if addend.dim() == 2 else addend.view(B, slots, N, S))
        keys, real_keys = full_rows(B, S, query.device), None
        if key_padding_mask is not None:
            padding = added_mask("key_padding_mask", key_padding_mask, [(B, S)], query.dtype)
            mask, real_keys = mask + padding[:, None, None, :], padding.detach() != -torch.inf
            keys = padded_rows(real_keys) if self._leaves_padding_out() else keys
        queries, real_queries = (keys, real_keys) if is_self else self._queries(B, N, query.device)
        if self._leaves_padding_out():
            self.query_rows = queries if is_self and not queries.full else None
        if real_queries is not None and (key_padding_mask is not None or attn_mask is not None):
            # Padded slots are not queries: what they see has no effect, but it must be finite.
            mask = mask.masked_fill(~real_queries[:, None, :, None], 0.0)
        dropout = self.dropout if self.training else 0.0
        return AttentionLayout(queries, keys, mask.expand(B, -1, N, S), dropout), real_queries

    def _leaves_padding_out(self) -> bool:
        """Whether padding gets no row; in traces, whose shapes should not depend on data, in training alone."""
        return not is_compiling() or self.training

    def _queries(self, B: int, N: int, device: torch.device) -> tuple[PackedRows, Tensor | None]:
        """Queries that are not the keys, and which of (B, N) are real where the self-attention before says it."""
        self_attention = None if self.holder is None else self.holder.module.self_attn
        rows = getattr(self_attention, "query_rows", None)
        if rows is None or rows.sentences.shape != (B, N):
            return full_rows(B, N, device), None
        if not (self._leaves_padding_out() and self_attention._leaves_padding_out()):
            return full_rows(B, N, device), None
        return rows, rows.sentences >= 0

    def _attend(self, rows: Rows, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """The method's attention on rows: (T, D), and weights (B, H, N, S) after dropout, 0 for padded queries."""
        if not need_weights:
            return self.attention(rows.queries, rows.memory, rows.layout), None
        with record_heads(self) as records:
            output = self.attention(rows.queries, rows.memory, rows.layout)
        weights = rows.layout.dropped[-1] if rows.layout.dropped else records[0].weights
        return output, weights if rows.real is None else weights * rows.real[:, None, :, None]

    def _to_torch_shapes(
        self, output: Tensor, weights: Tensor | None, rows: Rows, average: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Output (T, D) in the shape of query, 0 for padded queries; weights as torch has them."""
        queries, (B, N) = rows.layout.queries, rows.layout.queries.sentences.shape
        if not queries.full:
            output = output.new_zeros(B * N, self.embed_dim).index_copy(0, queries.slots, output)
        output = output.view(B, N, self.embed_dim)
        if rows.real is not None:
            output = output * rows.real[:, :, None]
        if weights is not None and average:
            weights = weights.mean(dim=1)
        if not rows.batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Under torch's names or our own; where torch's output has no bias, ours is zero."""
        from_torch(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _initialise(attention: MultiHeadAttention) -> None:
    """As `torch.nn.MultiheadAttention` does: Xavier over all three projections at once, and no bias."""
    nn.init.xavier_uniform_(attention.in_projection.weight)
    for layer in (attention.in_projection, attention.output):
        if isinstance(layer, nn.Linear | WeightAndBias) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
