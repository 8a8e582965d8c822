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
from packaging.markers import Marker
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
TARGETS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "platform_system": system,
        "sys_platform": system.lower(),
        "platform_machine": machine,
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for python, (system, machine) in itertools.product(
        ("3.11", "3.12", "3.13"), (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))
    )
]


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


def test_lock_is_sorted_and_names_nothing_twice():
    names = [pin.name for pin in PINS]
    assert len(set(map(canonicalize_name, names))) == len(names)
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert lines == sorted(lines)


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_direct_dependency_is_pinned_within_its_range(name):
    assert name in VERSIONS, f"{name} is in pyproject.toml and not in requirements.lock: {ADVICE}"
    assert Version(VERSIONS[name]) in DIRECT[name].specifier, f"{VERSIONS[name]}: {ADVICE}"


def test_the_build_needs_nothing_that_is_not_pinned():
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert Version(VERSIONS[canonicalize_name(requirement.name)]) in requirement.specifier


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_running_environment_has_the_pinned_version(name):
    installed = Version(importlib.metadata.version(name)).public
    assert installed == VERSIONS[name], f"{name} {installed} is installed: run `make venv`"


def test_lock_is_complete_on_every_platform():
    """What the installed packages ask for, on any Python and platform we name, is pinned and fits."""
    applicable = {
        canonicalize_name(pin.name): [pin.marker is None or pin.marker.evaluate(target) for target in TARGETS]
        for pin in PINS
    }
    asked = [("headdiv", requirement, "") for requirement in DIRECT.values()]
    seen = set()
    while asked:
        parent, requirement, extra = asked.pop()
        name = canonicalize_name(requirement.name)
        if parent == "torch" and name.startswith(("nvidia-", "cuda-", "triton")):
            continue  # left to torch
        wanted = [holds(requirement.marker, target, extra) for target in TARGETS]
        if not any(wanted):
            continue
        assert name in VERSIONS, f"{parent} asks for {requirement}, which requirements.lock lacks: {ADVICE}"
        assert Version(VERSIONS[name]) in requirement.specifier, f"{parent} asks for {requirement}: {ADVICE}"
        for target, here, pinned in zip(TARGETS, wanted, applicable[name], strict=True):
            assert pinned or not here, f"{parent} asks for {requirement} on {target}: LOCK's marker hides it"
        for chosen in ("", *sorted(requirement.extras)):
            if (name, chosen) in seen:
                continue
            seen.add((name, chosen))
            try:
                children = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue  # of another platform, so its own needs are not known here
            asked.extend((name, Requirement(child), chosen) for child in children)


def holds(marker: Marker | None, target: dict, extra: str) -> bool:
    return marker is None or marker.evaluate(target | {"extra": extra})


def test_conda_pins_exactly_the_direct_dependencies():
    _, pip = conda_parts()
    pins = [Requirement(line) for line in pip if not line.startswith("-")]
    assert {canonicalize_name(pin.name): str(pin.specifier) for pin in pins} == {
        name: f"=={VERSIONS[name]}" for name in DIRECT
    }, ADVICE
    assert len(pins) == len(DIRECT)


def test_conda_constrains_everything_else_and_installs_the_package():
    _, pip = conda_parts()
    assert [line for line in pip if line.startswith("-")] == ["-c requirements.lock", "-e ."]


def test_conda_python_satisfies_requires_python():
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
