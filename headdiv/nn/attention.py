"""Attention modules: position and sizes, inputs, what headdiv asks of them, and records of what their heads do.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, N query slots, S key slots, H heads,
D model width, K head width (d_k); one token at a time N lines of n texts, as in `headdiv.nn.caches`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headdiv.core.arguments import must_be
from headdiv.core.errors import DataError
from headdiv.core.modules import active_modules
from headdiv.core.tracing import is_recomputing
from headdiv.nn.caches import BeamState, PositionCache, RowCache
from headdiv.nn.numbering import numbered
from headdiv.nn.packing import MASKED, PackedLayout, attention_mask, padded_side
from headdiv.nn.padded import PaddedHeads, padded_heads
from headdiv.nn.sizes import Kind

Found = TypeVar("Found")
Edit = Callable[[Tensor, PackedLayout], Tensor]  # outputs (T, H, K) of these queries -> (T, H, K)

WIDE = 64 * 64  # weights of a window and head: up to here `ScaledDotProduct` is as fast, beyond torch's fused one wins


@dataclass(frozen=True)
class AttentionSpec:
    """Position and sizes of an attention module to be built by a method."""

    kind: Kind  # encoder self-, decoder self- or encoder-decoder attention
    layer: int  # from 0
    d_model: int  # D
    heads: int  # H
    bias: bool = False  # of the query, key and value projections
    width: int | None = None  # K, where it is not D / H

    @property
    def d_head(self) -> int:
        """K, the paper's d_k: D / H unless ``width`` says otherwise."""
        return self.width or self.d_model // self.heads

    @property
    def place(self) -> str:
        """Its name in results: "encoder 1", "decoder 2", "cross 1"."""
        return f"{self.kind} {self.layer + 1}"


@dataclass(frozen=True)
class BlockSpec:
    """Position and width of a block (layer) whose output a method may change."""

    stack: Literal["encoder", "decoder"]
    layer: int  # from 0
    d_model: int  # D

    @property
    def place(self) -> str:
        """Its name in results: "encoder block 1"."""
        return f"{self.stack} block {self.layer + 1}"


@dataclass(frozen=True)
class AttentionLayout:
    """Queries, keys and the mask between them, for one kind of attention.

    Without a mask every slot attends to itself and all earlier ones of its window (a language model's full windows).
    """

    queries: PackedLayout
    keys: PackedLayout
    mask: Tensor | None  # (R, 1, N, S), added to the scores; (R, H, N, S) where each head has its own mask
    # Of the weights. Where it is a number, attention is computed as torch.nn.MultiheadAttention does: the mask has a
    # gradient, and only -inf excludes.
    dropout: float | None = None
    dropped: list[Tensor] | None = None  # where weights after dropout are wanted, as torch returns them: put here

    def written_out(self) -> Tensor:
        """The mask, even where it is only implied."""
        return attention_mask(self.queries, self.keys, causal=True) if self.mask is None else self.mask

    @property
    def blind(self) -> Tensor | None:
        """(R, 1 or H, N, 1) which queries may see no key: their weights are 0. None: each sees one."""
        if self.dropout is None and (self.keys is self.queries or not self.keys.gaps):
            return None
        return (self.mask <= (MASKED if self.dropout is None else -torch.inf)).all(-1, keepdim=True)

    @property
    def full(self) -> bool:
        """Whether no slot is empty: windows of a language model, of the same shape in every batch."""
        return self.queries.full and self.keys.full

    @property
    def wide(self) -> bool:
        """Whether a window has too many weights to hold for the backward pass."""
        return self.queries.sentences.shape[1] * self.keys.sentences.shape[1] > WIDE


@dataclass(frozen=True)
class HeadRecord:
    """What the heads of one module did in one forward pass, with gradient; nothing is averaged over heads."""

    spec: AttentionSpec
    layout: AttentionLayout
    weights: Tensor | None  # (R, H, N, S); None where they were not asked for
    values: Tensor  # (T', H, K), a row for each key
    outputs: Tensor  # (T, H, K), before the output stage

    def padded(self) -> PaddedHeads:
        """The same by sentence: (B, H, N, K) and (B, H, N, S), whatever the packing was."""
        return padded_heads(self)


@dataclass(frozen=True)
class Recorder:
    """Collects what a module's heads do while `record_heads` is open."""

    weights: bool  # whether attention weights are recorded
    records: list[HeadRecord]
    outer: Recorder | None = None  # of a `record_heads` that was open before: it records too
    again: bool = field(default_factory=is_recomputing)  # opened within a pass that activation checkpointing repeats

    @property
    def needs_weights(self) -> bool:
        """Whether any caller asked for the attention weights."""
        return self.weights or (self.outer is not None and self.outer.needs_weights)

    def append(self, record: HeadRecord) -> None:
        """Add a record wherever it is wanted, with weights only where they are; not again for a repeated pass."""
        if self.again or not is_recomputing():
            self.records.append(record if self.weights else replace(record, weights=None))
        if self.outer is not None:
            self.outer.append(record)


class HeadModule(nn.Module, ABC):
    """Heads that can be recorded, measured and masked: `AttentionModule`, or another library's heads."""

    editable = False  # whether `edit_heads` works
    built_by: Any = None  # the method that made it; None where that is not known
    numbered = True  # whether its layer was given; where not, `attention_modules` numbers modules that share one
    gave_weights = False  # whether `needs_weights` was true in the last pass

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.spec = spec  # where the module stands, and its sizes
        self.recorder: Recorder | None = None  # set while `record_heads` is open
        self.edits: dict[int, Edit] = OrderedDict()  # which a handle can refer to

    @property
    def head_slots(self) -> int:
        """Number of heads that can be measured and masked; in a mixture, the heads chosen for each token."""
        return self.spec.heads

    @property
    def head_width(self) -> int:
        """K, the width of a head's output."""
        return self.spec.d_head

    @property
    def slot_spec(self) -> AttentionSpec:
        """``spec`` with number and width of the slots: what head records carry."""
        spec = replace(self.spec, heads=self.head_slots)
        return spec if spec.d_head == self.head_width else replace(spec, width=self.head_width)

    @abstractmethod
    def mask_heads(self, mask: Tensor) -> torch.utils.hooks.RemovableHandle:
        """Multiply the heads' outputs, but not their records, by ``mask`` (H,) until the handle's ``remove``.

        Code that `torch.compile` has compiled before does not see it; `headdiv.analysis.masking.masked_heads` runs the
        model uncompiled.
        """

    def edit_heads(self, edit: Edit) -> RemovableHandle:
        """Let ``edit(outputs, queries)`` change the heads' outputs (T, H, K), but not their records, in forward passes.

        Until the handle's ``remove``. It takes place before masks. In cached decoding it is called at every position,
        with one row for each line.

        Raises:
            DataError: these heads cannot be edited.
        """
        if not self.editable:
            raise DataError(f"{self.spec.place}: a {type(self).__name__} cannot be edited; expected ordinary heads")
        handle = RemovableHandle(self.edits)
        self.edits[handle.id] = edit
        return handle

    def edited(self, outputs: Tensor, queries: PackedLayout) -> Tensor:
        """The heads' outputs (T, H, K) after all edits."""
        for edit in self.edits.values():
            shape, outputs = outputs.shape, edit(outputs, queries)
            if not isinstance(outputs, Tensor) or outputs.shape != shape:
                found = f"the shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"{outputs!r:.80}"
                raise DataError(f"{self.spec.place}: an edit returned {found}, expected (T, H, K) = {tuple(shape)}")
        return outputs

    @property
    def needs_weights(self) -> bool:
        """Whether `record` is to be given the attention weights; in a repeated pass, as the first time."""
        if self.recorder is None and is_recomputing():
            return self.gave_weights
        needed = self.recorder is not None and self.recorder.needs_weights
        if needed != self.gave_weights and not torch.compiler.is_compiling():
            self.gave_weights = needed
        return needed

    def record(
        self,
        layout: AttentionLayout,
        weights: Tensor | None,
        values: Tensor,
        outputs: Tensor,
        kind: type[HeadRecord] = HeadRecord,
        **more: Any,
    ) -> None:
        """Append a `HeadRecord` (or a subclass with ``more`` fields) of these tensors where `record_heads` is open."""
        if self.recorder is not None:
            self.recorder.append(kind(self.slot_spec, layout, weights, values, outputs, **more))


class AttentionModule(HeadModule):
    """What headdiv asks of an attention module: the base class of `MultiHeadAttention` and of methods' own modules.

    A subclass needs a `forward` pass, and calls `record` in it so that its heads can be measured. It then runs in the
    model of every task and in the drop-in. Its heads can be masked if a submodule ``output`` reads them. It decodes by
    recomputing every text so far; override `self_cache`, `cross_cache` and `step` to be faster.
    """

    @abstractmethod
    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """(T, D) queries and, for encoder-decoder attention, (T', D) memory -> (T, D)."""

    @property
    def is_plain(self) -> bool:
        """Whether in evaluation the heads are the Transformer's, and only the output stage may differ."""
        return False

    @property
    def rowwise(self) -> bool:
        """Whether, in training too, rows affect each other only through attention, not through statistics or counts.

        Padding among the rows then changes only its own output.
        """
        return False

    def mask_heads(self, mask: Tensor) -> torch.utils.hooks.RemovableHandle:
        """See `HeadModule`; by default they are masked where ``output`` reads them side by side, (T, H·K).

        Raises:
            DataError: there is no submodule ``output``.
        """
        output = getattr(self, "output", None)
        if not isinstance(output, nn.Module):
            raise DataError(
                f"{type(self).__name__}: its heads cannot be masked; expected a submodule `output` that reads them "
                "side by side, or a method mask_heads"
            )
        return self._mask_inputs(output, mask)

    def _mask_inputs(self, reader: nn.Module, mask: Tensor) -> torch.utils.hooks.RemovableHandle:
        wide = mask.repeat_interleave(self.head_width)  # (H·K,)

        def multiply(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0] * wide.to(inputs[0]),)

        return reader.register_forward_pre_hook(multiply, prepend=True)

    # ---- one token at a time

    def self_cache(self, lines: BeamState, like: Tensor) -> PositionCache:
        """An empty cache for these lines, with dtype and device of ``like``; `step` reads it."""
        return RowCache.empty(lines, self.spec.d_model, like)

    def cross_cache(self, lines: BeamState, memory: Tensor, mask: Tensor) -> PositionCache:
        """The same for the texts' padded memory (n, S, D); mask (n, S) is added to the scores."""
        return RowCache(lines, memory, mask)

    def step(self, x: Tensor, cache: Any) -> Tensor:
        """One new position for each line, (N, D) -> (N, D); a self-attention cache grows by it."""
        if cache.mask is None:
            cache.add(x)
            rows = cache.prefixes()  # (N, P, D)
            side = _whole_windows(rows)
            return self._unrecorded(rows, None, AttentionLayout(side, side, None))[:, -1]
        rows = cache.lines.spread(x)  # (n, W, D)
        mask = cache.mask[:, None, None].expand(-1, -1, rows.shape[1], -1)  # (n, 1, W, S)
        layout = AttentionLayout(_whole_windows(rows), _whole_windows(cache.rows), mask)
        return cache.lines.collect(self._unrecorded(rows, cache.rows.flatten(0, 1), layout))

    def _unrecorded(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """`forward` of windows (R, N, D) -> (R, N, D), without head records."""
        recorder, self.recorder = self.recorder, None
        try:
            return self(x.flatten(0, 1), memory, layout).unflatten(0, x.shape[:2])
        finally:
            self.recorder = recorder


def _whole_windows(rows: Tensor) -> PackedLayout:
    """The layout of (R, N, D): each window one whole sentence."""
    return padded_side(torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device))


def attention_modules(model: nn.Module) -> list[HeadModule]:
    """Every attention module of a model that runs (`active_modules`), in the order of a forward pass."""
    must_be("model", model, nn.Module, "a torch.nn.Module")
    return numbered(list(active_modules(model, HeadModule).values()))


def keyed_by_place(found: Iterable[tuple[str, Found]]) -> dict[str, Found]:
    """Values that belong to attention modules, keyed by place; a DataError where two share a place."""
    keyed: dict[str, Found] = {}
    for place, one in found:
        if place in keyed:
            raise DataError(
                f"two attention modules are {place!r}; expected for each a `layer` of its own, from 0, or another "
                "`kind` (arguments of headdiv.MultiheadAttention)"
            )
        keyed[place] = one
    return keyed


@contextlib.contextmanager
def record_heads(model: nn.Module, weights: bool = True) -> Iterator[list[HeadRecord]]:
    """While open, every attention module of ``model`` appends a `HeadRecord` for each forward pass.

    Args:
        model: anything that holds attention modules.
        weights: record the attention weights too, which wide windows would otherwise not hold in memory.

    Raises:
        DataError: the model holds none.
    """
    records: list[HeadRecord] = []
    modules = attention_modules(model)
    if not modules:
        raise DataError(
            f"{type(model).__name__}: found no heads to record; expected attention that headdiv built "
            "(headdiv.MultiheadAttention) or attached (headdiv.pretrained.attach)"
        )
    for module in modules:
        module.recorder = Recorder(weights, records, outer=module.recorder)
    try:
        yield records
    finally:
        for module in modules:
            module.recorder = module.recorder.outer
