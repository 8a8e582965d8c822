"""Tokens and back, vocabularies, and scores of text that was tokenised."""

import numpy as np
import pytest
from faulty import put_pairs
from hypothesis import given
from hypothesis import strategies as st
from small_runs import untrained

from headdiv.companion.data.tokenization import subwords
from headdiv.companion.data.tokenization import words as module
from headdiv.companion.data.tokenization.vocabulary import Vocabulary
from headdiv.companion.data.tokenization.words import detokenize, tokenize, tokenize_all
from headdiv.companion.models.batching import END, SPECIALS, UNKNOWN
from headdiv.companion.tasks import TASKS


@pytest.mark.parametrize(
    ("language", "line", "words"),
    [
        ("en", "A man's hat, isn't it?", ["A", "man", "'s", "hat", ",", "isn", "'t", "it", "?"]),
        ("en", "A well-known dog.", ["A", "well", "@-@", "known", "dog", "."]),
        ("en", "Rock & roll <b>", ["Rock", "&", "roll", "<", "b", ">"]),
        ("de", "Ein T-Shirt (blau) für 3,50 Euro.",
         ["Ein", "T", "@-@", "Shirt", "(", "blau", ")", "für", "3,50", "Euro", "."]),
    ],
)  # fmt: skip
def test_words_are_found_by_moses_rules_and_nothing_is_escaped(language, line, words):
    assert tokenize(line, language) == words
    assert tokenize(f"  {line}\n", language) == words
    assert detokenize(words, language) == line.replace(" <b>", " < b >")


LINES = ["A well-known dog.", "Rock & roll <b>", "", "  ", *(f"The {n}-th man's hat, isn't it?" for n in range(40))]


@pytest.mark.slow
def test_all_processors_find_what_one_finds(monkeypatch):
    rules = {"lowercase": True, "split_dashes": False, "fold_late": True}
    monkeypatch.setattr(module, "PARALLEL", 2)
    assert tokenize_all(LINES, "de", **rules) == [tokenize(line, "de", **rules) for line in LINES]


# ---- spaCy's rules


@pytest.mark.parametrize(
    ("language", "line", "words"),
    [
        ("en", "A well-known man isn't here.", ["A", "well", "-", "known", "man", "is", "n't", "here", "."]),
        ("de", "Ein T-Shirt (blau), z.B. für 3,50 Euro.",
         ["Ein", "T-Shirt", "(", "blau", ")", ",", "z.B.", "für", "3,50", "Euro", "."]),
    ],
)  # fmt: skip
def test_words_may_be_found_by_spacy(language, line, words):
    assert tokenize(line, language, tokenizer="spacy") == words
    assert tokenize(line, language, lowercase=True, tokenizer="spacy") == [word.lower() for word in words]


# ---- without loss


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("L’été, c’est 3/4!", ["▁L", "’", "été", ",", "▁c", "’", "est", "▁3", "/", "4", "!"]),
        ("a  “b”\u00a0?", ["▁a", "▁", "▁“", "b", "”", "\u00a0", "?"]),
        ("我爱你。今天", ["▁我爱你", "。", "今天"]),
        ("", []),
    ],
)
def test_words_without_loss_say_where_spaces_stood(line, words):
    assert tokenize(line, "fr", tokenizer="lossless") == words
    assert tokenize(line, "fr", tokenizer="lossless", lowercase=True) == [word.lower() for word in words]


@given(st.text().map(str.strip).filter(lambda line: "▁" not in line))
def test_words_without_loss_are_the_text_again(line):
    words = tokenize(line, "en", tokenizer="lossless")
    assert detokenize(words, "en", tokenizer="lossless") == line
    encoding = subwords.train([words, words], 3)
    assert subwords.join(encoding.encode(words)) == words


def test_a_corpus_of_spacys_words_is_scored_in_them(project):
    run = untrained(project.config(data={"tokenizer": "spacy", "lowercase": True}))
    source, target = run.corpus.test.text[0]
    for text, language, side in ((source, "en", "source"), (target, "de", "target")):
        words = tokenize(text, language, lowercase=True, tokenizer="spacy")
        vocabulary = getattr(run.corpus, side)
        assert getattr(run.corpus.test.pairs, side)[0].tolist() == vocabulary.encode(words).tolist()
    task = TASKS["translation"]
    scores = task.score_lines(run, [line.lower() for line in task.references(run)])
    assert [scores[name]["value"] for name in ("bleu", "chrf", "bleu_tokens")] == pytest.approx([100] * 3)
    assert "; words of spaCy, joined by Moses rules; references joined again: " in scores["bleu"]["signature"]
    assert "spaCy tokens" in scores["bleu_tokens"]["signature"]


# ---- vocabularies


def test_frequent_words_come_first_ties_by_spelling_and_marks_once():
    sentences = [["b", "a", "b"], ["c", "b", "a"], ["d", "é", "d", "<unk>", "</s>"]]
    assert Vocabulary.build(sentences, 2).words == [*SPECIALS, "b", "a", "d"]
    assert Vocabulary.build(sentences, 1).words == [*SPECIALS, "b", "a", "d", "c", "é"]


def test_indices_of_words_and_words_of_indices():
    vocabulary = Vocabulary([*SPECIALS, "b", "a"])
    indices = vocabulary.encode(["a", "never seen", "b"])
    assert indices.dtype == np.int32
    assert indices.tolist() == [5, UNKNOWN, 4]
    assert vocabulary.decode(indices) == ["a", "<unk>", "b"]
    assert vocabulary.decode([5, END, 4, 5]) == ["a"]


# ---- text that was tokenised


def test_a_corpus_that_was_tokenised_is_scored_as_text(project):
    parted = [(f"it &apos;s {n} .", f"das ist {n} .") for n in range(4)]
    files = put_pairs(project.home, {"train": parted[::-1], "valid": parted, "test": parted})
    run = untrained(
        project.config(data={"name": "mine", "files": files, "tokenized": True, "held_out": 500, "examples": None})
    )
    assert run.corpus.test.text[0] == ("it's 0.", "das ist 0.")
    scores = TASKS["translation"].score_lines(run, [f"das ist {n}." for n in range(4)])
    assert scores["bleu"]["value"] == pytest.approx(100)
    assert "; references that were tokenised, joined by Moses rules; " in scores["bleu"]["signature"]
