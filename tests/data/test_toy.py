"""The draws of the toy corpus: the same for a seed, distinct, disjoint, of the promised form and size."""

import hashlib
import re

import pytest

from headdiv.core.errors import ConfigError, DataError
from headdiv.data.toy import VERSION
from headdiv.data.toy import translation as toy
from headdiv.data.toy.grammar import Clause, NounPhrase, Sentence, lexicon
from headdiv.data.toy.translation import generate, splits

VOWELS = tuple("aeiouAEIOU")
SLEEPS = Sentence(Clause(NounPhrase(lexicon().nouns["dog"], "the", adjective="old"), lexicon().verbs["schlafen"]))


@pytest.fixture(scope="module")
def pairs():
    return generate(3000, 11)


def test_same_seed_same_list():
    assert generate(300, 5) == generate(300, 5)
    assert generate(300, 5)[:100] == generate(100, 5)
    assert generate(300, 5) != generate(300, 6)
    assert generate(0, 5) == []


def test_generated_text_belongs_to_the_version():
    """Where this fails on purpose, raise VERSION and write the new digest here."""
    text = "\n".join("\t".join(pair) for pair in generate(500, 1))
    assert (VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == (1, "2e9b733614f30655")


def test_pairs_are_distinct_and_exclude_holds():
    first = generate(500, 2)
    excluded = {en for en, _ in first}
    assert len(excluded) == 500
    again = generate(500, 2, exclude=excluded)
    assert excluded.isdisjoint(en for en, _ in again)


def test_splits_are_disjoint_and_small_sets_stay():
    parts = splits(400, 50, 60, 3)
    assert {name: len(part) for name, part in parts.items()} == {"train": 400, "valid": 50, "test": 60}
    assert len({en for part in parts.values() for en, _ in part}) == 510
    more = splits(800, 50, 60, 3)
    assert (more["valid"], more["test"]) == (parts["valid"], parts["test"])


def test_sizes_of_vocabulary_and_sentences(pairs):
    for side, (least, most) in enumerate([(280, 350), (400, 520)]):
        texts = [pair[side] for pair in pairs]
        words = {word.lower() for text in texts for word in re.findall(r"[\w']+", text)}
        assert least <= len(words) <= most
        lengths = [len(text.split()) for text in texts]
        assert 9 <= sum(lengths) / len(lengths) <= 11
        assert min(lengths) <= 4
        assert 18 <= max(lengths) <= 26
    assert {4, 8, 12, 16, 20} <= {len(en.split()) for en, _ in pairs}


def test_form_of_the_text(pairs):
    for pair in pairs:
        for text in pair:
            assert re.fullmatch(r"[A-ZÄÖÜ][\w', ]*\w\.", text), text
            assert not re.search(r"  | ,|,,|,\S", text), text
    for en, _ in pairs:
        for article, word in re.findall(r"\b([Aa]n?) (\w+)", en):
            sound = word.startswith(VOWELS) != (word in ("honest", "useful"))
            assert (article.lower() == "an") == sound, en


def test_german_is_a_function_of_english():
    seen = {}
    for seed in range(12):
        for en, de in generate(1500, seed):
            assert seen.setdefault(en, de) == de


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate(-1, 0), "toy corpus: the number of pairs is -1, expected 0 or more"),
        (lambda: splits(3, -2, 1, 0), "toy corpus: the number of valid pairs is -2, expected 0 or more"),
    ],
)
def test_negative_numbers_are_refused(call, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        call()


def test_a_grammar_that_runs_out_is_named(monkeypatch):
    monkeypatch.setattr(toy._Draw, "sentence", lambda self: SLEEPS)
    message = "toy corpus: 5 distinct sentence pairs were asked for, but the grammar gave only 1"
    with pytest.raises(DataError, match=f"^{message}$"):
        generate(5, 0)
