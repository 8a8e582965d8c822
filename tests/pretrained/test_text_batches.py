"""Batches of text leave the tokeniser as it was."""

import pytest
import torch

import headdiv

pytest.importorskip("transformers")
TEXTS = ["one two three", "one", "three one two one three two one"]


@pytest.mark.parametrize("kind", ["gpt2", "bert", "bart"])
def test_the_tokeniser_stays_as_it_is(kind):
    tokenizer = headdiv.pretrained.small_tokenizer(TEXTS, 300)
    tokenizer.padding_side, tokenizer.pad_token = "left", None
    before = repr(tokenizer), tokenizer(TEXTS)["input_ids"]
    model = headdiv.pretrained.small_model(kind, 300)
    (batch,) = headdiv.pretrained.text_batches(model, tokenizer, TEXTS, length=6)
    assert (repr(tokenizer), tokenizer(TEXTS)["input_ids"]) == before
    lengths = [min(len(tokenizer(text)["input_ids"]), 6) for text in TEXTS]
    assert batch["attention_mask"].sum(1).tolist() == lengths
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    assert torch.equal(batch["attention_mask"].bool(), real)  # on the right
    assert (batch["input_ids"][~real] == tokenizer.eos_token_id).all()
