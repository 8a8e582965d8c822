"""Where a corpus comes from: what is refused before anything runs, which files are found, what names a folder."""

import hashlib
import os

import numpy as np
import pytest
import yaml
from faulty import data_set, exactly
from safetensors.numpy import save_file

from headdiv.companion import paths
from headdiv.companion.data import cache as sources
from headdiv.companion.data import public_sets as data_sets
from headdiv.companion.data.cache import check_data, content_key, locate, prepared, prepared_folder, read_statistics
from headdiv.companion.data.data_config import DataConfig, LMData, SummarisationData, TranslationData
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import read_json, write_json
from headdiv.core.settings import Source

SPLITS = ("train", "valid", "test")
TOY = DataConfig(name="toy")


def refusal(call, *args):
    with pytest.raises((ConfigError, DataError)) as found:
        call(*args)
    assert "\n" not in str(found.value)
    return type(found.value), str(found.value)


@pytest.fixture
def home(folder):
    """A project's folder with nothing in it."""
    return folder


PETS = {
    "train": (3, {"en": b"1\n2\n3\n", "de": b"4\n5\n6\n"}),
    "val": (1, {"en": b"1\n", "de": b"4\n"}),
    "test": (1, {"en": b"7\n", "de": b"8\n"}),
}


@pytest.fixture
def pets(home, monkeypatch):
    """The data set 'pets', whose files lie in a mirror; its entry, to be changed."""
    (home / "mirror" / "pets").mkdir(parents=True)
    contents = {f"{split}.{role}": content for split, (_, roles) in PETS.items() for role, content in roles.items()}
    files = {
        name: {"url": f"http://127.0.0.1:9/{name}", "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in contents.items()
    }
    splits = {split: (count, {role: f"{split}.{role}" for role in roles}) for split, (count, roles) in PETS.items()}
    entry = data_set(files, splits)
    for name, content in contents.items():
        (home / "mirror" / "pets" / name).write_bytes(content)
    monkeypatch.setattr(data_sets, "load_registry", lambda: {"pets": data_sets.DataSet.model_validate(entry)})
    monkeypatch.setenv("HEADDIV_MIRROR", str(home / "mirror"))
    return entry


def own(home, names=("a", "b", "c"), **options):
    """One's own files, one a split, each with its name in it."""
    for name in names:
        (home / name).write_text(name)
    return SummarisationData(**{"name": "mine", "files": dict(zip(SPLITS, names, strict=True))} | options)


# ---- what is there


@pytest.mark.parametrize(
    ("options", "roles", "message"),
    [
        ({"name": "pest"}, [], "data.name: 'pest' is not known; did you mean 'pets'?"),
        ({"test": "test_2016"}, [], "data.test: 'test_2016' is not known; there are: test, train, val"),
        ({}, ["fr"], "data.name: 'pets' has no file for 'fr' in split 'train'; there are: de, en"),
    ],
)
def test_what_a_data_set_does_not_have_is_named(pets, options, roles, message):
    config = DataConfig(**{"name": "pets", "valid": "val"} | options)
    assert refusal(check_data, config, roles) == (ConfigError, message)


@pytest.mark.parametrize(
    ("config", "roles", "message"),
    [
        (SummarisationData(name="toy", files={}), [],
         "data.name: 'toy' is generated; with 'files' give another name"),
        (SummarisationData(name="mine", files={"train": "a", "test": "c"}), [],
         "data.valid: 'valid' is not known; there are: test, train"),
        (TranslationData(name="mine", files={s: {"en": "a", "fr": "b"} for s in SPLITS}), ["de"],
         "data.name: 'mine' has no file for 'de' in split 'train'; there are: en, fr"),
    ],
)  # fmt: skip
def test_what_is_missing_of_ones_own_files_is_named(home, config, roles, message):
    assert refusal(check_data, config, roles) == (ConfigError, message)


def test_a_mistake_is_named_with_its_file_and_line(home):
    path = home / "p.yaml"
    path.write_text(yaml.safe_dump({"here": {"data": {"name": "pest"}}}))
    found = refusal(check_data, DataConfig(name="pest"), [], ("here", "data"), Source(path))
    assert found[1].startswith(f"{path}, line 3: here.data.name: 'pest' is not known; known here: ")


# ---- where the files are


def test_a_public_data_set_is_a_named_case_of_ones_own_files(pets, home):
    folder = paths.raw() / "pets"
    found = locate(DataConfig(name="pets", valid="val"))
    assert found == {
        "train": {"en": [folder / "train.en"], "de": [folder / "train.de"]},
        "valid": {"en": [folder / "val.en"], "de": [folder / "val.de"]},
        "test": {"en": [folder / "test.en"], "de": [folder / "test.de"]},
    }
    files = {split: {role: f"data/raw/pets/{split}.{role}" for role in ("en", "de")} for split in PETS}
    assert locate(TranslationData(name="mine", valid="val", files=files)) == found
    for split, (_, roles) in PETS.items():
        assert {role: (folder / f"{split}.{role}").read_bytes() for role in roles} == roles


def test_paths_may_hold_variables_and_the_users_folder(home, tmp_path, monkeypatch):
    for name in ("x", "y", "z"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("PETS_FOLDER", str(tmp_path))
    monkeypatch.setenv("PETS_NAME", "y")
    monkeypatch.setenv("HOME", str(tmp_path))
    files = {"train": "$PETS_FOLDER/x", "valid": "${PETS_FOLDER}/$PETS_NAME", "test": "~/z"}
    found = locate(SummarisationData(name="mine", files=files))
    assert [found[split]["examples"] for split in SPLITS] == [[tmp_path / "x"], [tmp_path / "y"], [tmp_path / "z"]]


def test_patterns_are_expanded_in_the_order_of_names(home):
    for name in ("s10.txt", "s2.txt", "s1.txt", "other.txt", "s3.json"):
        (home / name).write_text("")
    config = LMData(
        name="mine",
        files={"train": ["s*.txt"], "valid": ["other.txt", "s*.json", "s2.txt"], "test": ["s[12].txt"]},
        epoch_tokens=1,
    )
    found = {split: [path.name for path in files["examples"]] for split, files in locate(config).items()}
    assert found == {
        "train": ["s1.txt", "s10.txt", "s2.txt"],
        "valid": ["other.txt", "s3.json", "s2.txt"],  # as they are listed, patterns in their place
        "test": ["s1.txt", "s2.txt"],
    }


def test_splits_that_a_run_does_not_use_need_not_be_there(home):
    config = own(home)
    more = config.model_copy(update={"files": config.files | {"more": "nowhere"}})
    assert locate(more) == locate(config)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_file_of_two_splits_is_named(home, split):
    config = own(home)
    both = config.model_copy(update={"files": config.files | {split: "a"}})
    with exactly(f"data.files: {home}/a is both train and {split}"):
        prepared(both, None)


@pytest.mark.parametrize("path", ["$NOT_SET/a", "${NOT_SET}/a", "nowhere", "no*where"])
def test_a_variable_that_is_not_set_and_a_file_that_is_not_there_are_named(home, path):
    config = own(home).model_copy(update={"files": {"train": "a", "dev": path, "test": "c"}, "valid": "dev"})
    error, what = DataError, f"{home}/{path}: no such file"
    if "$" in path:
        error, what = ConfigError, f"{path!r} names an environment variable that is not set; `export NOT_SET=…` sets it"
    for call in (locate, content_key, prepared_folder):
        assert refusal(call, config) == (error, f"data.files.dev: {what}")


# ---- names


def test_the_key_of_the_toy_changes_with_what_generates_it(home, monkeypatch):
    found = {content_key(TOY)}
    assert content_key(TOY.model_copy(update={"examples": 5})) in found  # that is in the configuration
    for module, name in ((sources.toy, "VERSION"), (sources, "PREPARATION")):
        monkeypatch.setattr(module, name, 1000)
        found.add(content_key(TOY))
    assert len(found) == 3


def test_the_key_of_a_public_data_set_needs_no_file(pets, home):
    config = DataConfig(name="pets", valid="val")
    before = content_key(config)
    assert not paths.raw().exists()
    locate(config)
    assert content_key(config) == before
    pets["files"]["val.de"]["sha256"] = "0" * 64
    assert content_key(config) != before


def test_the_key_of_ones_own_files_is_their_content(home):
    config = own(home)
    before = content_key(config)
    os.utime(home / "a", (1, 1))
    assert content_key(config) == before
    found = {before}
    for name in "abc":
        text = (home / name).read_text()
        (home / name).write_text(f"{text}!")
        found.add(content_key(config))
        (home / name).write_text(text)
    assert content_key(config) == before
    assert len(found) == 4
    copies = own(home, ("x", "y", "z"))
    for name, copy in zip("abc", "xyz", strict=True):
        (home / copy).write_text((home / name).read_text())
    assert content_key(copies) == before  # wherever they lie
    swapped = config.model_copy(update={"files": {"train": "a", "valid": "c", "test": "b"}})
    assert content_key(swapped) != before


def test_the_key_knows_which_file_plays_which_part(home):
    for name in "ab":
        (home / name).write_text(name)
    keys = {
        content_key(TranslationData(name="mine", files=dict.fromkeys(SPLITS, languages)))
        for languages in ({"en": "a", "de": "b"}, {"en": "b", "de": "a"}, {"en": "a", "fr": "b"})
    }
    assert len(keys) == 3


def test_a_folder_is_named_by_all_that_decides(home):
    config = own(home)
    before = prepared_folder(config)
    assert before.parent == home / "data" / "prepared"
    assert before.name.startswith("mine-")
    assert prepared_folder(config.model_copy()) == before
    unread = config.files | {"more": "a"}
    assert prepared_folder(config.model_copy(update={"files": unread})) == before
    changes = {
        "examples": 31,
        "strict": False,
        "lowercase": True,
        "min_frequency": 2,
        "document_words": 9,
        "summary_words": 9,
    }
    found = {before} | {prepared_folder(config.model_copy(update={key: value})) for key, value in changes.items()}
    (home / "c").write_text("changed")
    found.add(prepared_folder(config))
    assert len(found) == len(changes) + 2
    assert prepared_folder(config.model_copy(update={"name": "other"})).name.startswith("other-")


# ---- preparing


def test_a_corpus_is_prepared_once(home):
    config, calls = own(home), []
    prepared_folder(config).mkdir(parents=True)  # Snakemake makes the folders of a job's outputs
    (prepared_folder(config) / "earlier").touch()

    def prepare(given, folder):
        calls.append(given)
        (folder / "words").write_text("text")
        return {"train": {"examples": 3}, "refused": {}}

    folder = prepared(config, prepare)
    assert folder == prepared_folder(config) == prepared(config, prepare)
    assert calls == [config]
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", "corpus.json", "words"]
    assert read_statistics(folder) == read_json(folder / "corpus.json") == {"train": {"examples": 3}, "refused": {}}
    (home / "a").write_text("changed")
    assert prepared(config, prepare) != folder
    assert len(calls) == 2


def test_what_fails_leaves_nothing(home):
    config = own(home)

    def prepare(given, folder):
        (folder / "words").write_text("half")
        return {"share": 1 / 0}

    with pytest.raises(ZeroDivisionError):
        prepared(config, prepare)
    folder = prepared_folder(config)
    assert [path.name for path in folder.parent.iterdir()] == [f".{folder.name}.lock"]


@pytest.mark.parametrize("damage", ["flipped", "cut", "deleted"])
@pytest.mark.parametrize("name", ["words.safetensors", "corpus.json"])
def test_a_damaged_corpus_is_prepared_again(home, caplog, name, damage):
    def prepare(given, folder):
        save_file({"words": np.arange(100)}, folder / "words.safetensors")
        write_json(folder / "references.json", ["Ein Satz", "Noch einer"] * 20)
        return {"train": {"examples": 3}, "refused": {}}

    def content():
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    folder = prepared(own(home), prepare)
    path, before = folder / name, content()
    data = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        flipped = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        path.write_bytes(flipped if damage == "flipped" else data[: len(data) // 2])
    left = [folder.with_name(f".{folder.name}.{number:08x}.tmp") for number in range(2)]
    for killed in left:
        killed.mkdir()
    assert prepared(own(home), prepare) == folder
    assert content() == before
    assert not any(killed.exists() for killed in left)
    (said,) = (entry.getMessage() for entry in caplog.records)
    assert said.startswith(str(path))
    assert said.endswith("; the data is prepared again")
