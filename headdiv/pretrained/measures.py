"""The heads of a Hugging Face model: recorded, measured, masked, ranked, pruned, removed.

heads = headdiv.pretrained.attach(model)
heads.table(batches)  # a row for each head
order = headdiv.pretrained.least_important_first(heads.importance(batches))
heads.pruning_curve(lambda: accuracy(model), order)
heads.remove(order[:6])
heads.detach()
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from headdiv.analysis.masking import (
    Head,
    HeadChange,
    Masks,
    heads_of,
    least_important_first,
    masked_heads,
    masking_changes,
    masks_without,
    pruning_steps,
)
from headdiv.analysis.similarity import BY_HEAD, BY_PAIR, HeadComparison, Observed, compare_heads
from headdiv.core.errors import DataError
from headdiv.nn.attention import AttentionSpec, HeadRecord, record_heads
from headdiv.pretrained.attached import AttachedHeads, attach_heads, detach_heads
from headdiv.pretrained.removal import remove_if_right

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["attach", "copied", "least_important_first", "mean_loss"]

Arguments = Mapping[str, Tensor]  # of a forward pass: input_ids, attention_mask, labels, …
Metric = Callable[[], float]  # of the model as it is when it is called
ROUNDS = 5  # forward passes that a time is the median of


class Pruned(NamedTuple):
    """A point of a pruning curve."""

    kept: int  # heads of all modules
    value: float  # of the metric


class Removed(NamedTuple):
    """What taking heads out changed."""

    parameters_before: int
    parameters_after: int
    seconds_before: float | None  # of a forward pass, where a batch was given
    seconds_after: float | None


class ModelHeads:
    """The heads of an attached model; made by `attach`. Outputs are those of the model alone, to the last bit."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.attachment = attach_heads(model)

    @property
    def modules(self) -> list[AttachedHeads]:
        """Of every attention module, in the order of a forward pass."""
        return self.attachment.heads

    @property
    def counts(self) -> dict[str, int]:
        """Number of heads of every attention module ("encoder 1", "decoder 2", "cross 1")."""
        return heads_of(self.model)

    def detach(self) -> None:
        """Leave the model as it was, but for heads that were removed: see `detach_heads`."""
        detach_heads(self.model)

    # ---- looking

    def record(self, weights: bool = True) -> contextlib.AbstractContextManager[list[HeadRecord]]:
        """While open, forward passes append a `HeadRecord` for each module; see `headdiv.record_heads`."""
        return record_heads(self.model, weights)

    @torch.no_grad()
    def observed(self, batches: Iterable[Arguments], special: Sequence[int] = ()) -> Iterator[Observed]:
        """The model's passes over batches, one at a time: nothing of a pass is kept after the next has begun.

        Args:
            batches: arguments of forward passes.
            special: token numbers that are no words; measures leave them out.
        """
        with evaluating(self.model):
            for batch in batches:
                with self.record() as records:
                    self.model(**batch)
                yield Observed(list(records), self._special(records, batch, special))

    def _special(
        self, records: list[HeadRecord], batch: Arguments, special: Sequence[int]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        source = batch.get("input_ids")
        target = self._decoder_ids(batch) if self.attachment.config.is_encoder_decoder else source
        found = {}
        for record in records:
            kind, sides = record.spec.kind, (record.layout.queries, record.layout.keys)
            ids = (source if kind == "encoder" else target, target if kind == "decoder" else source)
            fits = all(
                each is not None and each.shape == side.sentences.shape for each, side in zip(ids, sides, strict=True)
            )  # another stack has inputs of its own
            if special and fits:
                numbers = torch.as_tensor(special, device=ids[0].device)
                found[record.spec.place] = tuple(
                    torch.isin(each.flatten()[side.slots], numbers) for each, side in zip(ids, sides, strict=True)
                )
        return found

    def _decoder_ids(self, batch: Arguments) -> Tensor | None:
        """What the decoder reads: made of the labels by the model where it is not given."""
        shifted = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        if batch.get("decoder_input_ids") is None and batch.get("labels") is not None and shifted is not None:
            return shifted(labels=batch["labels"])
        return batch.get("decoder_input_ids")

    def measures(
        self, batches: Iterable[Arguments], special: Sequence[int] = (), enough: float = math.inf
    ) -> list[tuple[AttentionSpec, HeadComparison]]:
        """All measures of every module over batches: sums are kept, not what they are of.

        Args:
            batches: see `observed`.
            special: see `observed`.
            enough: words after which no further batch is read.

        Raises:
            DataError: there is no batch.
        """
        found = compare_heads(self.observed(batches, special), enough=enough)
        if not found:
            raise DataError("batches: found none; expected one at least")
        return found

    def table(self, batches: Iterable[Arguments], special: Sequence[int] = ()) -> pd.DataFrame:
        """A row for each head; see `head_table`."""
        return head_table(self.measures(batches, special))

    def to_frame(self, batches: Iterable[Arguments], special: Sequence[int] = ()) -> pd.DataFrame:
        """`table`, by pandas' name for it."""
        return self.table(batches, special)

    # ---- masking

    def masked(self, masks: Masks) -> contextlib.AbstractContextManager[None]:
        """While open, the outputs of heads are multiplied by these masks; see `headdiv.masked_heads`."""
        return masked_heads(self.model, masks)

    def without(self, gone: Sequence[Head]) -> contextlib.AbstractContextManager[None]:
        """While open, these heads (module, number from 1) are masked."""
        return self.masked(masks_without(self.model, gone))

    def ablate(self, gone: Sequence[Head]) -> contextlib.AbstractContextManager[None]:
        """`without`, by the name of the literature."""
        return self.without(gone)

    def importance(
        self,
        batches: Iterable[Arguments],
        loss: Callable[[Any], Tensor] = lambda output: output.loss,
        by_layer: bool = False,
    ) -> list[HeadChange]:
        """Michel et al.'s score (2019, Eq. 2): E_x |∂L(x)/∂ξ_h|, ξ_h the mask of head h, one backward pass a batch.

        To first order, by how much the loss of an example changes when the head is masked. Of a batch's mean loss an
        example's share is taken as its own loss.

        Args:
            batches: arguments of forward passes, with labels.
            loss: of the model's output, a scalar; its ``loss`` where left out.
            by_layer: divide the scores of a module by their Euclidean length, as the paper does before it ranks them.

        Raises:
            DataError: there is no batch.
        """
        sums, examples = [torch.zeros(each.spec.heads) for each in self.modules], 0
        with evaluating(self.model), torch.enable_grad():
            for batch in batches:
                first = next(iter(batch.values()))
                B = len(first)
                masks = [
                    torch.ones(B, each.spec.heads, device=first.device, requires_grad=True) for each in self.modules
                ]
                with contextlib.ExitStack() as stack:
                    for each, mask in zip(self.modules, masks, strict=True):
                        stack.callback(each.mask_heads(mask).remove)
                    gradients = torch.autograd.grad(loss(self.model(**batch)) * B, masks)
                for total, gradient in zip(sums, gradients, strict=True):
                    total += gradient.abs().sum(0).cpu()
                examples += B
        if not examples:
            raise DataError("batches: found none; expected one at least")
        scores = [total / examples for total in sums]
        if by_layer:
            scores = [score / score.norm().clamp_min(torch.finfo(score.dtype).tiny) for score in scores]
        return [
            HeadChange(each.spec.place, head, float(value))
            for each, score in zip(self.modules, scores, strict=True)
            for head, value in enumerate(score, 1)
        ]

    def leave_one_out(
        self, metric: Metric, gone: Sequence[Head] = (), better: Literal["lower", "higher"] = "lower"
    ) -> list[HeadChange]:
        """By how much a metric becomes worse when one head at a time is masked; ``gone`` are masked in any case.

        Args:
            metric: a loss; or a score, with ``better="higher"``.
            gone: heads (module, number from 1).
            better: which values of the metric are.
        """
        sign = 1 if better == "lower" else -1
        return masking_changes(self.model, [lambda masks: sign * self._value(metric, masks)], gone)

    def pruning_curve(self, metric: Metric, order: Sequence[Head], steps: int = 10) -> list[Pruned]:
        """A metric with ever fewer heads, from all of them to none of ``order``, nothing trained again."""
        every = pruning_steps(self.model, steps, order)
        return [Pruned(kept, self._value(metric, masks)) for kept, masks in every]

    def _value(self, metric: Metric, masks: Masks) -> float:
        with self.masked(masks), evaluating(self.model), torch.no_grad():
            return float(metric())

    # ---- removing

    def remove(self, gone: Sequence[Head], batch: Arguments | None = None) -> Removed:
        """Take heads out for good: the output is that of the masked model, with fewer parameters and in less time.

        Args:
            gone: heads (module, number from 1); those that are left close up.
            batch: to measure the time of a forward pass with, and to try the model where its configuration does not say
                what it reads.

        Raises:
            DataError: a head is not there, its module is no longer as transformers made it, or the architecture's code
                does not work with fewer heads. The model stays as it was.
        """
        masks = masks_without(self.model, gone)
        parameters, seconds = self._parameters(), self._seconds(batch)
        numbers = {place: [i for i, m in enumerate(mask, 1) if not m] for place, mask in masks.items()}
        with evaluating(self.model):
            remove_if_right(self.model, numbers, batch)
        return Removed(parameters, self._parameters(), seconds, self._seconds(batch))

    def _parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @torch.no_grad()
    def _seconds(self, batch: Arguments | None) -> float | None:
        if batch is None:
            return None
        seconds = []
        with evaluating(self.model):
            for _ in range(ROUNDS + 1):  # the first warms up
                began = time.perf_counter()
                self.model(**batch)
                if next(self.model.parameters()).is_cuda:
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - began)
        return median(seconds[1:])


def attach(model: nn.Module) -> ModelHeads:
    """Record, measure, mask and remove the heads of a transformers model; raises as `attach_heads`."""
    return ModelHeads(model)


def mean_loss(model: nn.Module, batches: Sequence[Arguments]) -> Metric:
    """The metric that is the mean of the batches' losses, of the model as it is when it is called."""

    def measure() -> float:
        with evaluating(model), torch.no_grad():
            return sum(float(model(**batch).loss) for batch in batches) / len(batches)

    return measure


def copied(model: nn.Module) -> nn.Module:
    """A copy with parameters of its own; of an attached model, one that is attached by itself."""
    return copy.deepcopy(model)


def head_table(found: Iterable[tuple[AttentionSpec, HeadComparison]]) -> pd.DataFrame:
    """A row for each head by module and number: its measures, of pairs the mean over the module's other heads."""
    import pandas as pd  # here: nothing else needs it

    rows = []
    for spec, measured in found:
        pairs = {name: getattr(measured, name) for name in BY_PAIR}
        others = spec.heads - 1 or math.nan  # one head has no pairs
        means = {name: (pair.sum(1) - pair.diagonal()) / others for name, pair in pairs.items()}
        columns = {name: getattr(measured, name) for name in BY_HEAD} | means
        for head in range(spec.heads):
            row = {name: float(column[head]) for name, column in columns.items()}
            rows.append({"module": spec.place, "head": head + 1, **row})
    return pd.DataFrame(rows).set_index(["module", "head"])


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """While open, the model is in evaluation mode; then every module as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
