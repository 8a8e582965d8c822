"""Prepared corpora are what they were, byte for byte: of every toy corpus, of Multi30k, and of the samples."""

import hashlib
import io
import os
from functools import cache

import pytest
import zstandard
from pins import pinned
from small_runs import small_config
from surroundings import enter
from tracked import ROOT

from headdiv.companion.data.cache import prepared_folder
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.tasks import TASKS
from headdiv.core.files import read_json

OWN_COUNTS = ("corpus.json", "SHA256SUMS")  # statistics, of whose means the last digits are the machine's
TOY = {  # by a name of their own: profile and experiment
    "toy translation": ("quick", "deacon/translation"),
    "toy summarisation": ("quick", "deacon/summarisation"),
    "toy qa": ("quick", "deacon/qa"),
    "toy lm": ("quick", "deacon/lm"),
    "toy mlm": ("quick", "moa/mlm"),
}
SMALL_TOY = ("summarisation", "qa")  # which take seconds each in the size above
REAL = {
    "multi30k moses": ("multi30k", "deacon/translation"),
    "multi30k spacy": ("homeostasis-small", "homeostasis/small"),
    "samples translation": ("samples", "deacon/translation"),
    "samples summarisation": ("samples", "deacon/summarisation"),
    "samples qa": ("samples", "deacon/qa"),
    "samples lm": ("samples", "deacon/lm"),
    "samples mlm": ("samples", "moa/mlm"),
    "samples ted": ("samples", "mhr/translation"),
}


@cache
def config_of(profile, experiment):
    """The first configuration of an experiment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADDIV_HOME", str(ROOT))
        config = Runs(profile).configs(experiment)[0]
    return config


def digest(path):
    """The SHA-256 of a file's content, unpacked where it is packed: versions of zstandard pack differently."""
    content = path.read_bytes()
    if path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
    return hashlib.sha256(content).hexdigest()


def rounded(value):
    """Plain data with six digits of every number that is not whole."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def check(name, config):
    """Hold a prepared corpus to its pins: the folder's name, the SHA-256 of its files, the statistics."""
    TASKS[config.kind].load(config.data)
    folder = prepared_folder(config.data)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in OWN_COUNTS]
    digests = {path.relative_to(folder).as_posix(): digest(path) for path in files}
    found = {"folder": folder.name, "sha256": digests, "statistics": read_json(folder / "corpus.json")}
    pins = pinned("prepared.json", name, found)
    assert found["folder"] == pins["folder"]
    assert found["statistics"] == rounded(pins["statistics"])  # first: they say more of a difference than digests do
    assert found["sha256"] == pins["sha256"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name.split()[1] in SMALL_TOY else ()) for name in TOY]
)
def test_toy_corpora(folder, name):
    check(name, config_of(*TOY[name]))


@pytest.mark.parametrize("task", SMALL_TOY)
def test_small_toy_corpora(folder, task):
    check(f"small toy {task}", small_config(task))


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_corpora(mirror, tmp_path, monkeypatch, name):
    enter(monkeypatch, tmp_path)
    monkeypatch.setenv("HEADDIV_MIRROR", os.fspath(mirror))
    check(name, config_of(*REAL[name]))


def test_all_toy_corpora_of_the_default_profile_are_here():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADDIV_HOME", str(ROOT))
        found = {(config.kind, config.data.model_dump_json()) for config in Runs("quick").configs()}
    pinned_here = [config_of(*source) for source in TOY.values()]
    assert found == {(config.kind, config.data.model_dump_json()) for config in pinned_here}
