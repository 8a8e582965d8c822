"""Settings for all tests (hypothesis without a clock, always the same examples) and a project of their own.

No test that uses these fixtures reads or writes the real data/, work/ or results/.
"""

import copy
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start too: several threads wait more than they compute

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and tables would have lines of this length

import pytest
import yaml
from hypothesis import settings
from surroundings import enter

os.fsync = lambda descriptor: None  # no test survives a loss of power, and all would wait for the disk

settings.register_profile("headdiv", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("headdiv")

# Copies of public data, for tests of real data: read now, since a test's own project unsets it.
MIRROR = os.environ.get("HEADDIV_MIRROR") or str(Path(__file__).parents[2] / "shared" / "data")
EXPERIMENT = "deacon/translation"
TINY = {
    "title": "tiny",
    "seeds": [1],
    "threads": 1,
    "experiments": {
        EXPERIMENT: {
            "data": {"name": "toy", "examples": 60, "held_out": 8, "min_frequency": 1},
            "model": {"d_model": 16, "heads": 8, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 16},
            "train": {"epochs": 2, "tokens_per_batch": 170, "learning_rate": 0.01, "warmup_steps": 5},
            "decode": {"beam": 2, "max_length_factor": 1.0, "max_length_offset": 4},
            "variants": ["baseline", "direct-8"],
        }
    },
}
STEPS = 10  # of the tiny profile's training: 5 an epoch


@dataclass(frozen=True)
class Project:
    """A project's folder, to which HEADDIV_HOME points."""

    home: Path

    def write_profile(self, name="tiny", top=None, **sections):
        """config/<name>.yaml: the tiny profile with keys of the experiment's sections replaced."""
        content = copy.deepcopy(TINY) | (top or {})
        experiment = content["experiments"][EXPERIMENT]
        for section, told in sections.items():
            experiment[section] = experiment.get(section, {}) | told if isinstance(told, dict) else told
        return self.write_config(name, yaml.safe_dump(content, sort_keys=False))

    def write_config(self, name, text):
        path = self.home / "config" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    def config(self, variant="baseline", seed=1, **sections):
        """The configuration of a run of the tiny profile, with keys of its sections replaced."""
        from headdiv.companion.experiments.profiles import run_config

        name = self.write_profile("changed", {"seeds": [seed]}, **sections)
        try:
            return run_config(name, EXPERIMENT, variant, seed)
        finally:
            (self.home / "config" / "changed.yaml").unlink()


@pytest.fixture(scope="session")
def prepared_home(tmp_path_factory):
    """A project with its corpus prepared; not to be changed."""
    from headdiv.companion.data.corpora.seq2seq import load_translation

    project = Project(tmp_path_factory.mktemp("prepared"))
    project.write_profile()
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, project.home)
        load_translation(project.config().data)
    return project.home


@pytest.fixture(scope="session")
def finished_home(prepared_home, tmp_path_factory):
    """A project with both variants trained and their metrics recorded; not to be changed."""
    from headdiv.companion.experiments.evaluation import evaluate
    from headdiv.companion.experiments.profiles import Runs
    from headdiv.companion.experiments.results import record
    from headdiv.companion.experiments.running import train

    with pytest.MonkeyPatch.context() as patch:
        home = enter(patch, shutil.copytree(prepared_home, tmp_path_factory.mktemp("finished") / "home"))
        for config in Runs("tiny").configs():
            record(evaluate(train(config)), "tiny")
    return home


@pytest.fixture
def project(prepared_home, tmp_path, monkeypatch):
    """A tiny project of the test's own: profile and prepared corpus, nothing trained."""
    return Project(enter(monkeypatch, shutil.copytree(prepared_home, tmp_path / "project")))


@pytest.fixture
def finished(finished_home, tmp_path, monkeypatch):
    """The same with both variants trained and recorded."""
    return Project(enter(monkeypatch, shutil.copytree(finished_home, tmp_path / "finished")))


@pytest.fixture
def run(finished):
    """Its run that has a PCA layer."""
    from headdiv.companion.experiments.running import load_run

    return load_run(finished.config("direct-8"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty project's folder."""
    return enter(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An empty project's folder that the tests of one file share."""
    with pytest.MonkeyPatch.context() as patch:
        yield enter(patch, tmp_path_factory.mktemp("home"))


@pytest.fixture
def own_methods():
    """Methods that the test registers are known in it alone."""
    from headdiv.methods import METHODS

    known = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(known)


@pytest.fixture
def mirror(monkeypatch):
    """The folder with copies of the public data, which HEADDIV_MIRROR names; skipped where there is none."""
    if not Path(MIRROR, "multi30k").is_dir():
        pytest.skip(f"{MIRROR}: no folder multi30k; HEADDIV_MIRROR should name copies of the public data")
    monkeypatch.setenv("HEADDIV_MIRROR", MIRROR)
    return Path(MIRROR)
