"""One list of dependencies: pyproject.toml's, which requirements.lock and environment.yml pin alike."""

import ast
import importlib.metadata
import itertools
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENVIRONMENT = (ROOT / "environment.yml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
ADVICE = "run `make lock` (a new dependency also needs its line in environment.yml)"

EXTRAS = PROJECT["project"]["optional-dependencies"]
EXTRAS.pop("tensorboard")  # which `make venv` leaves to those who want its log

DIRECT = {
    canonicalize_name(requirement.name): requirement
    for requirement in map(
        Requirement,
        itertools.chain(PROJECT["project"]["dependencies"], *EXTRAS.values()),
    )
}
PINS = [Requirement(line) for line in LOCK.splitlines() if line and not line.startswith("#")]
VERSIONS = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in PINS}


def conda_parts():
    """environment.yml's conda packages, and the lines of its pip section."""
    dependencies = yaml.safe_load(ENVIRONMENT)["dependencies"]
    conda = [entry for entry in dependencies if isinstance(entry, str)]
    (pip,) = (entry["pip"] for entry in dependencies if isinstance(entry, dict))
    return conda, pip


def test_every_import_is_declared():
    provided = importlib.metadata.packages_distributions() | {"pydantic_core": ["pydantic"]}  # pydantic's own half
    trees = [ast.parse(path.read_text()) for path in (ROOT / "headdiv").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {name.partition(".")[0] for name in names}
    for module in sorted(imported - set(sys.stdlib_module_names) - {"headdiv"}):
        assert {canonicalize_name(name) for name in provided.get(module, ())} & set(DIRECT), f"{module} is not declared"


def test_lock_holds_exact_pins_only():
    assert PINS
    for pin in PINS:
        (specifier,) = pin.specifier
        assert specifier.operator == "==", f"{pin} is not pinned with =="
        version = Version(specifier.version)  # refuses ==2.*
        assert version.local is None, f"{pin} names a local build"
        assert pin.url is None
        assert not pin.extras


def test_direct_dependencies_are_pinned_within_their_ranges_and_installed_so():
    build = {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["build-system"]["requires"])}
    for name, requirement in {**build, **DIRECT}.items():
        assert name in VERSIONS, f"{name} is in pyproject.toml and not in requirements.lock: {ADVICE}"
        assert Version(VERSIONS[name]) in requirement.specifier, f"{VERSIONS[name]}: {ADVICE}"
        installed = Version(importlib.metadata.version(name)).public
        assert installed == VERSIONS[name], f"{name} {installed} is installed: run `make venv`"


def test_conda_pins_exactly_the_direct_dependencies():
    _, pip = conda_parts()
    assert [line for line in pip if line.startswith("-")] == ["-c requirements.lock", "-e ."]
    pins = [Requirement(line) for line in pip if not line.startswith("-")]
    assert {canonicalize_name(pin.name): str(pin.specifier) for pin in pins} == {
        name: f"=={VERSIONS[name]}" for name in DIRECT
    }, ADVICE
    assert len(pins) == len(DIRECT)
    conda, _ = conda_parts()
    (python,) = (entry.partition("=")[2] for entry in conda if entry.partition("=")[0] == "python")
    assert Version(python) in SpecifierSet(PROJECT["project"]["requires-python"])


@pytest.mark.parametrize("text", [LOCK, ENVIRONMENT], ids=["requirements.lock", "environment.yml"])
def test_no_address_no_index_no_local_path(text):
    found = re.findall(r"\S*://\S*|file:\S*|--?(?:extra-)?index\S*|--find-links|--hash\S*|(?<=\s)/\w\S*| @ \S+", text)
    assert found == []
    assert re.findall(r"\b[\w-]+\.(?:org|com|net|io|dev)\b", text) == []


def test_what_a_checker_would_make_is_there_and_the_container_has_the_locked_packages():
    manifest = yaml.safe_load((ROOT / "codecheck.yml").read_text(encoding="utf-8"))["manifest"]
    assert [entry["file"] for entry in manifest if not (ROOT / entry["file"]).is_file()] == []
    assert "-r requirements.lock" in DOCKERFILE
    assert "://" not in DOCKERFILE
