"""Where a corpus comes from: what is refused before anything runs, which files are found, what names a folder."""

import hashlib
import os

import pytest
import yaml

from headdiv.core import paths
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import read_json
from headdiv.core.settings import Source
from headdiv.data import cache as sources
from headdiv.data import registry as data_sets
from headdiv.data.cache import (
    check_data,
    content_key,
    locate,
    prepared,
    prepared_folder,
    read_statistics,
)
from headdiv.data.config import DataConfig, LMData, SummarisationData, TranslationData

SPLITS = ("train", "valid", "test")
TOY = DataConfig(name="toy")


def refusal(call, *args):
    with pytest.raises((ConfigError, DataError)) as found:
        call(*args)
    assert "\n" not in str(found.value)
    return type(found.value), str(found.value)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A project's folder with nothing in it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HEADDIV_HOME", str(folder))
    monkeypatch.delenv("HEADDIV_MIRROR", raising=False)
    return folder


def everywhere(told):
    """The same for every split."""
    return dict.fromkeys(SPLITS, told)


def entry(content):
    """A registry's entry of a data set: by split, its number of examples and its files' bytes by role."""
    address = "http://127.0.0.1:9"
    told = {"title": "Pets", "licence": "none", "licence_source": address, "homepage": address, "citation": "none"}
    files, splits = {}, {}
    for split, (count, roles) in content.items():
        splits[split] = {"count": count, "files": {role: f"{split}.{role}" for role in roles}}
        for role, data in roles.items():
            name = f"{split}.{role}"
            files[name] = {"url": f"{address}/{name}", "sha256": hashlib.sha256(data).hexdigest()}
    return told | {"files": files, "splits": splits}


PETS = {
    "train": (3, {"en": b"1\n2\n3\n", "de": b"4\n5\n6\n"}),
    "val": (1, {"en": b"1\n", "de": b"4\n"}),
    "test": (1, {"en": b"7\n", "de": b"8\n"}),
}


@pytest.fixture
def pets(home, monkeypatch):
    """The data set 'pets', whose files lie in a mirror; its entry, to be changed."""
    (home / "mirror" / "pets").mkdir(parents=True)
    for split, (_, roles) in PETS.items():
        for role, data in roles.items():
            (home / "mirror" / "pets" / f"{split}.{role}").write_bytes(data)
    registry = {"pets": entry(PETS)}
    monkeypatch.setattr(
        data_sets,
        "load_registry",
        lambda: {name: data_sets.DataSet.model_validate(told) for name, told in registry.items()},
    )
    monkeypatch.setenv("HEADDIV_MIRROR", str(home / "mirror"))
    return registry["pets"]


def own(home, names=("a", "b", "c"), **told):
    """One's own files, one a split, each with its name in it."""
    for name in names:
        (home / name).write_text(name)
    return SummarisationData(**{"name": "mine", "files": dict(zip(SPLITS, names, strict=True))} | told)


# ---- what is there


@pytest.mark.parametrize(
    ("told", "roles", "message"),
    [
        ({"name": "pest"}, [], "data.name: 'pest' is not known; there are: pets, toy"),
        ({"valid": "valid"}, [], "data.valid: 'valid' is not known; there are: test, train, val"),
        ({"test": "test_2016"}, [], "data.test: 'test_2016' is not known; there are: test, train, val"),
        ({}, ["fr"], "data.name: 'pets' has no file for 'fr' in split 'train'; there are: de, en"),
        ({}, ["en", "x|y"], "data.name: 'pets' has no file for 'x|y' in split 'train'; there are: de, en"),
    ],
)
def test_what_a_data_set_does_not_have_is_named(pets, told, roles, message):
    config = DataConfig(**{"name": "pets", "valid": "val"} | told)
    assert refusal(check_data, config, roles) == (ConfigError, message)


@pytest.mark.parametrize(
    ("config", "roles", "message"),
    [
        (SummarisationData(name="toy", files={}), [],
         "data.name: 'toy' is generated; with 'files' give another name"),
        (SummarisationData(name="mine", files={}), [], "data.files: 'train' is not known; there are: none"),
        (SummarisationData(name="mine", files={"train": "a", "test": "c"}), [],
         "data.valid: 'valid' is not known; there are: test, train"),
        (SummarisationData(name="mine", files={"train": "a", "dev": "c"}, valid="dev"), [],
         "data.test: 'test' is not known; there are: dev, train"),
        (SummarisationData(name="mine", files=everywhere("a")), ["archive"],
         "data.name: 'mine' has no file for 'archive' in split 'train'; there are: examples"),
        (TranslationData(name="mine", files={s: {"en": "a", "fr": "b"} for s in SPLITS}), ["de"],
         "data.name: 'mine' has no file for 'de' in split 'train'; there are: en, fr"),
        (TranslationData(name="mine", files={"train": {"de": "a"}, "valid": {}, "test": {"de": "a"}}), ["de"],
         "data.name: 'mine' has no file for 'de' in split 'valid'; there are: none"),
    ],
)  # fmt: skip
def test_what_is_missing_of_ones_own_files_is_named(home, config, roles, message):
    assert refusal(check_data, config, roles) == (ConfigError, message)


def test_ones_own_files_need_not_be_there_yet(home):
    """That is asked when they are read: a profile may speak of data that another machine has."""
    check_data(SummarisationData(name="mine", files=everywhere("nowhere")), ["examples"])
    check_data(LMData(name="mine", files=everywhere(["a", "b*"]), epoch_tokens=1), ["examples|archive"])


def test_a_mistake_is_named_with_its_file_and_line(home):
    path = home / "p.yaml"
    path.write_text(yaml.safe_dump({"here": {"data": {"name": "pest"}}}))
    found = refusal(check_data, DataConfig(name="pest"), [], ("here", "data"), Source(path))
    assert found[1].startswith(f"{path}, line 3: here.data.name: 'pest' is not known; there are: ")


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
        "valid": ["other.txt", "s3.json", "s2.txt"],  # as they are told, patterns in their place
        "test": ["s1.txt", "s2.txt"],
    }


def test_splits_that_a_run_does_not_use_need_not_be_there(home):
    config = own(home)
    more = config.model_copy(update={"files": config.files | {"more": "nowhere"}})
    assert locate(more) == locate(config)
    other = config.model_copy(update={"files": config.files | {"dev": "a"}, "valid": "dev"})
    assert locate(other)["valid"] == {"examples": [home / "a"]}


@pytest.mark.parametrize("path", ["$NOT_SET_ANYWHERE/a", "${NOT_SET_ANYWHERE}/a", "a$NOT_SET_ANYWHERE"])
def test_a_variable_that_is_not_set_is_named(home, monkeypatch, path):
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    config = own(home).model_copy(update={"files": {"train": "a", "valid": path, "test": "c"}})
    message = f"data.files.valid: {path!r} names an environment variable that is not set"
    for call in (locate, content_key, prepared_folder):
        assert refusal(call, config) == (ConfigError, message)


@pytest.mark.parametrize("path", ["nowhere", "no*where", "a/b"])
def test_a_file_that_is_not_there_is_named(home, path):
    config = own(home).model_copy(update={"files": {"train": "a", "dev": path, "test": "c"}, "valid": "dev"})
    message = f"data.files.dev: {home}/{path}: no such file"
    for call in (locate, content_key, prepared_folder):
        assert refusal(call, config) == (DataError, message)
    many = LMData(name="mine", files={"train": ["a", path], "valid": ["a"], "test": ["a"]}, epoch_tokens=1)
    assert refusal(locate, many) == (DataError, message.replace("files.dev", "files.train"))


# ---- names


def test_the_key_of_the_toy_changes_with_what_generates_it(home, monkeypatch):
    found = {content_key(TOY)}
    assert content_key(TOY.model_copy(update={"examples": 5})) in found  # that is told by the configuration
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
        content_key(TranslationData(name="mine", files=everywhere(languages)))
        for languages in ({"en": "a", "de": "b"}, {"en": "b", "de": "a"}, {"en": "a", "fr": "b"})
    }
    assert len(keys) == 3
    lists = [LMData(name="mine", files=everywhere(told), epoch_tokens=1) for told in (["a", "b"], ["b", "a"])]
    assert content_key(lists[0]) != content_key(lists[1])


def test_a_folder_is_named_by_all_that_decides(home):
    config = own(home)
    before = prepared_folder(config)
    assert before.parent == home / "data" / "prepared"
    assert before.name.startswith("mine-")
    assert prepared_folder(config.model_copy()) == before
    changes = {
        "examples": 31,
        "strict": False,
        "lowercase": True,
        "min_frequency": 2,
        "document_words": 9,
        "summary_words": 9,
        "files": config.files | {"more": "a"},
    }
    found = {before} | {prepared_folder(config.model_copy(update={key: value})) for key, value in changes.items()}
    (home / "c").write_text("changed")
    found.add(prepared_folder(config))
    assert len(found) == len(changes) + 2
    assert prepared_folder(config.model_copy(update={"name": "other"})).name.startswith("other-")


# ---- preparing


class Interrupted(Exception):
    """It fails."""


def test_a_corpus_is_prepared_once(home):
    config, calls = own(home), []

    def prepare(given, folder):
        calls.append(given)
        (folder / "words").write_text("text")
        assert not prepared_folder(config).exists()
        return {"train": {"examples": 3}, "refused": {}}

    folder = prepared(config, prepare)
    assert folder == prepared_folder(config) == prepared(config, prepare)
    assert calls == [config]
    assert sorted(path.name for path in folder.iterdir()) == ["corpus.json", "words"]
    assert read_statistics(folder) == read_json(folder / "corpus.json") == {"train": {"examples": 3}, "refused": {}}
    (home / "a").write_text("changed")
    assert prepared(config, prepare) != folder
    assert len(calls) == 2


def test_an_empty_folder_is_not_a_prepared_corpus(home):
    """Snakemake makes the folders of a job's outputs before the job runs."""
    config = own(home)
    folder = prepared_folder(config)
    folder.mkdir(parents=True)
    (folder / "words").write_text("of an earlier try")
    assert prepared(config, lambda given, here: {"train": 1}) == folder
    assert [path.name for path in folder.iterdir()] == ["corpus.json"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("told", [Interrupted, {"share": float("nan")}])
def test_what_fails_leaves_nothing(home, told):
    config = own(home)

    def prepare(given, folder):
        (folder / "words").write_text("half")
        if told is Interrupted:
            raise Interrupted
        return told

    with pytest.raises((Interrupted, ValueError)):
        prepared(config, prepare)
    assert list(prepared_folder(config).parent.iterdir()) == []
