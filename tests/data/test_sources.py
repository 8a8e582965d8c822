"""Where a corpus comes from: what is refused before anything runs, which files are found, what names a folder."""

import hashlib
import os

import numpy as np
import pytest
from faulty import data_set, exactly
from safetensors.numpy import save_file

from headdiv.companion import paths
from headdiv.companion.data import cache, public_sets
from headdiv.companion.data.cache import content_key, locate, prepared, prepared_folder, read_statistics
from headdiv.companion.data.data_config import DataConfig
from headdiv.companion.tasks.lm import LMData
from headdiv.companion.tasks.summarisation import SummarisationData
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import ConfigError, DataError

SPLITS = ("train", "valid", "test")
TOY = DataConfig(name="toy")
PETS = {"train": (3, b"1\n2\n3\n"), "val": (1, b"1\n"), "test": (1, b"7\n")}  # by split: examples, a file's content


@pytest.fixture
def pets(folder, monkeypatch):
    """The data set 'pets', whose files lie in a mirror; its entry, to be changed."""
    (folder / "mirror" / "pets").mkdir(parents=True)
    files, splits = {}, {}
    for split, (count, content) in PETS.items():
        splits[split] = count, {language: f"{split}.{language}" for language in ("en", "de")}
        for name in splits[split][1].values():
            (folder / "mirror" / "pets" / name).write_bytes(content)
            files[name] = {"url": f"http://127.0.0.1:9/{name}", "sha256": hashlib.sha256(content).hexdigest()}
    entry = data_set(files, splits)
    monkeypatch.setattr(public_sets, "load_registry", lambda: {"pets": public_sets.DataSet.model_validate(entry)})
    monkeypatch.setenv("HEADDIV_MIRROR", str(folder / "mirror"))
    return entry


def own(folder, names=("a", "b", "c"), **options):
    """One's own files, one a split, each with its name in it."""
    for name in names:
        (folder / name).write_text(name)
    return SummarisationData(**{"name": "mine", "files": dict(zip(SPLITS, names, strict=True))} | options)


def changed(config, **options):
    return config.model_copy(update=options)


# ---- where the files are


def test_a_public_data_set_is_a_named_case_of_ones_own_files(pets):
    home = paths.raw() / "pets"
    found = locate(DataConfig(name="pets", valid="val"))
    names = {"train": "train", "valid": "val", "test": "test"}
    assert found == {key: {role: [home / f"{name}.{role}"] for role in ("en", "de")} for key, name in names.items()}
    files = {split: {role: f"data/raw/pets/{split}.{role}" for role in ("en", "de")} for split in PETS}
    assert locate(TranslationData(name="mine", valid="val", files=files)) == found
    assert (home / "train.de").read_bytes() == PETS["train"][1]


def test_paths_may_hold_variables_and_the_users_folder(folder, tmp_path, monkeypatch):
    for name in ("x", "y", "z"):
        (tmp_path / name).write_text(name)
    for variable, value in (("PETS_FOLDER", tmp_path), ("PETS_NAME", "y"), ("HOME", tmp_path)):
        monkeypatch.setenv(variable, str(value))
    files = {"train": "$PETS_FOLDER/x", "valid": "${PETS_FOLDER}/$PETS_NAME", "test": "~/z"}
    found = locate(SummarisationData(name="mine", files=files))
    assert [found[split]["examples"] for split in SPLITS] == [[tmp_path / "x"], [tmp_path / "y"], [tmp_path / "z"]]


def test_patterns_are_expanded_in_the_order_of_names(folder):
    for name in ("s10.txt", "s2.txt", "s1.txt", "other.txt", "s3.json"):
        (folder / name).write_text("")
    files = {"train": ["s*.txt"], "valid": ["other.txt", "s*.json", "s2.txt"], "test": ["s[12].txt"]}
    located = locate(LMData(name="mine", files=files, epoch_tokens=1))
    assert {split: [path.name for path in found["examples"]] for split, found in located.items()} == {
        "train": ["s1.txt", "s10.txt", "s2.txt"],
        "valid": ["other.txt", "s3.json", "s2.txt"],  # as they are listed, patterns in their place
        "test": ["s1.txt", "s2.txt"],
    }


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_file_of_two_splits_is_named(folder, split):
    config = own(folder)
    with exactly(f"{folder}/a is both train and {split}"):
        prepared(changed(config, files=config.files | {split: "a"}), None)
    (folder / "copy").write_text("a")
    with exactly(f"{folder}/a is both train and {split} (as {folder}/copy)"):
        prepared(changed(config, files=config.files | {split: "copy"}), None)
    prepared(changed(config, files=config.files | {"valid": "c"}), lambda *_: {})  # validation is the test set


@pytest.mark.parametrize("path", ["$NOT_SET/a", "${NOT_SET}/a", "nowhere", "no*where"])
def test_a_variable_that_is_not_set_and_a_file_that_is_not_there_are_named(folder, path):
    config = changed(own(folder), files={"train": "a", "dev": path, "test": "c"}, valid="dev")
    error, what = DataError, f"{folder}/{path}: no such file"
    if "$" in path:
        error, what = ConfigError, f"{path!r} names an environment variable that is not set; `export NOT_SET=…` sets it"
    for call in (locate, prepared_folder):
        with exactly(f"data.files.dev: {what}", error):
            call(config)


# ---- names


def test_the_key_of_the_toy_changes_with_what_generates_it(monkeypatch):
    found = {content_key(TOY)}
    assert content_key(changed(TOY, examples=5)) in found  # that is in the configuration
    for module, name in ((cache.toy, "VERSION"), (cache, "PREPARATION")):
        monkeypatch.setattr(module, name, 1000)
        found.add(content_key(TOY))
    assert len(found) == 3


def test_the_key_of_a_public_data_set_needs_no_file(pets):
    config = DataConfig(name="pets", valid="val")
    before = content_key(config)
    assert not paths.raw().exists()
    locate(config)
    assert content_key(config) == before
    pets["files"]["val.de"]["sha256"] = "0" * 64
    assert content_key(config) != before


def test_the_key_of_ones_own_files_is_their_content_and_their_parts(folder):
    config = own(folder)
    before = content_key(config)
    os.utime(folder / "a", (1, 1))
    unread = changed(config, files=config.files | {"more": "nowhere"})
    assert content_key(config) == content_key(unread) == before
    swapped = changed(config, files={"train": "a", "valid": "c", "test": "b"})
    found = {before, content_key(swapped)}
    for name in "abc":
        (folder / name).write_text(f"{name}!")
        found.add(content_key(config))
        (folder / name).write_text(name)
    assert len(found) == 5
    (folder / "other").mkdir()
    for name in "abc":  # wherever they lie
        (folder / name).rename(folder / "other" / name)
    assert content_key(changed(config, files={s: f"other/{n}" for s, n in config.files.items()})) == before
    languages = ({"en": "a", "de": "b"}, {"en": "b", "de": "a"}, {"en": "a", "fr": "b"})
    own(folder)
    files = [TranslationData(name="mine", files=dict.fromkeys(SPLITS, roles)) for roles in languages]
    assert len(set(map(content_key, files))) == 3


def test_a_folder_is_named_by_all_that_decides(folder):
    config = own(folder)
    before = prepared_folder(config)
    assert before.parent == folder / "data" / "prepared"
    assert before.name.startswith("mine-")
    assert prepared_folder(changed(config, files=config.files | {"more": "a"})) == before
    options = {"examples": 31, "strict": False, "lowercase": True, "min_frequency": 2, "document_words": 9, "name": "x"}
    found = {before} | {prepared_folder(changed(config, **{key: value})) for key, value in options.items()}
    (folder / "c").write_text("changed")
    found.add(prepared_folder(config))
    assert len(found) == len(options) + 2


# ---- preparing


def test_a_corpus_is_prepared_once(folder):
    config, calls = own(folder), []
    prepared_folder(config).mkdir(parents=True)  # Snakemake makes the folders of a job's outputs
    (prepared_folder(config) / "earlier").touch()

    def prepare(given, place):
        calls.append(given)
        (place / "words").write_text("text")
        return {"train": {"examples": 3}, "refused": {}}

    place = prepared(config, prepare)
    assert place == prepared_folder(config) == prepared(config, prepare)
    assert calls == [config]
    assert sorted(path.name for path in place.iterdir()) == ["SHA256SUMS", "corpus.json", "words"]
    assert read_statistics(place) == {"train": {"examples": 3}, "refused": {}}


@pytest.mark.parametrize(
    ("name", "damage"), [("words.safetensors", "flipped"), ("words.safetensors", "cut"), ("corpus.json", "deleted")]
)
def test_a_damaged_corpus_is_prepared_again(folder, caplog, name, damage):
    def prepare(given, place):
        save_file({"words": np.arange(100)}, place / "words.safetensors")
        return {"train": {"examples": 3}, "refused": {}}

    def content():
        return {path.name: path.read_bytes() for path in place.iterdir()}

    place = prepared(own(folder), prepare)
    path, before = place / name, content()
    data = path.read_bytes()
    match damage:
        case "deleted":
            path.unlink()
        case "flipped":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        case "cut":
            path.write_bytes(data[: len(data) // 2])
    killed = place.with_name(f".{place.name}.{1:08x}.tmp")
    killed.mkdir()
    assert prepared(own(folder), prepare) == place
    assert content() == before
    assert not killed.exists()
    (warning,) = (entry.getMessage() for entry in caplog.records)
    assert warning.startswith(str(path))
    assert warning.endswith("; the data is prepared again")
