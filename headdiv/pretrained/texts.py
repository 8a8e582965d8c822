"""Text for Hugging Face models: batches, and a tokeniser that needs no download."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.core.errors import DataError
from headdiv.pretrained.attached import transformers

MASKED_SHARE = 0.15  # of the tokens that a masked language model has to predict, as in BERT


def small_tokenizer(texts: Sequence[str], words: int = 1000) -> Any:
    """A byte-level BPE tokeniser trained on these texts: 0 is padding, 1 begins and 2 ends a text, 3 is the mask.

    Args:
        texts: to train on.
        words: most entries of its vocabulary; the 256 bytes and the special tokens are always among them.
    """
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=words, special_tokens=list(special.values()), show_progress=False)
    return transformers().PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **special)


def text_batches(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    size: int = 16,
    length: int = 128,
    labels: bool = True,
) -> Iterator[dict[str, Tensor]]:
    """Arguments of forward passes over texts, in their order; padded on the right. The tokeniser stays as it is.

    Labels are the next tokens of a decoder, 15 % of the tokens of a masked language model (drawn from the texts'
    position, and masked in the input), and the targets of an encoder-decoder. A model without such an output has none.

    Args:
        model: its device, task and longest input are used.
        tokenizer: the model's.
        texts: one for each example.
        targets: of an encoder-decoder; by default the texts themselves.
        size: examples of a batch.
        length: tokens after which a text is cut.
        labels: with labels; an encoder-decoder always has its decoder's input.

    Raises:
        DataError: a text has no token, there are more or fewer targets than texts, or a batch has nothing to predict.
    """
    if targets is None:
        targets = texts
    elif len(targets) != len(texts):
        raise DataError(f"targets: found {len(targets)}, expected one for each of {len(texts)} texts")
    positions = getattr(model.config, "max_position_embeddings", length)
    for name, module in model.named_modules():  # RoBERTa counts from the index after padding's
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            positions -= module.padding_idx + 1
    length = min(length, positions)
    options = {"truncation": True, "max_length": length}
    # Padding is masked, so any word will do where there is no padding token.
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id)
    padding = next((token for token in candidates if token is not None), 0)
    special = torch.tensor(tokenizer.all_special_ids, dtype=torch.long)
    for first in range(0, len(texts), size):
        words = tokenizer(list(texts[first : first + size]), **options)["input_ids"]
        if [] in words:
            raise DataError(f"texts: number {first + words.index([]) + 1} has no token; expected one at least")
        ids, real = _padded(words, padding)
        batch = {"input_ids": ids, "attention_mask": real.long()}
        if model.config.is_encoder_decoder:
            answers = tokenizer(text_target=list(targets[first : first + size]), **options)["input_ids"]
            answer, real_answer = _padded(answers, -100)
            batch["decoder_input_ids"] = _decoder_input(model, answer, padding)
            batch["decoder_attention_mask"] = real_answer.long()
            answer = answer if model.can_generate() else None
        elif model.can_generate():
            answer = ids.masked_fill(~real, -100)
        elif (
            getattr(model, "get_output_embeddings", lambda: None)() is not None and tokenizer.mask_token_id is not None
        ):
            generator = torch.Generator().manual_seed(first)
            ordinary = real & ~torch.isin(ids, special)
            chosen = ordinary & (torch.rand(ids.shape, generator=generator) < MASKED_SHARE)
            chosen |= ~chosen.any(1, keepdim=True) & ordinary & (ordinary.cumsum(1) == 1)  # else its first word
            if labels and not chosen.any():
                raise DataError(f"texts: number {first + 1} and those after it have no word to predict")
            answer = ids.masked_fill(~chosen, -100)
            if labels:
                batch["input_ids"] = ids.masked_fill(chosen, tokenizer.mask_token_id)
        else:
            answer = None
        if labels and answer is not None:
            batch["labels"] = answer
        yield {name: x.to(model.device) for name, x in batch.items()}


def _decoder_input(model: nn.Module, answer: Tensor, padding: int) -> Tensor:
    """What a decoder reads to write ``answer`` (B, N): a first token, and all of the answer but its last."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return model.prepare_decoder_input_ids_from_labels(answer)
    config = model.config  # of a model without an output of words
    starts = getattr(config, "decoder_start_token_id", None), getattr(config, "bos_token_id", None)
    start = next((token for token in starts if token is not None), padding)
    read = nn.functional.pad(answer[:, :-1], (1, 0), value=start)
    return read.masked_fill(read == -100, padding)


def _padded(texts: list[list[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Words of texts, padded on the right, and which of them are real: (B, N) each."""
    rows = [torch.tensor(text, dtype=torch.long) for text in texts]
    real = [torch.ones(len(row), dtype=torch.bool) for row in rows]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, batch_first=True, padding_value=padding), pad(real, batch_first=True)
