"""The wheel without the repository: built, installed into a fresh environment, used in an empty folder."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv

import pytest
import yaml
from conftest import EXPERIMENT, TINY
from packaging.requirements import Requirement
from tracked import ROOT, git_files

from headdiv.companion.project import DOCS

pytestmark = pytest.mark.slow


def run(*command, cwd, status=0, **environment):
    environment = {**os.environ, "HEADDIV_DEVICE": "cpu", **environment}
    environment.pop("PYTHONPATH", None)
    environment.pop("HEADDIV_HOME", None)
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def distributions(requirements):
    """Names of all installed distributions that these requirements ask for."""
    asked, found = [(Requirement(text), "") for text in requirements], {}
    while asked:
        requirement, extra = asked.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        new = {"", *requirement.extras} - found.setdefault(name, set())
        found[name] |= new
        children = importlib.metadata.requires(name) or []
        asked += [(Requirement(child), extra) for child in children for extra in new]
    return found


def link(requirements, site):
    """Put what these requirements ask for, and nothing else, into a folder of packages."""
    for name in distributions(requirements):
        for file in importlib.metadata.files(name) or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(importlib.metadata.distribution(name).locate_file(top))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder of packages and Python of an environment with the wheel and what its core needs."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in git_files(untracked=True):
        target = folder / "source" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, folder / "source", cwd=folder)
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    link(needs(site, ""), site)
    return site, python


def metadata_of(site):
    """The installed wheel's distribution."""
    (metadata,) = site.glob("headdiv-*.dist-info")
    return importlib.metadata.Distribution.at(metadata)


def needs(site, extra):
    """What the installed wheel asks for with this extra."""
    asked = [Requirement(text) for text in metadata_of(site).requires]
    return [str(r).split(";")[0] for r in asked if r.marker is None or (extra and r.marker.evaluate({"extra": extra}))]


LIBRARY = """
import importlib.util
import time, torch
began = time.process_time()
import headdiv
from headdiv.gha import gha_inner_loop
headdiv.Trainer, headdiv.MultiheadAttention, headdiv.record_heads, headdiv.masked_heads
for name in ("deacon", "dpp", "mixing", "moa", "rotation", "homeostasis"):
    assert name in headdiv.methods.METHODS
print(time.process_time() - began)
method = headdiv.make_method({"name": "deacon", "architecture": "direct", "m": 2})
model = headdiv.MultiheadAttention(8, 4, method, batch_first=True)
loss = lambda model, x: (model(x, x, x)[0] - x).square()
headdiv.Trainer(model, [torch.randn(2, 3, 8)], loss, method=method, epochs=1, folder="checkpoints").run()

from headdiv import *
from headdiv.analysis import masking, similarity
assert importlib.util.find_spec("headdiv.pretrained") and not hasattr(headdiv, "insrt")
help(headdiv)

@register
class Shrink(Method):
    name = "shrink"
    def required_records(self):
        return "heads"
    def aux_loss(self, model, records, progress, count):
        return records[0].outputs.square().mean()

method = make_method({"name": "shrink"})
model = MultiheadAttention(8, 4, method, batch_first=True)
assert "auxiliary_loss" in Trainer(model, [torch.randn(2, 3, 8)], loss, method=method, epochs=1).run().curve[0]
"""


def test_the_core_needs_no_extra_and_imports_in_a_second_and_a_half_beyond_torch(installed, tmp_path):
    _, python = installed
    said = run(python, "-c", LIBRARY, cwd=tmp_path)
    assert float(re.search(r"^[\d.]+$", said, re.MULTILINE)[0]) < 1.5
    for name in ("click", "pandas", "scipy", "matplotlib", "snakemake", "jupyterlab"):
        run(python, "-c", f"import {name}", cwd=tmp_path, status=1)
    for command in ([python, "-m", "headdiv"], [python.parent / "headdiv"]):
        said = run(*command, "params", EXPERIMENT, cwd=tmp_path, status=2)
        assert said == "headdiv: click is not installed; this needs pip install 'headdiv[pipeline]'\n"


HEADS = """
import torch
from transformers import BertConfig, BertForMaskedLM
from headdiv import insert, pretrained
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
model = BertForMaskedLM(BertConfig(vocab_size=50, **sizes))
insert(model, {"name": "mixing", "start": 0.0})
print(len(pretrained.attach(model).to_frame([{"input_ids": torch.arange(4, 34).view(3, 10)}])), "heads")
pretrained.Trainer, pretrained.HeadTraining
"""


def test_with_hf_the_heads_of_models_of_transformers_are_measured(installed, tmp_path):
    site, python = installed
    link(needs(site, "hf"), site)
    assert "8 heads" in run(python, "-c", HEADS, cwd=tmp_path)


def test_with_the_pipeline_an_empty_folder_becomes_a_project(installed, tmp_path):
    site, python = installed
    link(needs(site, "pipeline"), site)
    assert "direct-8" in run(python, "-m", "headdiv", "params", EXPERIMENT, cwd=tmp_path)  # of the default profile
    project = tmp_path / "project"
    said = run(python, "-m", "headdiv", "init", project, cwd=tmp_path)
    assert re.search(r"project: \d+ files written", said)
    for shipped in git_files("config", "notebooks", "profiles", "Snakefile", "data/README.md", *DOCS):
        assert (project / shipped.relative_to(ROOT)).read_bytes() == shipped.read_bytes()
    quick = project / "config" / "quick.yaml"
    quick.write_text(yaml.safe_dump(TINY))
    assert " 0 files written" in run(python, "-m", "headdiv", "init", ".", cwd=project)
    assert yaml.safe_load(quick.read_text()) == TINY
    run(python, "-m", "headdiv", "train", EXPERIMENT, "direct-8", cwd=project)
    assert (project / "results" / "quick" / EXPERIMENT / "direct-8" / "seed1" / "metrics.json").is_file()
    said = run(python, "-m", "snakemake", "--cores", "1", "--dry-run", cwd=project)
    assert re.search(r"^run +\d$", said, re.MULTILINE)
