"""Looking at heads: records of what they do, by the module or in the usual rectangles; masks and edits.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, N query slots, S key slots, H heads,
K head width; by sentence, B sentences of at most N queries and S keys.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headdiv.core.errors import DataError
from headdiv.core.modules import active_modules
from headdiv.core.tracing import is_recomputing
from headdiv.nn.dot_product import out_of_windows
from headdiv.nn.packing import AttentionLayout, PackedRows, pad_rows
from headdiv.nn.sizes import AttentionSpec

Value = TypeVar("Value")
Edit = Callable[[Tensor, PackedRows], Tensor]  # outputs (T, H, K) of these queries -> (T, H, K)


@dataclass(frozen=True)
class PaddedHeads:
    """What the heads of one module did, a line for each sentence; 0 after its end.

    Attributes:
        outputs: (B, H, N, K).
        values: (B, H, S, K).
        weights: (B, H, N, S), where they were recorded.
        queries: (B, N), True where there is a token.
        keys: (B, S), the same.
    """

    outputs: Tensor
    values: Tensor
    weights: Tensor | None
    queries: Tensor
    keys: Tensor


@dataclass(frozen=True)
class HeadRecord:
    """What the heads of one module did in one forward pass, with gradient; nothing is averaged over heads."""

    spec: AttentionSpec
    layout: AttentionLayout
    weights: Tensor | None  # (R, H, N, S); None where they were not requested
    values: Tensor  # (T', H, K), a row for each key
    outputs: Tensor  # (T, H, K), before the output stage

    def weights_on_own_keys(self) -> Tensor:
        """The weights on the keys of each query's own sentence: (T, H, S), 0 after the sentence's end."""
        queries, keys = self.layout.queries, self.layout.keys
        slots = pad_rows(keys.slots % self.weights.shape[3], keys, -1)[queries.sentence_of_row()]  # (T, S)
        rows = out_of_windows(self.weights, queries)
        own = rows.gather(2, slots.clamp(min=0)[:, None].expand(-1, rows.shape[1], -1))
        return own.masked_fill_((slots < 0)[:, None], 0.0)

    def padded(self) -> PaddedHeads:
        """The same by sentence, whatever the packing was; real tokens come first, wherever padding was."""
        queries, keys, weights = self.layout.queries, self.layout.keys, self.weights
        outputs, values = pad_rows(self.outputs, queries).transpose(1, 2), pad_rows(self.values, keys).transpose(1, 2)
        real_queries, real_keys = (pad_rows(torch.ones_like(x.positions).bool(), x, False) for x in (queries, keys))
        if weights is not None:
            weights = pad_rows(self.weights_on_own_keys(), queries).transpose(1, 2)
        return PaddedHeads(outputs, values, weights, real_queries, real_keys)


@dataclass(frozen=True, eq=False)
class Recorder:
    """Collects what modules' heads do while `record_heads` is open."""

    weights: bool  # whether attention weights are recorded
    records: list[HeadRecord]
    recomputing: bool = field(default_factory=is_recomputing)  # whether it was opened in a pass that is repeated

    def append(self, record: HeadRecord) -> None:
        """Add a record, with weights only where they are wanted; not for a pass that is repeated meanwhile."""
        if self.recomputing or not is_recomputing():
            self.records.append(record if self.weights else replace(record, weights=None))


class HeadModule(nn.Module):
    """Heads that can be recorded, edited and masked: `AttentionModule`, or another library's heads.

    In each forward pass the module gives its heads' outputs to `record`, and goes on with what that returns.
    """

    method: Any = None  # the method that made it; None where that is not known
    numbered = True  # whether its layer was given; where not, `attention_modules` numbers modules that share one
    gave_weights = False  # whether `needs_weights` was true in the last pass

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.spec = spec  # where the module stands, and its sizes
        self.recorders: tuple[Recorder, ...] = ()  # of each `record_heads` that is open
        self.edits: dict[int, Edit] = OrderedDict()  # by a handle's number; a handle cannot refer to a plain dictionary
        self.masks: dict[int, Tensor] = OrderedDict()  # the same

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

    @property
    def needs_weights(self) -> bool:
        """Whether `record` is to be given the attention weights; in a repeated pass, as the first time."""
        if not self.recorders and is_recomputing():
            return self.gave_weights
        needed = any(recorder.weights for recorder in self.recorders)
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
        **fields: Any,
    ) -> Tensor:
        """The outputs (T, H, K) with which the module goes on: those given, after `edit_heads` and `mask_heads`.

        What was given is kept as a `HeadRecord` (or a subclass with further ``fields``) where `record_heads` is open.
        """
        if self.recorders:
            self.keep_record(kind(self.slot_spec, layout, weights, values, outputs, **fields))
        return self.masked(self.edited(outputs, layout.queries))

    def keep_record(self, record: HeadRecord) -> None:
        """Append a record to every open recorder."""
        for recorder in self.recorders:
            recorder.append(record)

    def edit_heads(self, edit: Edit) -> RemovableHandle:
        """Let ``edit(outputs, queries)`` change the heads' outputs (T, H, K), but not their records, in forward passes.

        Until the handle's ``remove``. It takes place before masks. In cached decoding it is called at every position,
        with one row for each line, or with all rows so far in self-attention without a cache of keys of its own.
        """
        handle = RemovableHandle(self.edits)
        self.edits[handle.id] = edit
        return handle

    def mask_heads(self, mask: Tensor) -> RemovableHandle:
        """Multiply the heads' outputs, but not their records, by ``mask`` (H,) until the handle's ``remove``.

        Code that `torch.compile` has compiled before does not see it; `headdiv.analysis.masking.masked_heads` runs the
        model uncompiled.
        """
        handle = RemovableHandle(self.masks)
        self.masks[handle.id] = mask
        return handle

    def edited(self, outputs: Tensor, queries: PackedRows) -> Tensor:
        """The heads' outputs (T, H, K) after all edits."""
        for edit in self.edits.values():
            shape, outputs = outputs.shape, edit(outputs, queries)
            if not isinstance(outputs, Tensor) or outputs.shape != shape:
                result = f"the shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"{outputs!r:.80}"
                raise DataError(f"{self.spec.name}: an edit returned {result}, expected (T, H, K) = {tuple(shape)}")
        return outputs

    def masked(self, outputs: Tensor) -> Tensor:
        """The heads' outputs (…, H, K), multiplied by all masks."""
        for mask in self.masks.values():
            outputs = outputs * mask.to(outputs)[:, None]
        return outputs


def attention_modules(model: nn.Module) -> list[HeadModule]:
    """Every attention module of a model that runs (`active_modules`), in the order of a forward pass."""
    return numbered(list(active_modules(model, HeadModule).values()))


def by_name(values: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Values that belong to attention modules, keyed by the modules' names; a DataError where two share a name."""
    keyed: dict[str, Value] = {}
    for name, value in values:
        if name in keyed:
            raise DataError(
                f"two attention modules are {name!r}; expected for each a `layer` of its own, from 0, or another "
                "`kind` (arguments of headdiv.MultiheadAttention)"
            )
        keyed[name] = value
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
    recorder = Recorder(weights, records)
    for module in modules:
        module.recorders += (recorder,)
    try:
        yield records
    finally:
        for module in modules:
            module.recorders = tuple(other for other in module.recorders if other is not recorder)


def numbered(modules: list[HeadModule]) -> list[HeadModule]:
    """The modules; among those that share a name, the ones whose layer was left out take the next free numbers.

    Modules made without a layer, and copies as torch.nn.TransformerEncoder makes them, thus become layers 1, 2, … in
    the model's order.
    """
    if len({(module.spec.kind, module.spec.layer) for module in modules}) == len(modules):
        return modules
    taken = {(module.spec.kind, module.spec.layer) for module in modules if module.numbered}
    for module in modules:
        if module.numbered:
            continue
        old = module.spec
        layer = next(number for number in range(len(modules)) if (old.kind, number) not in taken)
        taken.add((old.kind, layer))
        for part in module.modules():  # output stages carry it too
            if getattr(part, "spec", None) == old:
                part.spec = replace(old, layer=layer)
    return modules
