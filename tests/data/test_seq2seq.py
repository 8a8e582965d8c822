"""Parallel text from files to word indices, once; what frequencies alone are worth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.data.corpora import seq2seq as module
from headdiv.companion.data.corpora.seq2seq import flatten, load_translation, unflatten, unigram_nll
from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.data.toy import corpora as toy
from headdiv.companion.models.batching import SPECIALS
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import ConfigError

SPLITS = ("train", "valid", "test")
SIDES = (("source", "en", 0), ("target", "de", 1))
TOY = TranslationData(name="toy", examples=30, held_out=5, min_frequency=1)


# ---- the toy


def test_indices_say_what_the_text_says_and_sizes_and_shares_are_counted(project):
    corpus, texts = load_translation(TOY), toy.translation(30, 5, 5, module.TOY_SEED)
    statistics = corpus.statistics
    assert [corpus.train.text, corpus.valid.text, corpus.test.text] == [[], texts["valid"], texts["test"]]
    assert corpus.source.words[:4] == corpus.target.words[:4] == SPECIALS
    assert set(statistics) == {"vocabulary", *SPLITS, "refused"}
    assert statistics["vocabulary"] == {"source": len(corpus.source), "target": len(corpus.target)}
    assert TASKS["translation"].vocabulary(TOY) == (len(corpus.source), len(corpus.target))
    assert statistics["refused"] == {}
    for name, lines in texts.items():
        pairs = getattr(corpus, name).pairs
        assert statistics[name]["examples"] == len(pairs) == len(lines)
        for side, language, at in SIDES:
            vocabulary, sentences = getattr(corpus, side), getattr(pairs, side)
            words = [tokenize(line[at], language) for line in lines]
            known = [[w if w in vocabulary.words else "<unk>" for w in sentence] for sentence in words]
            assert [vocabulary.decode(sentence) for sentence in sentences] == known
            assert {sentence.dtype for sentence in sentences} == {np.dtype(np.int32)}
            count = sum(map(len, words))
            unknown = sum(sentence.count("<unk>") for sentence in known)
            assert statistics[name][f"{side}_words"] == count
            assert statistics[name][f"{side}_unknown_share"] == pytest.approx(unknown / count)
    assert statistics["train"]["source_unknown_share"] == 0 < statistics["test"]["source_unknown_share"]


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


# ---- frequencies alone


def literal_unigram_nll(train, held_out, size):
    """By definition, word by word, with one added to each count."""
    total, seen = 0.0, [1] * size
    for word in train:
        seen[word] += 1
    for word in held_out:
        total -= math.log(seen[word] / (len(train) + size))
    return total / len(held_out)


words = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(train=words, held_out=words, more=st.integers(0, 3))
def test_frequencies_alone_are_worth_what_is_written_out(train, held_out, more):
    found = unigram_nll(np.array(train), np.array(held_out), 7 + more)
    assert found == pytest.approx(literal_unigram_nll(train, held_out, 7 + more))


# ---- ragged arrays


@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_what_is_laid_flat_comes_back(lengths):
    sentences = [np.arange(n, dtype=np.int32) + 10 * i for i, n in enumerate(lengths)]
    flat, found = flatten(iter(sentences))
    assert found.tolist() == lengths
    assert flat.tolist() == [x for sentence in sentences for x in sentence.tolist()]
    assert [s.tolist() for s in unflatten(flat, found)] == [s.tolist() for s in sentences]
