"""The heads of any model with attention that headdiv built: recorded, measured, masked, ranked, edited, removed.

heads = headdiv.ModelHeads(model)
heads.to_frame(batches)  # a row for each head
order = headdiv.pretrained.least_important_first(heads.importance(batches, loss))
heads.pruning_curve(lambda: accuracy(model), order)
with heads.edited({"encoder 1": lambda outputs, queries: 0.5 * outputs}):
    model(x)

`headdiv.pretrained.attach` gives the same for transformers models.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from headdiv.analysis.masking import (
    Head,
    HeadChange,
    Masks,
    masked_heads,
    masks_without,
    module_named,
)
from headdiv.analysis.similarity import BY_HEAD, BY_PAIR, HeadComparison, Observed, compare_heads
from headdiv.core import progress
from headdiv.core.errors import DataError
from headdiv.core.precision import at_least_float32
from headdiv.core.tracing import uncompiled
from headdiv.nn.dropout import Dropout
from headdiv.nn.linear import LINEAR
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import PackedRows
from headdiv.nn.projections import keep_units, must_be_merged, units_of
from headdiv.nn.records import Edit, HeadModule, HeadRecord, attention_modules, by_name, record_heads
from headdiv.nn.sizes import AttentionSpec

if TYPE_CHECKING:
    import pandas as pd

Metric = Callable[[], float]  # of the model as it is at the time of the call


class Pruned(NamedTuple):
    """A point of a pruning curve."""

    kept: int  # heads in all modules
    value: float  # of the metric


class ModelHeads:
    """The heads of a model.

    Args:
        model: anything with headdiv's attention: `headdiv.MultiheadAttention`, a task's model, an attached one.
        run: a forward pass over a batch; by default the batch is the model's arguments: a mapping of them by name, a
            list or tuple of them in order, or the only one.

    Raises:
        DataError: there are none, or two modules share a name.
    """

    def __init__(self, model: nn.Module, run: Callable[[Any], Any] | None = None) -> None:
        self.model, self.run = model, run or self._run
        if not self.counts:
            raise DataError(
                f"{type(model).__name__}: found no attention that headdiv built; expected headdiv.MultiheadAttention, "
                "which headdiv.insert(model, 'baseline') puts in the place of torch's, or "
                "headdiv.pretrained.attach(model) for a model of transformers"
            )

    def _run(self, batch: Any) -> Any:
        if isinstance(batch, Mapping):
            return self.model(**batch)
        return self.model(*batch) if isinstance(batch, list | tuple) else self.model(batch)

    @property
    def modules(self) -> Sequence[HeadModule]:
        """The heads of every attention module, in the order of a forward pass."""
        return attention_modules(self.model)

    @property
    def counts(self) -> dict[str, int]:
        """Number of heads of every attention module ("encoder 1", "decoder 2", "cross 1")."""
        return by_name((module.spec.name, module.head_slots) for module in self.modules)

    # ---- looking

    def record(self, weights: bool = True) -> contextlib.AbstractContextManager[list[HeadRecord]]:
        """While open, forward passes append a `HeadRecord` for each module; see `headdiv.record_heads`."""
        return record_heads(self.model, weights)

    @torch.no_grad()
    def observed(self, batches: Iterable[Any], special: Sequence[int] = ()) -> Iterator[Observed]:
        """The model's passes over batches, one at a time: nothing of a pass is kept once the next has begun.

        Args:
            batches: see `ModelHeads`.
            special: token numbers that are not words, which measures leave out; where batches have token numbers.
        """
        with evaluating(self.model):
            for batch in batches:
                with self.record() as records:
                    self.run(batch)
                yield Observed(list(records), self._special(records, batch, special))

    def _special(
        self, records: list[HeadRecord], batch: Any, special: Sequence[int]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        if special:
            raise DataError("special: the batches do not say which tokens they hold; expected none")
        return {}

    def measures(
        self, batches: Iterable[Any], special: Sequence[int] = ()
    ) -> list[tuple[AttentionSpec, HeadComparison]]:
        """All measures of every module over batches: only sums are kept.

        Args:
            batches: see `observed`.
            special: see `observed`.

        Raises:
            DataError: there is no batch, or no word in them.
        """
        results = compare_heads(self.observed(batches, special), enough=math.inf)
        if not results:
            raise DataError("batches: found none; expected one at least")
        if not any(measured.queries for _, measured in results):
            raise DataError("batches: found no word but special tokens and padding; expected one at least")
        return results

    def to_frame(self, batches: Iterable[Any], special: Sequence[int] = ()) -> pd.DataFrame:
        """A row for each head; see `head_table`."""
        return head_table(self.measures(batches, special))

    # ---- masking and editing

    def without(self, removed: Sequence[Head]) -> contextlib.AbstractContextManager[None]:
        """While open, these heads (module, number from 1) are masked; `headdiv.masked_heads` takes other factors."""
        return masked_heads(self.model, masks_without(self.model, removed))

    @contextlib.contextmanager
    def edited(self, edits: Mapping[str, Edit]) -> Iterator[None]:
        """While open, a function for each module replaces its heads' outputs: (T, H, K) -> (T, H, K).

        It is called as ``edit(outputs, queries)``, with the layout that says which token each row is.

        Raises:
            DataError: there is no such module.
        """
        modules = {module.spec.name: module for module in self.modules}
        with uncompiled(), contextlib.ExitStack() as stack:
            for name, edit in edits.items():
                stack.callback(module_named(name, modules).edit_heads(edit).remove)
            yield

    # ---- ranking

    def importance(
        self,
        batches: Iterable[Any],
        loss: Callable[[Any], Tensor] = lambda output: getattr(output, "loss", None),
    ) -> list[HeadChange]:
        """Michel et al.'s score (2019, Eq. 2): E_x ``|∂L(x)/∂ξ_h|``, ξ_h the mask of head h, one backward pass a batch.

        To first order, by how much the loss of an example changes when the head is masked. An example's share of a
        batch's mean loss is taken as its own loss. A head that the loss does not depend on has 0. Where a module
        attends within windows of an image, each window counts as an example. (The paper divides a module's scores by
        their Euclidean length before ranking them.)

        Args:
            batches: see `observed`.
            loss: of what the forward pass returns, a scalar; by default its ``loss``.

        Raises:
            DataError: there is no batch or no loss, or a module runs on different numbers of examples in one pass.
        """
        sums, examples = {name: torch.zeros(count) for name, count in self.counts.items()}, 0
        with evaluating(self.model), torch.enable_grad():
            for batch in batches:
                masks: dict[str, Tensor] = {}
                with self.edited({name: _mask_edit(masks, name) for name in sums}):
                    value = loss(self.run(batch))
                if not isinstance(value, Tensor):
                    raise DataError(
                        f"loss: found {value!r:.80}, expected a scalar tensor (does the batch have labels?)"
                    )
                B = max((len(mask) for mask in masks.values()), default=0)
                gradients = torch.autograd.grad(value * B, list(masks.values()), allow_unused=True) if masks else ()
                for name, gradient in zip(masks, gradients, strict=True):
                    sums[name] += 0 if gradient is None else gradient.abs().sum(0).cpu()
                examples += B
        if not examples:
            raise DataError("batches: found none; expected one at least")
        return [
            HeadChange(name, head, float(score / examples))
            for name, scores in sums.items()
            for head, score in enumerate(scores, 1)
        ]

    def leave_one_out(self, metric: Metric, masked: Sequence[Head] = ()) -> list[HeadChange]:
        """How much a metric worsens when one head at a time is masked; ``masked`` are always masked.

        Args:
            metric: a loss, or the negative of a score.
            masked: heads (module, number from 1); they are not in the result.

        Raises:
            DataError: a head is not there.
        """
        before = self._value(metric, masks_without(self.model, masked))
        heads = [(name, head) for name, count in self.counts.items() for head in range(1, count + 1)]
        remaining, changes = [head for head in heads if head not in set(masked)], []
        with progress.bar(len(remaining), "masking heads") as advance:
            for name, head in remaining:
                after = self._value(metric, masks_without(self.model, [*masked, (name, head)]))
                changes.append(HeadChange(name, head, after - before))
                advance("")
        return changes

    def pruning_curve(self, metric: Metric, order: Sequence[Head], steps: int = 10) -> list[Pruned]:
        """A metric with ever fewer heads, from all of them to none of ``order``, without retraining.

        Raises:
            DataError: there are fewer than one step, or a head is not there or named twice.
        """
        if steps < 1:
            raise DataError(f"steps: found {steps}, expected at least 1")
        for (name, head), count in Counter(map(tuple, order)).items():
            if count > 1:
                raise DataError(f"order: found head {head} of {name!r} {count} times, expected each head once at most")
        masks_without(self.model, order)  # raises before anything is measured
        steps = max(min(steps, len(order)), 1)  # of at least one head each
        counts = sorted({round(step * len(order) / steps) for step in range(steps + 1)})
        curve = []
        with progress.bar(len(counts), "pruning") as advance:
            for count in counts:
                value = self._value(metric, masks_without(self.model, order[:count]))
                curve.append(Pruned(sum(self.counts.values()) - count, value))
                advance("")
        return curve

    # ---- removing

    def remove(self, removed: Sequence[Head]) -> None:
        """Remove heads (module, number from 1) permanently: the output is that of the masked model.

        Parameters are replaced: make the optimiser afterwards. A saved state fits a model with the same heads removed.

        Raises:
            DataError: a head is not there, it is a module's last one, or a module has more than ordinary heads and a
                linear output projection. The model is then unchanged.
        """
        kept = {name: mask.nonzero().flatten() for name, mask in masks_without(self.model, removed).items()}
        modules = {module.spec.name: module for module in self.modules if module.spec.name in kept}
        for name, module in modules.items():
            _must_be_ordinary(name, module)
            if not len(kept[name]):
                raise DataError(f"{name}: all of its heads are to be removed; expected one that stays")
        for name, module in modules.items():
            H, K, heads = module.spec.heads, module.head_width, kept[name].tolist()
            keep_units(module.in_projection, units_of([block * H + head for block in range(3) for head in heads], K))
            keep_units(module.output, units_of(heads, K), inputs=True)
            module.spec = replace(module.spec, heads=len(heads), width=K)

    def _value(self, metric: Metric, masks: Masks) -> float:
        with masked_heads(self.model, masks), evaluating(self.model), torch.no_grad():
            return float(metric())


def _must_be_ordinary(name: str, module: HeadModule) -> None:
    """Raise a DataError where a module is more than heads between linear projections, or these are adapted."""
    expected = "expected ordinary heads between linear projections"
    if type(module) is not MultiHeadAttention:
        raise DataError(f"{name}: heads cannot be removed from {type(module).__name__}; {expected}")
    nothing = (type(None), nn.Identity, nn.Dropout, Dropout)  # in evaluation
    plain = {"in_projection": LINEAR, "before_output": nothing, "output": LINEAR}
    for part, kinds in plain.items():
        if (kind := type(getattr(module, part))) not in kinds:
            found = f"{kind.__qualname__} of {kind.__module__}"
            raise DataError(f"{name}: heads cannot be removed where its {part} is {found}; {expected}")
    for part in ("in_projection", "output"):
        must_be_merged(f"{name}: its {part}", getattr(module, part))


def _mask_edit(masks: dict[str, Tensor], name: str) -> Edit:
    """An edit that multiplies by ones (B, H), one for each head of each sentence, which it keeps in ``masks``.

    It is float32 at least: its gradient is a sum over all words and units of a sentence's head.
    """

    def edit(outputs: Tensor, queries: PackedRows) -> Tensor:
        B = len(queries.lengths)
        if name not in masks:
            masks[name] = at_least_float32(outputs.new_ones(B, outputs.shape[1])).requires_grad_()
        count = len(masks[name])
        if count != B:
            raise DataError(
                f"{name}: runs on {count} and on {B} sentences in one forward pass; expected the same number each "
                "time, since an example has one mask"
            )
        return (outputs * masks[name][queries.sentence_of_row(), :, None]).to(outputs.dtype)

    return edit


def head_table(found: Iterable[tuple[AttentionSpec, HeadComparison]]) -> pd.DataFrame:
    """A row for each head by module and number: its measures; for pairs, the mean over the module's other heads."""
    import pandas as pd  # here: nothing else needs it

    rows = []
    for spec, measured in found:
        pairs = {name: getattr(measured, name) for name in BY_PAIR}
        others = spec.heads - 1 or math.nan  # one head has no pairs
        means = {name: (pair.sum(1) - pair.diagonal()) / others for name, pair in pairs.items()}
        columns = {name: getattr(measured, name) for name in BY_HEAD} | means
        for head in range(spec.heads):
            row = {name: float(column[head]) for name, column in columns.items()}
            rows.append({"module": spec.name, "head": head + 1, **row})
    return pd.DataFrame(rows).set_index(["module", "head"])


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """While open, the model is in evaluation mode; every module's mode is then restored."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
