"""Parallel text from files to word indices, once; what frequencies alone are worth."""

import math

import numpy as np
import pytest
from faulty import fails, put_pairs
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.corpora.seq2seq import load_translation, unigram_nll
from headdiv.companion.experiments.running import train
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import ConfigError

SPLITS = ("train", "valid", "test")
SIDES = (("source", "en", 0), ("target", "de", 1))
TOY = TranslationData(name="toy", examples=30, held_out=5, min_frequency=1)


# ---- the toy


def test_rare_words_and_case(project):
    rare = load_translation(TOY.model_copy(update={"min_frequency": 3}))
    assert len(rare.source) < len(load_translation(TOY).source)
    assert rare.statistics["train"]["source_unknown_share"] > 0
    lower = load_translation(TOY.model_copy(update={"lowercase": True}))
    assert all(word == word.lower() for word in lower.target.words)
    assert lower.test.text == rare.test.text  # the text itself stays


def test_the_toy_has_one_direction(project):
    for key, value, known in (("source", "de", "en"), ("target", "fr", "de")):
        with pytest.raises(ConfigError, match=f"^data.{key}: found {value!r}, expected the default, {known!r}: "):
            TASKS["translation"].check_data(TOY.model_copy(update={key: value}))


def test_a_batch_holds_the_longest_example(project):
    with pytest.raises(ConfigError, match=r"^train.tokens_per_batch: 3 is below the \d+ tokens of the longest"):
        train(project.config(train={"tokens_per_batch": 3}))


# ---- one's own files


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a b"] * 3, {"examples": 4}, "data.examples: 4 asked for, but the training text has 3"),
        (["a b"] * 3, {"valid_every": 2, "examples": 3}, "data.examples: 3 asked for, but the training text has 2"),
        (["ab"] * 3, {"merges": 2}, "data.merges: 2 asked for, but the training text has pairs for 1"),
        (["a b"] * 3, {"min_frequency": 4}, "data.min_frequency: no word of the training text occurs 4 times; every"),
    ],
)
def test_training_text_that_is_not_enough_is_named(folder, lines, options, message):
    pairs = {"train": [(line, line) for line in lines], "valid": [("a b", "a b")], "test": [("a b", "a b")]}
    with fails(message):
        load_translation(
            TranslationData(**{"name": "mine", "files": put_pairs(folder, pairs), "min_frequency": 1} | options)
        )


def test_a_text_that_is_too_long_is_refused_before_anything_is_trained(folder):
    pairs = {"train": [("a b", "a b c")], "valid": [("a", "b")], "test": [("c", "a " * 4096)]}
    with fails("data.test: found a target of 4,097 tokens, but the model has positions for 4,096; data.max_words"):
        load_translation(TranslationData(name="mine", files=put_pairs(folder, pairs), min_frequency=1))


# ---- frequencies alone


words = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(train=words, held_out=words, more=st.integers(0, 3))
def test_frequencies_alone_are_worth_what_is_written_out(train, held_out, more):
    size = 7 + more
    logs = [math.log((train.count(word) + 1) / (len(train) + size)) for word in held_out]
    assert unigram_nll(np.array(train), np.array(held_out), size) == pytest.approx(-sum(logs) / len(held_out))
