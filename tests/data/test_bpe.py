"""Byte pair encoding: training that repeats, text that survives, and tokenisers of others."""

import json
import tempfile
from pathlib import Path

import pytest
from faulty import fails, put
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.tokenization.bpe import END_TEXT, load_bpe, train_bpe

TEXTS = [f"The {size} lobster of {place} läuft — {n} times.\n" for n, size in enumerate(("old", "young", "blue"))
         for place in ("Crete", "the Black Sea", "Norway", "Ostend")]  # fmt: skip
SIZE = 300
SMALLEST = 257  # entries: one for each byte, and END_TEXT
TRAINED = train_bpe(TEXTS, SIZE)


def loaded(content):
    """The tokeniser of a JSON text, or of a value."""
    with tempfile.TemporaryDirectory() as folder:
        return load_bpe(put(Path(folder) / "own.json", content))


BPE = loaded(TRAINED)


# --- training ---


def test_too_little_text_for_the_size():
    assert loaded(train_bpe(["ab ab cd"], SMALLEST + 1)).size == 258  # the pair ab, seen twice
    with fails("data.vocabulary_size: 259 asked for, but the training text yields 258 entries"):
        train_bpe(["ab ab cd"], 259)


# --- encoding ---


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_every_text_survives(texts):
    encoded = BPE.encode_batch(texts)
    assert [BPE.decode(ids) for ids in encoded] == texts
    assert all(BPE.end not in ids and all(0 <= i < SIZE for i in ids) for ids in encoded)


@given(st.lists(st.sampled_from([END_TEXT, " ", "a", "<|", "\n"])).map("".join))
def test_the_mark_spelled_in_a_text_stays_text(text):
    (ids,) = BPE.encode_batch([text])
    assert BPE.end not in ids
    assert BPE.decode(ids) == text
    assert BPE.decode([0, *ids, 0]) == f"{END_TEXT}{text}{END_TEXT}"


# --- tokenisers of others ---


def without_end(content):
    """The content with another name for the end of a document."""
    content["model"]["vocab"]["<|end|>"] = content["model"]["vocab"].pop(END_TEXT)
    return content


def neox_like():
    """The shape of GPT-NeoX-20B's file: special tokens inside the model's vocabulary, runs of spaces after it."""
    content = json.loads(TRAINED)
    kept = len(content["model"]["merges"]) - 1  # the last merge's entry makes room for <|padding|>
    merges = content["model"]["merges"][:kept]
    words = [word for word, i in sorted(content["model"]["vocab"].items(), key=lambda item: item[1]) if i]
    vocabulary = [END_TEXT, "<|padding|>", *words[: SIZE - 2]]
    mark = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spaces = mark | {"normalized": True, "special": False}
    added = [{"id": i, "content": word} | mark for i, word in enumerate(vocabulary[:2])]
    added += [{"id": SIZE + n, "content": " " * (24 - n)} | spaces for n in range(23)]
    content |= {"added_tokens": added, "normalizer": {"type": "NFC"}}
    content["model"] |= {"vocab": {word: i for i, word in enumerate(vocabulary)}, "merges": merges}
    return content


def test_added_tokens_are_dropped():
    bpe = loaded(neox_like())
    assert (bpe.size, bpe.end) == (SIZE, 0)
    text = f"{' ' * 24}Crete{' ' * 7}<|padding|> {END_TEXT}"
    (ids,) = bpe.encode_batch([text])
    assert max(ids) < SIZE
    assert not {0, 1} & set(ids)
    assert bpe.decode(ids) == text


def test_nothing_is_cut_filled_up_or_put_around():
    content = neox_like()
    content["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None,
                          "pad_id": 1, "pad_type_id": 0, "pad_token": "<|padding|>"}  # fmt: skip
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": END_TEXT, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {END_TEXT: {"id": END_TEXT, "ids": [0], "tokens": [END_TEXT]}},
    }
    assert loaded(content).encode_batch(TEXTS) == loaded(neox_like()).encode_batch(TEXTS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "found no model, expected a tokeniser whose model is of type BPE"),
        (
            {"model": {"type": "BPE", "vocab": {END_TEXT: 0}, "merges": [["a", "b"]]}},
            "not a tokeniser that `tokenizers` can read (",
        ),
        ("{", "line 1: not valid JSON (Expecting property name"),
        ({"model": {"type": "Unigram", "vocab": []}}, "found Unigram, expected a tokeniser whose model is of type BPE"),
        (without_end(neox_like()), f"the BPE model's vocabulary of {SIZE} entries lacks <|endoftext|>"),
    ],
)
def test_what_is_no_usable_tokeniser(content, message):
    with fails(message):
        loaded(content)
