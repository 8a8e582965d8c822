"""Parallel text from files to word indices, once; what frequencies alone are worth."""

import gzip
import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.core import paths
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import read_json
from headdiv.data import registry as data_sets
from headdiv.data.cache import prepared_folder
from headdiv.data.config import TranslationData
from headdiv.data.corpora import seq2seq as module
from headdiv.data.corpora.seq2seq import flatten, load_translation, unflatten, unigram_nll, word_statistics
from headdiv.data.tokenization.words import tokenize
from headdiv.data.toy import translation as toy
from headdiv.nn.batching import END, SPECIALS, UNKNOWN
from headdiv.tasks import TASKS

SPLITS = ("train", "valid", "test")
SIDES = (("source", "en", 0), ("target", "de", 1))
TOY = TranslationData(name="toy", examples=30, held_out=5, min_frequency=1)


def content(corpus):
    """Everything in it, to be compared."""
    splits = [getattr(corpus, name) for name in SPLITS]
    indices = [[a.tolist() for a in side] for s in splits for side in (s.pairs.source, s.pairs.target)]
    return corpus.source.words, corpus.target.words, [s.text for s in splits], indices, corpus.statistics


def read(vocabulary, sentences):
    """Indices as words."""
    return [vocabulary.decode(indices) for indices in sentences]


# ---- the toy


def test_a_toy_corpus_is_prepared_once_and_always_the_same(project, monkeypatch):
    first = load_translation(TOY)
    folder = prepared_folder(TOY)
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(times) == {
        "corpus.json",
        "vocabulary.json",
        "valid.json",
        "test.json",
        *(f"{split}.safetensors" for split in SPLITS),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_prepare_translation", None)  # cannot be called
        assert content(load_translation(TOY)) == content(first)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    assert first.statistics == read_json(folder / "corpus.json")

    monkeypatch.setenv("HEADDIV_HOME", str(project.home / "another"))
    assert content(load_translation(TOY)) == content(first)
    again = prepared_folder(TOY)
    assert again != folder
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}


def test_an_empty_folder_is_not_a_prepared_corpus(project):
    """Snakemake makes the folders of a job's outputs before the job runs."""
    folder = prepared_folder(TOY)
    folder.mkdir(parents=True)
    assert len(load_translation(TOY).train.pairs) == 30
    assert [path for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_indices_say_what_the_text_says(project):
    corpus = load_translation(TOY)
    texts = toy.splits(30, 5, 5, module.TOY_SEED)
    assert [corpus.valid.text, corpus.test.text] == [texts["valid"], texts["test"]]
    assert corpus.train.text == []  # nobody asks for it
    assert corpus.source.words[:4] == corpus.target.words[:4] == SPECIALS
    for name, lines in texts.items():
        pairs = getattr(corpus, name).pairs
        assert len(pairs) == len(lines)
        for side, language, at in SIDES:
            vocabulary, sentences = getattr(corpus, side), getattr(pairs, side)
            for line, words in zip(lines, sentences, strict=True):
                expected = [w if w in vocabulary.words else "<unk>" for w in tokenize(line[at], language)]
                assert vocabulary.decode(words) == expected
                assert words.dtype == np.int32


def test_sizes_and_shares_are_counted(project):
    corpus, texts = load_translation(TOY), toy.splits(30, 5, 5, module.TOY_SEED)
    told = corpus.statistics
    assert set(told) == {"vocabulary", *SPLITS, "refused"}
    assert told["vocabulary"] == {"source": len(corpus.source), "target": len(corpus.target)}
    assert TASKS["translation"].vocabulary(TOY) == (len(corpus.source), len(corpus.target))
    assert told["refused"] == {}
    assert [told[name]["examples"] for name in SPLITS] == [30, 5, 5]
    for name, lines in texts.items():
        for side, language, at in SIDES:
            words = [word for line in lines for word in tokenize(line[at], language)]
            unknown = [word for word in words if word not in getattr(corpus, side).words]
            assert told[name][f"{side}_words"] == len(words)
            assert told[name][f"{side}_unknown_share"] == pytest.approx(len(unknown) / len(words))
            assert bool(unknown) == (told[name][f"{side}_unknown_share"] > 0)
    assert told["train"]["source_unknown_share"] == 0  # min_frequency is 1
    assert told["test"]["source_unknown_share"] > 0


def test_rare_words_and_case(project):
    rare = load_translation(TOY.model_copy(update={"min_frequency": 3}))
    assert len(rare.source) < len(load_translation(TOY).source)
    assert rare.statistics["train"]["source_unknown_share"] > 0
    lower = load_translation(TOY.model_copy(update={"lowercase": True}))
    assert all(word == word.lower() for word in lower.target.words)
    assert lower.test.text == rare.test.text  # the text itself stays


def test_the_toy_has_one_direction(project):
    for key, value, known in (("source", "de", "en"), ("target", "fr", "de")):
        with pytest.raises(ConfigError) as found:
            TASKS["translation"].check_data(TOY.model_copy(update={key: value}))
        assert str(found.value) == f"data.{key}: {value!r} is not known; there are: {known}"


# ---- a registered data set, from a mirror

LINES = {
    "train": [("A dog runs.", "Ein Hund rennt."), ("A dog sits.", "Ein Hund sitzt."), ("Two cats.", "Zwei Katzen.")],
    "val": [("A dog.", "Ein Hund.")],
    "test": [("A cat runs.", "Eine Katze rennt."), ("Two dogs.", "Zwei Hunde.")],
}
PETS = TranslationData(name="pets", min_frequency=1, valid="val")


@pytest.fixture
def pets(project, monkeypatch):
    """A data set 'pets' in the registry whose files lie in a mirror; its entry, to be changed."""
    mirror = project.home / "mirror"
    (mirror / "pets").mkdir(parents=True)
    files, splits = {}, {}
    for split, pairs in LINES.items():
        splits[split] = {"count": len(pairs), "files": {}}
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            name = f"{split}.{language}.gz"
            packed = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
            (mirror / "pets" / name).write_bytes(packed)
            files[name] = {"url": f"http://127.0.0.1:9/{name}", "sha256": hashlib.sha256(packed).hexdigest()}
            splits[split]["files"][language] = name
    address = "http://127.0.0.1:9"
    entry = {"title": "Pets", "licence": "none", "licence_source": address, "homepage": address, "citation": "none"}
    registry = {"pets": entry | {"files": files, "splits": splits}}
    monkeypatch.setattr(
        data_sets,
        "load_registry",
        lambda: {name: data_sets.DataSet.model_validate(told) for name, told in registry.items()},
    )
    monkeypatch.setenv("HEADDIV_MIRROR", str(mirror))
    return registry["pets"]


def test_a_registered_data_set_is_fetched_and_prepared(pets, project):
    corpus = load_translation(PETS)
    assert [corpus.valid.text, corpus.test.text] == [LINES["val"], LINES["test"]]
    assert read(corpus.target, corpus.train.pairs.target) == [tokenize(de, "de") for _, de in LINES["train"]]
    assert sorted(path.name for path in (paths.raw() / "pets").iterdir()) == sorted(pets["files"])
    assert corpus.source.words == [*SPECIALS, ".", "A", "dog", "Two", "cats", "runs", "sits"]
    assert read(corpus.source, corpus.test.pairs.source) == [["A", "<unk>", "runs", "."], ["Two", "<unk>", "."]]


def test_the_other_direction_and_fewer_examples(pets):
    corpus = load_translation(PETS.model_copy(update={"source": "de", "target": "en", "examples": 2}))
    assert read(corpus.source, corpus.train.pairs.source) == [tokenize(de, "de") for _, de in LINES["train"][:2]]
    assert corpus.statistics["train"]["examples"] == 2
    assert corpus.test.text == [(de, en) for en, de in LINES["test"]]
    assert "Zwei" not in corpus.source.words


def test_a_wrong_number_of_pairs_is_an_error_and_leaves_nothing(pets):
    pets["splits"]["train"]["count"] = 4
    with pytest.raises(DataError) as found:
        load_translation(PETS)
    folder = paths.raw() / "pets"
    assert str(found.value) == f"{folder}/train.en.gz and {folder}/train.de.gz: found 3 pairs, expected 4"
    assert not prepared_folder(PETS).exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "pest"}, "data.name: 'pest' is not known; there are: pets, toy"),
        ({"valid": "valid"}, "data.valid: 'valid' is not known; there are: test, train, val"),
        ({"test": "test_2016"}, "data.test: 'test_2016' is not known; there are: test, train, val"),
        ({"source": "fr"}, "data.source: 'fr' is not known; there are: de, en"),
        ({"target": "fr"}, "data.target: 'fr' is not known; there are: de, en"),
    ],
)
def test_what_a_data_set_does_not_have_is_named(pets, changes, message):
    with pytest.raises(ConfigError) as found:
        TASKS["translation"].check_data(PETS.model_copy(update=changes))
    assert str(found.value) == message


# ---- one's own parallel text


@pytest.fixture
def mine(project):
    """Makes the configuration of one's own files: by split, the lines of both languages."""

    def config(splits=LINES, **told):
        files = {}
        for split, pairs in splits.items():
            files[split] = {}
            for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                path = project.home / "mine" / f"{split}.{language}"
                path.parent.mkdir(exist_ok=True)
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                files[split][language] = f"mine/{split}.{language}"
        return TranslationData(**{"name": "mine", "files": files, "min_frequency": 1, "valid": "val"} | told)

    return config


def test_a_public_data_set_is_a_named_case_of_ones_own_files(pets, mine):
    public, own = load_translation(PETS), load_translation(mine())
    assert content(own) == content(public)
    assert prepared_folder(mine()) != prepared_folder(PETS)


def test_ones_own_languages_in_either_direction(mine, project):
    config = mine()
    files = {split: {"x": told["en"], "fr": told["de"]} for split, told in config.files.items()}
    config = config.model_copy(update={"files": files, "source": "fr", "target": "x"})
    TASKS["translation"].check_data(config)
    assert load_translation(config).test.text == [(de, en) for en, de in LINES["test"]]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_language_that_a_split_lacks_is_named(mine, split):
    config = mine()
    del config.files[split]["de"]
    with pytest.raises(ConfigError) as found:
        TASKS["translation"].check_data(config)
    assert str(found.value) == "data.target: 'de' is not known; there are: en"


def test_a_split_that_is_not_told_is_named(mine):
    with pytest.raises(ConfigError) as found:
        TASKS["translation"].check_data(mine(valid="valid"))
    assert str(found.value) == "data.valid: 'valid' is not known; there are: test, train, val"


HOLED = LINES | {
    "train": [*LINES["train"], ("", "Nichts."), ("Nothing.", " "), ("", "")],
    "test": [("Two dogs.", "\u00a0"), *LINES["test"]],
}


def test_an_empty_sentence_is_an_error(mine, project):
    with pytest.raises(DataError) as found:
        load_translation(mine(HOLED))
    assert str(found.value) == (
        f"{project.home}/mine/train.en, line 4: the sentence is empty, expected one on every line; "
        "data.strict: false leaves such records out and counts them"
    )
    assert not prepared_folder(mine(HOLED)).exists()


def test_empty_sentences_may_be_left_out_and_counted(mine):
    corpus, whole = load_translation(mine(HOLED, strict=False)), load_translation(mine())
    reason = "the sentence is empty, expected one on every line"
    assert corpus.statistics["refused"] == {reason: 4}
    assert content(corpus)[:-1] == content(whole)[:-1]
    assert corpus.statistics | {"refused": {}} == whole.statistics


def test_unequal_numbers_of_lines_are_an_error_however_lenient(mine, project):
    config = mine(strict=False)
    (project.home / "mine" / "val.de").write_text("Ein Hund.\nUnd einer mehr.\n")
    with pytest.raises(DataError, match=r"val\.en has 1 lines but .*val\.de has 2, expected equally many$"):
        load_translation(config)


def test_a_changed_file_is_prepared_anew(mine):
    before = load_translation(mine())
    after = load_translation(mine(LINES | {"val": [("Two cats.", "Zwei Katzen.")]}))
    assert before.valid.text != after.valid.text
    assert content(load_translation(mine())) == content(before)


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


def test_frequencies_of_a_corpus_count_the_end_of_every_target(mine):
    corpus = load_translation(mine())
    seen, held_out = (
        [word for sentence in getattr(corpus, name).pairs.target for word in [*sentence.tolist(), END]]
        for name in ("train", "valid")
    )
    expected = literal_unigram_nll(seen, held_out, len(corpus.target))
    assert corpus.statistics["valid"]["unigram_nll"] == pytest.approx(expected)
    assert "unigram_nll" not in corpus.statistics["train"]


# ---- ragged arrays


@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_what_is_laid_flat_comes_back(lengths):
    sentences = [np.arange(n, dtype=np.int32) + 10 * i for i, n in enumerate(lengths)]
    flat, found = flatten(iter(sentences))
    assert found.tolist() == lengths
    assert flat.tolist() == [x for sentence in sentences for x in sentence.tolist()]
    assert [s.tolist() for s in unflatten(flat, found)] == [s.tolist() for s in sentences]


def test_words_without_an_index_are_counted():
    told = word_statistics("source", np.array([UNKNOWN, 4, 5, UNKNOWN, END]))
    assert told == {"source_words": 5, "source_unknown_share": 0.4}
