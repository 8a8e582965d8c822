"""From a data set to word indices, once."""

import gzip
import hashlib

import numpy as np
import pytest

from headdiv import places
from headdiv.config import DataConfig
from headdiv.data import corpus as module
from headdiv.data import fetch
from headdiv.data.batches import SPECIALS
from headdiv.data.corpus import load_corpus, prepared_folder
from headdiv.data.words import tokenize
from headdiv.errors import ConfigError, DataError

TOY = DataConfig(name="toy", pairs=30, held_out_pairs=5, min_frequency=1)


def content(corpus):
    """Everything in it, to be compared."""
    splits = (corpus.train, corpus.valid, corpus.test)
    indices = [[a.tolist() for a in side] for s in splits for side in (s.pairs.source, s.pairs.target)]
    return corpus.source.words, corpus.target.words, [s.text for s in splits], indices


def test_a_toy_corpus_is_prepared_once_and_always_the_same(project, monkeypatch):
    first = load_corpus(TOY)
    folder = prepared_folder(TOY)
    assert folder.parent == project.home / "data" / "prepared"
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(times) == {
        "vocabulary.json",
        *(f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("json", "safetensors")),
    }
    monkeypatch.setattr(module, "_prepare", None)  # cannot be called
    assert content(load_corpus(TOY)) == content(first)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == times

    monkeypatch.undo()
    monkeypatch.setenv("HEADDIV_HOME", str(project.home / "another"))
    assert content(load_corpus(TOY)) == content(first)
    again = prepared_folder(TOY)
    assert again.name == folder.name
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}


def test_an_empty_folder_is_not_a_prepared_corpus(project):
    """Snakemake makes the folders of a job's outputs before the job runs."""
    folder = prepared_folder(TOY)
    folder.mkdir(parents=True)
    assert len(load_corpus(TOY).train.text) == 30
    assert [path for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_indices_say_what_the_text_says(project):
    corpus = load_corpus(TOY)
    assert [len(split.text) for split in (corpus.train, corpus.valid, corpus.test)] == [30, 5, 5]
    assert corpus.source.words[:4] == corpus.target.words[:4] == SPECIALS
    for split in (corpus.train, corpus.test):
        assert len(split.pairs) == len(split.text)
        for side, language, at in (("source", "en", 0), ("target", "de", 1)):
            vocabulary, sentences = getattr(corpus, side), getattr(split.pairs, side)
            for line, words in zip(split.text, sentences, strict=True):
                expected = [w if w in vocabulary.words else "<unk>" for w in tokenize(line[at], language)]
                assert vocabulary.decode(words) == expected
                assert words.dtype == np.int32
    told = corpus.statistics()
    assert told["vocabulary"] == {"source": len(corpus.source), "target": len(corpus.target)}
    assert told["train"]["pairs"] == 30
    assert told["train"]["target_words"] == sum(len(tokenize(pair[1], "de")) for pair in corpus.train.text)
    assert told["train"]["source_unknown_share"] == 0  # min_frequency is 1
    unknown = [w for pair in corpus.test.text for w in tokenize(pair[0], "en") if w not in corpus.source.words]
    assert told["test"]["source_unknown_share"] == pytest.approx(len(unknown) / told["test"]["source_words"])
    assert unknown


def test_rare_words_and_case(project):
    rare = load_corpus(TOY.model_copy(update={"min_frequency": 3}))
    assert len(rare.source) < len(load_corpus(TOY).source)
    assert rare.statistics()["train"]["source_unknown_share"] > 0
    lower = load_corpus(TOY.model_copy(update={"lowercase": True}))
    assert all(word == word.lower() for word in lower.target.words)
    assert lower.test.text == rare.test.text  # the text itself stays


def test_the_folder_is_named_by_all_that_decides(project, monkeypatch):
    base = prepared_folder(TOY)
    assert base.name.startswith("toy-")
    assert prepared_folder(TOY.model_copy()) == base
    changes = {"pairs": 31, "held_out_pairs": 6, "min_frequency": 2, "lowercase": True}
    folders = {prepared_folder(TOY.model_copy(update={key: value})) for key, value in changes.items()}
    monkeypatch.setattr(module, "PREPARATION", 1000)
    folders.add(prepared_folder(TOY))
    monkeypatch.undo()
    monkeypatch.setattr(module.toy, "VERSION", 1000)
    folders.add(prepared_folder(TOY))
    assert len(folders | {base}) == len(changes) + 3


# ---- a registered data set, from a mirror

LINES = {
    "train": [("A dog runs.", "Ein Hund rennt."), ("A dog sits.", "Ein Hund sitzt."), ("Two cats.", "Zwei Katzen.")],
    "val": [("A dog.", "Ein Hund.")],
    "test": [("A cat runs.", "Eine Katze rennt."), ("Two dogs.", "Zwei Hunde.")],
}


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
        fetch, "load_registry", lambda: {name: fetch.DataSet.model_validate(told) for name, told in registry.items()}
    )
    monkeypatch.setenv("HEADDIV_MIRROR", str(mirror))
    return registry["pets"]


PETS = DataConfig(name="pets", min_frequency=1, valid="val")


def test_a_registered_data_set_is_fetched_and_prepared(pets, project):
    corpus = load_corpus(PETS)
    assert [corpus.train.text, corpus.valid.text, corpus.test.text] == list(LINES.values())
    assert sorted(path.name for path in (places.raw() / "pets").iterdir()) == sorted(pets["files"])
    assert corpus.source.words == [*SPECIALS, ".", "A", "dog", "Two", "cats", "runs", "sits"]
    assert [len(words) for words in corpus.test.pairs.source] == [4, 3]
    assert corpus.source.decode(corpus.test.pairs.source[0]) == ["A", "<unk>", "runs", "."]


def test_the_other_direction_and_fewer_pairs(pets):
    corpus = load_corpus(PETS.model_copy(update={"source": "de", "target": "en", "pairs": 2}))
    assert corpus.train.text == [(de, en) for en, de in LINES["train"][:2]]
    assert len(corpus.test.text) == 2
    assert "Zwei" not in corpus.source.words


def test_the_folder_changes_with_the_files(pets):
    before = prepared_folder(PETS)
    pets["files"]["val.de.gz"]["sha256"] = "0" * 64
    assert prepared_folder(PETS) != before


def test_a_wrong_number_of_pairs_is_an_error_and_leaves_nothing(pets):
    pets["splits"]["train"]["count"] = 4
    with pytest.raises(DataError) as found:
        load_corpus(PETS)
    folder = places.raw() / "pets"
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
    for call in (load_corpus, prepared_folder):
        with pytest.raises(ConfigError) as found:
            call(PETS.model_copy(update=changes))
        assert str(found.value) == message


def test_the_toy_corpus_has_one_direction(project):
    with pytest.raises(ConfigError) as found:
        load_corpus(TOY.model_copy(update={"source": "de", "target": "en"}))
    assert str(found.value) == "data.source: 'de' is not known; there are: en"
