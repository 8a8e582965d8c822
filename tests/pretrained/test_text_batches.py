"""Batches of text leave the tokeniser as it was."""

import pytest
import torch
from attachable import model_of

import headdiv
from headdiv.core.errors import DataError

SENTENCES = ["The old dog sees a cat.", "Two men look at a red house.", "A child plays near water.", "No one."] * 2
TEXTS = ["one two three", "one", "three one two one three two one"]


@pytest.mark.parametrize("kind", ["gpt2", "bert", "bart"])
def test_the_tokeniser_stays_as_it_is(kind):
    tokenizer = headdiv.pretrained.small_tokenizer(TEXTS, 300)
    tokenizer.padding_side, tokenizer.pad_token = "left", None
    before = repr(tokenizer), tokenizer(TEXTS)["input_ids"]
    model = model_of(kind, vocab_size=300)
    (batch,) = headdiv.pretrained.text_batches(model, tokenizer, TEXTS, length=6)
    assert (repr(tokenizer), tokenizer(TEXTS)["input_ids"]) == before
    lengths = [min(len(tokenizer(text)["input_ids"]), 6) for text in TEXTS]
    assert batch["attention_mask"].sum(1).tolist() == lengths
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    assert torch.equal(batch["attention_mask"].bool(), real)  # on the right
    assert (batch["input_ids"][~real] == tokenizer.eos_token_id).all()


@pytest.mark.parametrize(("kind", "name"), [("bart", "BartModel"), ("t5", "T5Model")])
def test_an_encoder_decoder_without_an_output_of_words_reads_what_the_one_with_it_reads(kind, name):
    tokenizer, model = headdiv.pretrained.small_tokenizer(TEXTS, 300), model_of(kind, vocab_size=300)
    (expected,) = headdiv.pretrained.text_batches(model, tokenizer, TEXTS)
    bare = getattr(pytest.importorskip("transformers"), name)(model.config).eval()
    (batch,) = headdiv.pretrained.text_batches(bare, tokenizer, TEXTS)
    assert [*batch] == [key for key in expected if key != "labels"]
    assert all(torch.equal(x, expected[key]) for key, x in batch.items())
    assert len(headdiv.pretrained.attach(bare).to_frame([batch])) == 6 * 4


def test_what_is_masked_are_words_of_the_texts():
    """Neither special tokens nor padding; of a text without a choice its first word."""
    tokenizer, model = tokenizer_with_ends(), model_of("bert", vocab_size=300)
    texts = ["one two", "one", *TEXTS * 5]
    (batch,) = headdiv.pretrained.text_batches(model, tokenizer, texts, size=len(texts))
    labels, special = batch["labels"], torch.tensor(tokenizer.all_special_ids)
    assert not torch.isin(labels, special).any()
    assert (labels != -100).any(1).all()
    assert (labels != -100).sum() < 0.5 * batch["attention_mask"].sum()


def tokenizer_with_ends():
    """With <s> and </s> around each text, as of RoBERTa."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = headdiv.pretrained.small_tokenizer(TEXTS, 300)
    ends = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return tokenizer


@pytest.mark.parametrize("targets", [[], ["one"], [*TEXTS, "two"]], ids=len)
def test_every_text_needs_a_target(targets):
    tokenizer, model = headdiv.pretrained.small_tokenizer(TEXTS, 300), model_of("bart", vocab_size=300)
    with pytest.raises(DataError, match=rf"^targets: found {len(targets)}, expected one for each of 3 texts"):
        next(headdiv.pretrained.text_batches(model, tokenizer, TEXTS, targets, size=2))


def test_texts_without_a_token_or_a_word_to_predict_are_refused():
    tokenizer, model = headdiv.pretrained.small_tokenizer(TEXTS, 300), model_of("bert", vocab_size=300)
    with pytest.raises(DataError, match="texts: number 2 has no token; expected one at least"):
        list(headdiv.pretrained.text_batches(model, tokenizer, ["one", ""]))
    with pytest.raises(DataError, match="texts: number 1 and those after it have no word to predict"):
        list(headdiv.pretrained.text_batches(model, tokenizer_with_ends(), ["", ""]))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_batches_hide_what_a_masked_model_predicts_and_shift_what_a_decoder_writes(kind):
    tokenizer, model = headdiv.pretrained.small_tokenizer(SENTENCES, 300), model_of(kind, vocab_size=300)
    plain = list(headdiv.pretrained.text_batches(model, tokenizer, SENTENCES, size=3, labels=False))
    batches = list(headdiv.pretrained.text_batches(model, tokenizer, SENTENCES, size=3))
    assert [len(batch["input_ids"]) for batch in batches] == [3, 3, 2]
    for batch, without in zip(batches, plain, strict=True):
        assert "labels" not in without
        ids, labels, counted = without["input_ids"], batch["labels"], batch["labels"] != -100
        assert torch.isfinite(model(**batch).loss)
        if kind == "bert":
            assert (batch["input_ids"][counted] == tokenizer.mask_token_id).all()
            assert torch.equal(batch["input_ids"][~counted], ids[~counted])
            assert counted.any(1).all()
        else:
            assert torch.equal(labels.masked_fill(~counted, 0), ids)
    if kind == "t5":
        assert torch.equal(batch["decoder_input_ids"][:, 1:][counted[:, 1:]], labels[:, :-1][counted[:, 1:]])
