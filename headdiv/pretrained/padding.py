"""Which tokens are real in a forward pass of another library's model: read from the masks its attention gets.

No argument of the model says it as reliably: an input mask may be over samples where attention is over frames, over
text where a second stack is over pictures, over the text before it was cached, or not two-dimensional at all.

Letters for shapes: B batch, N queries, S keys, H heads.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.core.errors import ConfigError, DataError
from headdiv.core.modules import Holder, with_state
from headdiv.core.tracing import NO_PASS, backward_pass
from headdiv.nn.packing import PackedRows, padded_rows
from headdiv.nn.sizes import AttentionSpec

EXCLUDES = -1e4  # what masks add to the scores of keys that are not seen: this, or the least number there is


@dataclass(frozen=True)
class Pass:
    """The arguments of attention in one module."""

    spec: AttentionSpec
    mask: Tensor | None  # (B or 1, H or 1, N or 1, S), False or below `EXCLUDES` where a key is not seen
    shape: tuple[int, int, int]  # B, N, S
    causal: bool  # where there is no mask
    device: torch.device

    def key(self) -> tuple[Any, ...]:
        """Equal for modules with the same real tokens, while the masks exist."""
        return self.spec.kind, id(self.mask), self.shape, self.causal, self.device


@dataclass
class Inputs:
    """What is known about the current forward pass; nothing is kept between passes.

    Attributes:
        passes: by name, of the modules that have run.
        decoder: the last one of a decoder's self-attention.
        labels: (B, N) which tokens of the decoder have an answer or come before one; None: all.
        within: the backward pass in which the model started, see `backward_pass`.
        models: the attached ones. A copy of a part without them, as peft makes it, reads what they are given.
    """

    passes: dict[str, Pass] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], tuple[PackedRows, PackedRows]] = field(default_factory=dict)
    decoder: Pass | None = None
    labels: Tensor | None = None
    within: int = NO_PASS
    models: list[Holder] = field(default_factory=list)

    def __deepcopy__(self, memo: dict[int, Any]) -> Inputs:
        return with_state(self, memo) if self.copied_in(memo) else self

    def copied_in(self, memo: dict[int, Any]) -> bool:
        """Whether one of the models is being copied."""
        return any(id(holder.module) in memo for holder in self.models)

    def read(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook of the model: unless there is a mask, the labels show where a decoder's input ends.

        The input itself does not: collators make it from the labels, and pad it with a word.
        """
        self.forget()
        if not model.config.is_encoder_decoder:
            return
        bound = inspect.signature(model.forward).bind_partial(*args, **kwargs).arguments
        arguments = bound.get("kwargs", {}) | bound
        labels = arguments.get("labels")
        if isinstance(labels, Tensor) and labels.dim() == 2 and arguments.get("decoder_attention_mask") is None:
            self.labels = before_the_end(labels)

    def begin(self) -> None:
        """Begin a forward pass of the model, or of one within it."""
        self.end()
        self.within = backward_pass()

    def end(self, *_: Any) -> None:
        """End the pass: a forward hook of the model and of those within it."""
        self.passes, self.rows, self.decoder = {}, {}, None

    def forget(self, *_: Any) -> None:
        """Forget the labels too: a forward hook of the model."""
        self.end()
        self.labels = None

    @contextlib.contextmanager
    def repeated(self, labels: Tensor | None) -> Iterator[None]:
        """Around layers rerun within a backward pass, as in a forward pass with these labels."""
        saved = dict(vars(self))
        vars(self).update(vars(Inputs(labels=labels, within=backward_pass())))
        try:
            yield
        finally:
            vars(self).update(saved)

    def note(self, spec: AttentionSpec, mask: Tensor | None, q: Tensor, k: Tensor, causal: bool) -> None:
        """Attention with these arguments is about to run."""
        attention = Pass(spec, mask, (len(q), q.shape[2], k.shape[2]), causal, q.device)
        self.passes[spec.name] = attention
        if spec.kind == "decoder":
            self.decoder = attention

    def rows_of(self, name: str) -> tuple[PackedRows, PackedRows]:
        """The real queries and keys of a module that has run.

        Raises:
            DataError: its mask does not have the form of transformers' masks.
        """
        attention = self.passes[name]
        kind = attention.spec.kind
        decoder = self.decoder if kind == "cross" else None
        key = (attention.key(), decoder and decoder.key())
        if key not in self.rows:
            queries, keys = real_tokens(attention)
            if decoder is not None and decoder.shape[:2] == attention.shape[:2]:
                queries, _ = real_tokens(decoder)
            if self.labels is not None and kind != "encoder" and self.labels.shape == queries.shape:
                queries, keys = queries & self.labels, keys & self.labels if keys is queries else keys
            rows = padded_rows(queries)
            self.rows[key] = rows, rows if keys is queries else padded_rows(keys)
        return self.rows[key]

    def refuse_recomputation(self) -> None:
        """Raise the ConfigError for layers that rerun by themselves, when records and padding are gone."""
        if self.within != backward_pass():
            raise ConfigError(
                "layers of the model run again in the backward pass, when records and padding of the forward pass are "
                "gone; expected model.gradient_checkpointing_enable() in place of activation checkpointing by hand"
            )


def before_the_end(labels: Tensor) -> Tensor:
    """(B, N) whether a label counts or comes before one that does: one ignored within a text is not padding."""
    return (labels != -100).flip(1).cumsum(1).flip(1) > 0


def real_tokens(attention: Pass) -> tuple[Tensor, Tensor]:
    """(B, N) for the queries and (B, S) for the keys; the same object where the tokens are the same.

    Where queries are keys, a real one sees itself. Cached keys are real where a query sees them; the last key that any
    query sees is its own, and the keys of the other queries come before it in order.
    """
    B, N, S = attention.shape
    kind, device = attention.spec.kind, attention.device
    same_tokens = kind != "cross" and N == S
    if attention.mask is None:
        real = torch.ones(B, N, dtype=torch.bool, device=device)
        if same_tokens:
            return real, real
        keys = torch.arange(S, device=device).expand(B, S) < (N if attention.causal and 1 < N < S else S)
        return real, keys
    mask = attention.mask
    if mask.dim() != 4 or mask.shape[0] not in (1, B) or mask.shape[2] not in (1, N) or mask.shape[3] < S:
        raise DataError(
            f"{attention.spec.name}: its attention is given a mask of shape {tuple(mask.shape)}; "
            f"expected {(B, 1, N, S)}"
        )
    visible = mask if mask.dtype == torch.bool else mask > EXCLUDES
    visible = visible[..., :S].any(1).expand(B, N, S)
    if same_tokens:
        real = visible.diagonal(dim1=1, dim2=2)
        return real, real
    keys = visible.any(1)
    if kind != "decoder":
        return torch.ones(B, N, dtype=torch.bool, device=device), keys
    order = torch.arange(N, device=device)
    last = (visible * torch.arange(1, S + 1, device=device)).amax(2) - 1  # (B, N)
    own_keys = (last - order).amax().clamp(0, max(S - N, 0)) + order
    return visible.gather(2, own_keys[None, :, None].expand(B, N, 1)).squeeze(2), keys
