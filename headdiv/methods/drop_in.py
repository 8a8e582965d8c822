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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.arguments import must_be, must_be_number
from headdiv.core.errors import ConfigError
from headdiv.core.modules import Holder
from headdiv.core.tensors import equal, one_to_autograd
from headdiv.core.tracing import is_traced
from headdiv.methods.base import Method, acts_on_block
from headdiv.methods.combined import parts_of
from headdiv.methods.registry import make_method
from headdiv.methods.rotation import SwappingMethod
from headdiv.nn.folding import fold
from headdiv.nn.linear import LINEAR, WeightAndBias
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout, PackedLayout, added_mask, full_side, padded_side, real_rows
from headdiv.nn.projections import SeparateProjections, from_torch, must_be_merged, to_torch
from headdiv.nn.records import record_heads
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, BlockSpec, Kind, Sizes

MADE: WeakKeyDictionary[Method, Counter[Kind]] = WeakKeyDictionary()  # modules made without a layer, by method


class _NoFastPath:
    """Stands in for a weight: torch's encoder then passes on its input as it is, not as nested tensors."""

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        return NotImplemented


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
        add_bias_kv: whether a learnt key and value are added to those of the input.
        add_zero_attn: whether a key and value of zeros are added after it.
        kdim: width of keys, D by default.
        vdim: width of values, D by default.
        batch_first: (B, N, D) instead of torch's default (N, B, D).
        device: where the parameters are made.
        dtype: of the parameters.
        kind: the module's kind of attention; some methods treat the kinds differently. "cross" says that padding of
            keys is not padding of queries, whatever these are; which queries are padding is known only where
            `headdiv.insert` put the module after self-attention, as in `torch.nn.TransformerDecoderLayer`.
        layer: its layer, from 0; some methods treat layers differently, and measures and masks name modules by both.
            If left out, the modules of one kind are numbered as they are made with one method, and copies of a module
            in the order of the model, as soon as the model is passed to ``method.own_parameters`` or a measure.

    Raises:
        ConfigError: ``method`` is not a method, or there is none with these options.
        ValueError: num_heads does not divide embed_dim, the method does not fit this many heads of this width or acts
            on the outputs of layers, or an argument is out of range or asks for something that does not exist.
    """

    # What nn.TransformerEncoder(Layer) checks before it takes a fast path that bypasses this module.
    _qkv_same_embed_dim = False
    in_proj_bias = None
    in_proj_weight = _NoFastPath()
    out_proj = SimpleNamespace(weight=None, bias=None)
    holder: Holder | None = None  # the layer whose ``self_attn`` puts out the queries of this cross-attention
    query_side: PackedLayout | None = None  # of the last pass of self-attention with padding

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
        if not isinstance(method, Method | Mapping | str):
            raise ConfigError(
                "method: expected what `headdiv.make_method` returns, one object for all modules of a model, or a name "
                f"or {{'name': …, option: value, …}}, found {method!r}"
            )
        for name, size in (("embed_dim", embed_dim), ("num_heads", num_heads), ("kdim", kdim), ("vdim", vdim),
                           ("layer", layer)):  # fmt: skip
            must_be_number(name, 0 if size is None else size, whole=True)
        must_be_number("dropout", dropout)
        embed_dim, num_heads = int(embed_dim), int(num_heads)  # numpy's too
        _must_be_in_range(embed_dim, num_heads, dropout, kind, layer)
        self.method = method = method if isinstance(method, Method) else make_method(method)
        if problem := method.options.check(Sizes(d_model=embed_dim, heads=num_heads)):
            raise ValueError(f"method: {problem[0]}: {problem[1]}")
        block = BlockSpec("encoder" if kind == "encoder" else "decoder", layer or 0, embed_dim)
        if acts_on_block(method, block):
            raise ValueError(
                f"method: {method!r} acts on the outputs of layers too, which an attention module does not reach; "
                "expected a method of attention alone, of homeostasis the option `attention` without `block`"
            )
        self.embed_dim, self.dropout, self.batch_first = embed_dim, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        made = MADE.setdefault(method, Counter())
        place = made[kind] if layer is None else layer
        self.attention = method.attention(AttentionSpec(kind, place, embed_dim, num_heads, bias))
        self.attention.built_by, self.attention.numbered = method, layer is not None
        made[kind] += layer is None
        if isinstance(self.attention, MultiHeadAttention):
            _initialise(self.attention)
        if add_bias_kv or add_zero_attn or (self.kdim, self.vdim) != (embed_dim, embed_dim):
            if not isinstance(self.attention, MultiHeadAttention) or any(
                isinstance(part, SwappingMethod) for part in parts_of(method)
            ):
                raise ValueError(
                    f"kdim, vdim, add_bias_kv, add_zero_attn: expected None and False, since {method!r} needs one "
                    "projection of one memory"
                )
            widths, width = (embed_dim, self.kdim, self.vdim), num_heads * self.attention.spec.d_head
            self.attention.in_projection = SeparateProjections(widths, width, bias, add_bias_kv, add_zero_attn)
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
        whose ``kind`` is not "cross". Where only values could tell, they are compared; a GPU waits for that. Each
        argument gets its own gradient.

        Returns:
            Output, shaped like query, and weights (B, N, S), or (B, H, N, S) if they are not to be averaged, after
            dropout; S includes the keys of add_bias_kv and add_zero_attn. Without a batch there is no B.

        Raises:
            ValueError: an argument has a different shape or type; key and value differ, and the method has one
                projection for both; or torch traces, and the objects do not show whether query and key are equal.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            must_be(name, x, Tensor, "a tensor")
        apart, ordinary = key is not value, isinstance(self.attention, MultiHeadAttention)
        apart = apart and (is_traced() or not equal(key, value) or (ordinary and not one_to_autograd(key, value)))
        separate = getattr(self.attention, "in_projection", None)
        separate = separate if isinstance(separate, SeparateProjections) else None
        unlike = torch.is_grad_enabled() and key.requires_grad != value.requires_grad
        if not ordinary and (apart or unlike):
            raise ValueError(f"key and value must be the same tensor: {self.method!r} has one projection of both")
        own = self._is_self_attention(
            query, key, matters=key_padding_mask is not None or (is_causal and attn_mask is None)
        )
        options = {"need_weights": need_weights, "average_attn_weights": average_attn_weights, "is_causal": is_causal}
        if own and query.is_nested and not apart:
            if key_padding_mask is not None or attn_mask is not None:
                raise ValueError("a nested tensor has no padding, and takes no masks")
            return self._nested(query, **options)
        if query.dim() == key.dim() == value.dim() == 2:
            return self._one_by_one((query, key, value), key_padding_mask, attn_mask, options)
        inputs = {"query": (query, self.embed_dim), "key": (key, self.kdim), "value": (value, self.vdim)}
        for (name, (x, width)), word in zip(inputs.items(), ("embed_dim", "kdim", "vdim"), strict=True):
            if x.dim() != 3:
                raise ValueError(f"{name} must have three dimensions, or two as the others do, found {x.dim()}")
            if x.shape[2] != width:
                raise ValueError(f"{name} must have the width {word} = {width}, found {x.shape[2]}")
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        (B, N, D), S = query.shape, key.shape[1]
        if key.shape[0] != B:
            raise ValueError(f"query and key must have one batch size, found {B} and {key.shape[0]}")
        if value.shape[:2] != key.shape[:2]:
            raise ValueError(
                f"key and value must have one shape, found {tuple(key.shape[:2])} and {tuple(value.shape[:2])}"
            )
        if is_causal and attn_mask is None:
            if not own:
                raise ValueError("is_causal needs attn_mask where query is not key: which keys are later is not known")
            attn_mask = torch.ones(N, N, dtype=torch.bool, device=query.device).triu(1)

        # Without masks one zero stands for all: (B, 1, N, S) is written nowhere.
        mask, slots = query.new_zeros(1, 1, 1, 1).expand(1, 1, N, S), self.attention.head_slots
        if attn_mask is not None:
            added = added_mask("attn_mask", attn_mask, [(N, S), (B * slots, N, S)], query.dtype)
            mask = mask + (added if added.dim() == 2 else added.view(B, slots, N, S))
        extra = 0 if separate is None else separate.extra
        keys = queries = full_side(B, S, query.device)
        real = asking = None  # (B, S) and (B, N) without padding; None: all
        if key_padding_mask is not None:
            padding = added_mask("key_padding_mask", key_padding_mask, [(B, S)], query.dtype)
            mask, real = mask + padding[:, None, None, :], padding.detach() != -torch.inf
            asking = real if own else None
            if self._lays_out():
                keys = queries = padded_side(real)
        if not own:
            queries = full_side(B, N, query.device)
            before = self._lays_out() and self._queries_before()
            if before and before.sentences.shape == (B, N):
                queries, asking = before, before.sentences >= 0
        elif self._lays_out():
            self.query_side = None if queries.full else queries
        if asking is not None and (key_padding_mask is not None or attn_mask is not None):
            # Padded slots are not queries: what they see has no effect, but it must be finite.
            mask = mask.masked_fill(~asking[:, None, :, None], 0.0)
        if extra:
            there = torch.ones(B, S, dtype=torch.bool, device=query.device) if keys.full else keys.sentences >= 0
            keys, mask, S = padded_side(F.pad(there, (0, extra), value=True)), F.pad(mask, (0, extra)), S + extra

        dropped: list[Tensor] = []
        dropout = self.dropout if self.training else 0.0
        layout = AttentionLayout(queries, keys, mask.expand(B, -1, N, S), dropout, dropped if need_weights else None)
        rows = real_rows(query, queries)
        if separate is not None:
            memory = real_rows(separate.joined(key, value), keys)
        elif apart:
            memory = real_rows(torch.cat([key, value], dim=2), keys)
        else:
            memory = None if own and one_to_autograd(query, key) else real_rows(key, keys)
        weights = None
        if need_weights:
            with record_heads(self) as records:
                output = self.attention(rows, memory, layout)
            weights = dropped[-1] if dropped else records[0].weights
            if asking is not None:
                weights = weights * asking[:, None, :, None]
            weights = weights.mean(dim=1) if average_attn_weights else weights
        else:
            output = self.attention(rows, memory, layout)
        if not queries.full:
            output = output.new_zeros(B * N, D).index_copy(0, queries.slots, output)
        output = output.view(B, N, D)
        if asking is not None:
            output = output * asking[:, :, None]
        return (output if self.batch_first else output.transpose(0, 1)), weights

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

    def _lays_out(self) -> bool:
        """Whether padding is left out; in traces, whose shapes should not depend on data, only if it acts on others."""
        return not is_traced() or (self.training and not (self.attention.rowwise and not self.attention.recorders))

    def _queries_before(self) -> PackedLayout | None:
        """The queries of the self-attention that comes before, if they are known."""
        before = None if self.holder is None else self.holder.module.self_attn
        side = getattr(before, "query_side", None)
        return side if side is not None and before._lays_out() else None

    def _is_self_attention(self, query: Tensor, key: Tensor, matters: bool) -> bool:
        """Whether query and key are the same; without key masks it makes no difference and is not checked."""
        cross = self.attention.spec.kind == "cross"
        if query is key:
            return not cross
        if cross or not matters or query.shape != key.shape:
            return False
        if is_traced():
            raise ValueError(
                "query and key are two tensors of one shape, and a trace cannot tell whether they are equal; expected "
                "the same object for self-attention, or a module with kind='cross'"
            )
        return equal(query, key)

    def _one_by_one(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        padding: Tensor | None,
        mask: Tensor | None,
        options: dict[str, bool],
    ) -> tuple[Tensor, Tensor | None]:
        """For inputs without a batch: (N, D), (S, kdim), (S, vdim)."""
        at = 0 if self.batch_first else 1
        batched = {id(x): x.unsqueeze(at) for x in inputs}  # what was one tensor stays one
        output, weights = self(
            *(batched[id(x)] for x in inputs), None if padding is None else padding[None], attn_mask=mask, **options
        )
        return output.squeeze(at), None if weights is None else weights.squeeze(0)

    def _nested(self, x: Tensor, **options: bool) -> tuple[Tensor, Tensor | None]:
        """Self-attention of a nested tensor, which a preceding torch layer may pass on; the result is nested too."""
        parts = x.unbind()
        lengths = torch.tensor([len(part) for part in parts], device=x.device)
        padded = nn.utils.rnn.pad_sequence(parts, batch_first=True)
        padding = torch.arange(padded.shape[1], device=x.device) >= lengths[:, None]
        output, weights = self(padded, padded, padded, padding, **options)
        return torch.nested.as_nested_tensor([y[: len(part)] for part, y in zip(parts, output, strict=True)]), weights

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Under torch's names or our own; where torch's output has no bias, ours is zero."""
        from_torch(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def torch_state_dict(self) -> dict[str, Tensor]:
        """A state dictionary for a `torch.nn.MultiheadAttention` that does the same in evaluation.

        Linear output stages, such as DEACON's direct architecture, are folded into one. Where neither this module's
        projections nor its output have a bias, torch's has none either.

        Raises:
            ValueError: in evaluation it is not ordinary attention, or it has adapters, pruning masks or fewer heads.
        """
        if self.attention.is_plain:
            must_be_merged("in_projection", self.attention.in_projection, ValueError)
        attention = fold(self).attention
        stage = getattr(attention, "output", None)
        if not attention.is_plain or type(stage) not in LINEAR or stage.in_features != self.embed_dim:
            raise ValueError(f"{self.method!r} computes in evaluation what torch.nn.MultiheadAttention cannot")
        return to_torch(attention.state_dict())


def _must_be_in_range(embed_dim: int, num_heads: int, dropout: float, kind: str, layer: int | None) -> None:
    """Raise a ValueError where one of these is not."""
    if embed_dim < 1 or num_heads < 1:
        raise ValueError(f"embed_dim and num_heads must be greater than 0, got {embed_dim} and {num_heads} instead")
    if embed_dim % num_heads:
        raise ValueError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads} instead")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {dropout}")
    if kind not in ATTENTION_KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, ATTENTION_KINDS))}, but got {kind!r}")
    if layer is not None and layer < 0:
        raise ValueError(f"layer must be 0 or greater, but got {layer}")


def _initialise(attention: MultiHeadAttention) -> None:
    """As `torch.nn.MultiheadAttention` does: Xavier over all three projections at once, and no bias."""
    nn.init.xavier_uniform_(attention.in_projection.weight)
    for layer in (attention.in_projection, attention.output):
        if isinstance(layer, nn.Linear | WeightAndBias) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
