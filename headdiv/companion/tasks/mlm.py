"""Masked language modelling: tokens that are hidden from the model, predicted from those before and after them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from headdiv.companion.data.corpora.masking import MaskedCorpus, MaskedStream, load_mlm
from headdiv.companion.data.tokenization.bpe import Bpe
from headdiv.companion.models.batching import IGNORED
from headdiv.companion.models.language_model import MaskedModel, Windows, fill_in, make_windows
from headdiv.companion.tasks.base import Example, Run, Score, held_out_loss, score
from headdiv.companion.tasks.lm import PERPLEXITY_CAPTION, LMData, StreamTask, perplexity, perplexity_curves
from headdiv.core.errors import DataError
from headdiv.core.settings import Settings
from headdiv.training.learner import Losses

MASK_TOKEN = "[MASK]"
# With the space before it: an entry of the encoding begins with the space before its word.
MASK_TOKENS = re.compile(rf" ?{re.escape(MASK_TOKEN)}")
SHOWN_TOKENS = 48  # of a window, as an example


class MLMData(LMData):
    """The same text with tokens hidden from the model; defaults are BERT's."""

    mask_share: float = Field(0.15, gt=0, le=1, description="of the tokens: those that are to be predicted")
    blank_share: float = Field(0.8, ge=0, le=1, description="of these: read as the mask token…")
    random_share: float = Field(0.1, ge=0, le=1, description="…and read as a random token; the rest as they are")

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> MLMData:
        if self.blank_share + self.random_share > 1:
            raise ValueError(f"random_share: {self.random_share} and blank_share = {self.blank_share} exceed 1")
        return self


class MaskedLanguageModelling(StreamTask):
    """Masked language modelling, scored by perplexity on the tokens that are to be predicted."""

    name = "mlm"
    Data = MLMData
    Decode = Settings  # without keys: each mask token is filled in on its own
    unit = "nats/masked token"
    accuracy = "share of masked tokens that are the likeliest, given all around them"
    unigram = "every masked token by its frequency in the documents that the tokeniser is trained on"
    curves = perplexity_curves("masked token")
    curves_caption = PERPLEXITY_CAPTION.format("masked token")
    output = "filled-in text"

    Network, Stream = MaskedModel, MaskedStream
    nothing_to_predict = MASK_TOKEN

    def load(self, config: MLMData) -> MaskedCorpus:
        return load_mlm(config)

    def windows(self, corpus: MaskedCorpus, split: str) -> np.ndarray:
        return corpus.masked[split]

    def pack(self, windows: np.ndarray, corpus: MaskedCorpus, data: MLMData) -> Windows:
        return make_windows(windows[:, 0], windows[:, 1], corpus.bpe.end, data.boundaries, causal=False)

    def loss(
        self, model: Callable[[Windows], Tensor], weight: Tensor, batch: Windows, smoothing: float = 0.0
    ) -> Losses:
        """Cross-entropy of the masked tokens; all tokens count as work done."""
        return replace(super().loss(model, weight, batch, smoothing), tokens=len(batch.inputs))

    def decode_token(self, corpus: MaskedCorpus, kind: str, index: int) -> str:
        """A token as text, the mask token as ``[MASK]``."""
        return MASK_TOKEN if index == corpus.bpe.size else super().decode_token(corpus, kind, index)

    def scores(self, run: Run) -> dict[str, Score]:
        """Perplexity and accuracy on the masked tokens of both held-out splits."""
        valid = {"nll": run.point["validation_nll"], "accuracy": run.point["validation_accuracy"]}
        test = held_out_loss(run, "test")
        return _split_scores(valid, run, "valid", "") | _split_scores(test, run, "test", "test_")

    def apply(self, run: Run, text: str, second: str | None = None) -> str:
        """A typed text with each ``[MASK]`` replaced by its likeliest token, all at once.

        A space before ``[MASK]`` is dropped, since a word's token brings its own.

        Raises:
            DataError: there is no ``[MASK]``, or the text is longer than the model's context.
        """
        batch = self.example_batch(run, text)
        filled = self.expect_output(run, batch).targets
        tokens = torch.where(filled == IGNORED, batch.inputs, filled)
        return run.corpus.bpe.decode(tokens[1:].tolist())

    def example_batch(self, run: Run, text: str, second: str | None = None) -> Windows:
        """See `Task`: one window; errors of `encode_masked`."""
        tokens = np.array(encode_masked(run, text))
        windows = np.stack([tokens, np.full_like(tokens, IGNORED)])[None]
        return self.pack(windows, run.corpus, run.config.data).to(run.device)

    def example_texts(self, corpus: MaskedCorpus, split: str, count: int) -> list[Example]:
        """The part of each window that holds its first masked token and belongs to one document, and the whole text."""
        bpe, examples = corpus.bpe, []
        windows = getattr(corpus, split).windows[:, :-1][:, :SHOWN_TOKENS]
        masked = corpus.masked[split][:, 1, :SHOWN_TOKENS] != IGNORED
        for number in np.flatnonzero(masked.any(axis=1))[:count]:
            texts = _with_mask_tokens(windows[number], masked[number], bpe), _decode(windows[number], bpe)
            parts = zip(*(text.split(bpe.decode([bpe.end])) for text in texts), strict=True)  # no end is masked
            text, reference = next(pair for pair in parts if MASK_TOKEN in pair[0])
            examples.append(Example(text.strip(), None, reference.strip()))
        return examples

    def expect_output(self, run: Run, batch: Windows) -> Windows:
        """See `Task`: the likeliest token of each mask token."""
        masked = batch.inputs == run.corpus.bpe.size
        filled = batch.targets.clone()
        filled[masked] = fill_in(run.model, batch.with_targets(batch.targets.masked_fill(masked, 0)))
        return super().expect_output(run, batch.with_targets(filled))


def _split_scores(measures: dict[str, float], run: Run, split: str, prefix: str) -> dict[str, Score]:
    data, counts = run.config.data, run.corpus.statistics[split]
    chosen, blank, random = (f"{100 * share:g} %" for share in (data.mask_share, data.blank_share, data.random_share))
    details = (
        f"{split} split, {counts['predictions']:,} predictions among {counts['tokens']:,} tokens; {chosen} chosen, "
        f"document ends never; of these {blank} read as a blank, {random} as a random token; one choice for all runs"
    )
    return {
        f"{prefix}perplexity": score(perplexity(measures["nll"]), "", f"exp(nats/masked token); {details}"),
        f"{prefix}masked_accuracy": score(
            measures["accuracy"], "%", f"masked tokens that are the likeliest; {details}"
        ),
    }


def encode_masked(run: Run, text: str) -> list[int]:
    """The tokens of a typed text after the token ``end``; each ``[MASK]`` is the entry after the vocabulary's last.

    Raises:
        DataError: the text is longer than the model's context.
    """
    bpe, context = run.corpus.bpe, run.config.data.context
    first, *others = bpe.encode_batch(MASK_TOKENS.split(text))
    tokens = [bpe.end, *first]
    for part in others:
        tokens += [bpe.size, *part]
    if len(tokens) > context:
        raise DataError(f"a text of {len(tokens)} tokens, its beginning counted: expected at most {context}")
    return tokens


def _with_mask_tokens(tokens: np.ndarray, masked: np.ndarray, bpe: Bpe) -> str:
    """The text of a window's tokens, in the form that `MaskedLanguageModelling.apply` reads."""
    first, *others = np.split(tokens, np.flatnonzero(masked))
    text = _decode(first, bpe)
    for part in others:
        space = " " if bpe.decode(part[:1]).startswith(" ") else ""
        text += f"{space}{MASK_TOKEN}{_decode(part[1:], bpe)}"
    return text


def _decode(tokens: np.ndarray, bpe: Bpe) -> str:
    return bpe.decode(tokens[tokens != IGNORED])
