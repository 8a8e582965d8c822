"""The heads of a Hugging Face model: recorded, measured, masked, ranked, pruned, removed.

heads = headdiv.pretrained.attach(model)
heads.to_frame(batches)  # a row for each head
order = headdiv.pretrained.least_important_first(heads.importance(batches))
heads.pruning_curve(lambda: accuracy(model), order)
heads.remove(order[:6])
heads.detach()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from headdiv.analysis.heads import ModelHeads, evaluating
from headdiv.analysis.masking import Head, masks_without
from headdiv.core.errors import DataError
from headdiv.nn.records import HeadRecord, attention_modules
from headdiv.pretrained.attached import AttachedHeads, Attachment, attach_heads, attachment_of, detach_heads
from headdiv.pretrained.projections import transformers_model
from headdiv.pretrained.removal import remove_heads_checked

Arguments = Mapping[str, Tensor]  # of a forward pass: input_ids, attention_mask, labels, …


class PretrainedHeads(ModelHeads):
    """The heads of an attached model; made by `attach`. Outputs are those of the model alone, to the last bit.

    Batches are arguments of forward passes. Tokens with numbers that are ``special`` are left out of the measures.
    """

    def __init__(self, model: nn.Module) -> None:
        attach_heads(model)
        super().__init__(model)

    @property
    def attachment(self) -> Attachment:
        """The model's attachment; the model may have been detached and attached again."""
        attachment = attachment_of(self.model)
        if attachment is None:
            raise DataError(f"{type(self.model).__name__}: is detached; expected headdiv.pretrained.attach(model) anew")
        return attachment

    @property
    def modules(self) -> list[AttachedHeads]:
        """The heads of every attention module that runs, in the order of a forward pass."""
        inputs = self.attachment.inputs
        return [part for part in attention_modules(self.model) if getattr(part, "inputs", None) is inputs]

    def detach(self) -> None:
        """Leave the model as it was, except for removed heads: see `detach_heads`."""
        detach_heads(self.model)

    def _special(
        self, records: list[HeadRecord], batch: Arguments, special: Sequence[int]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        if not isinstance(batch, Mapping):
            return super()._special(records, batch, special)
        source = batch.get("input_ids")
        target = self._decoder_ids(batch) if self.attachment.config.is_encoder_decoder else source
        masks = {}
        for record in records:
            kind, layout = record.spec.kind, record.layout
            query_ids = source if kind == "encoder" else target
            key_ids = target if kind == "decoder" else source
            sides = ((query_ids, layout.queries), (key_ids, layout.keys))
            # another stack has its own inputs
            fits = all(ids is not None and ids.shape == rows.sentences.shape for ids, rows in sides)
            if special and fits:
                numbers = torch.as_tensor(special, device=query_ids.device)
                masks[record.spec.name] = tuple(torch.isin(ids.flatten()[rows.slots], numbers) for ids, rows in sides)
        embedded = any(batch.get(name) is not None for name in ("inputs_embeds", "decoder_inputs_embeds"))
        unknown_target = target is None and any(record.spec.kind != "encoder" for record in records)
        if special and records and (embedded or unknown_target or not masks):
            return super()._special(records, batch, special)
        return masks

    def _decoder_ids(self, batch: Arguments) -> Tensor | None:
        """What the decoder reads: made from the labels by the model where it is not given."""
        shifted = getattr(transformers_model(self.model), "prepare_decoder_input_ids_from_labels", None)
        if batch.get("decoder_input_ids") is None and batch.get("labels") is not None and shifted is not None:
            return shifted(labels=batch["labels"])
        return batch.get("decoder_input_ids")

    # ---- removing

    def remove(self, removed: Sequence[Head], batch: Arguments | None = None) -> None:
        """Remove heads permanently: the output is that of the masked model, with fewer parameters and in less time.

        Args:
            removed: heads (module, number from 1); the remaining ones are renumbered.
            batch: for trying the model; not needed where it reads tokens alone.

        Raises:
            DataError: a head is not there, its module is no longer as transformers made it, or the architecture's code
                does not work with fewer heads. The model stays as it was.
        """
        with evaluating(self.model):
            remove_heads_checked(self.model, masks_without(self.model, removed), batch)


def attach(model: nn.Module) -> PretrainedHeads:
    """Record, measure, mask and remove the heads of a transformers model; raises as `attach_heads`."""
    return PretrainedHeads(model)
