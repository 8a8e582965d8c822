"""Where a profile's results lie: in the project's folder, and nobody else's."""

import errno
import re
import shutil
from pathlib import Path

import pytest
from conftest import EXPERIMENT

from headdiv.companion import paths
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.results import record
from headdiv.companion.project import write_project
from headdiv.core.errors import ConfigError, StorageError
from headdiv.core.files import read_json

PAGE = re.compile(r"docs/[\w-]+\.md")


def test_two_profiles_of_one_name_do_not_share_results(finished, tmp_path, monkeypatch):
    home = finished.home
    monkeypatch.chdir(home)
    metrics = read_json(paths.results("tiny") / EXPERIMENT / "baseline" / "seed1" / "metrics.json")
    for folder in ("a", "b"):
        (home / folder).mkdir()
        for name in ("tiny", "own"):
            shutil.copy(home / "config" / "tiny.yaml", home / folder / f"{name}.yaml")
    with pytest.raises(ConfigError) as found:
        run_config("a/tiny.yaml", EXPERIMENT, "baseline", 1)
    assert str(found.value) == (
        f"a/tiny.yaml: {home}/results/tiny holds the results of {home}/config/tiny.yaml; "
        "give one of the two another name"
    )
    assert paths.results("config/tiny.yaml") == paths.results("tiny") == home / "results" / "tiny"
    record(metrics, "a/own.yaml")
    assert paths.results(str(home / "a" / "own.yaml")) == home / "results" / "own"
    with pytest.raises(ConfigError, match=r"b/own.yaml: .* holds the results of .*/a/own.yaml"):
        record(metrics, "b/own.yaml")
    (home / "a" / "own.yaml").unlink()  # moved
    record(metrics, "b/own.yaml")
    assert paths.results("b/own.yaml") == home / "results" / "own"


def test_a_profile_with_the_other_ending_owns_its_results(finished, monkeypatch):
    home = finished.home
    monkeypatch.chdir(home)
    metrics = read_json(paths.results("tiny") / EXPERIMENT / "baseline" / "seed1" / "metrics.json")
    shutil.copy("config/tiny.yaml", "config/own.yml")
    record(metrics, "config/own.yml")
    assert paths.results("own") == paths.results("config/own.yml") == home / "results" / "own"
    shutil.copy("config/tiny.yaml", "config/own.yaml")
    with pytest.raises(ConfigError, match=r"config/own.yaml: .* holds the results of .*/config/own.yml; give one of"):
        record(metrics, "own")
    (home / "config" / "own.yml").unlink()
    record(metrics, "own")


def test_no_name_of_a_profile_leads_out_of_the_project(finished, monkeypatch):
    home, outside = finished.home, finished.home.parent
    metrics = read_json(paths.results("tiny") / EXPERIMENT / "baseline" / "seed1" / "metrics.json")
    monkeypatch.chdir(home)
    shutil.copy(home / "config" / "tiny.yaml", outside / "x.yaml")
    before = sorted(outside.iterdir())
    assert record(metrics, "../../x") == home / "results" / "x" / EXPERIMENT / "baseline" / "seed1" / "metrics.json"
    with pytest.raises(ConfigError, match="without a dot in front"):
        record(metrics, "..")
    assert sorted(outside.iterdir()) == before


@pytest.mark.parametrize("name", ["50% a#b", "my runs", "größe", "a?b", ".hidden", ".."])
def test_a_name_that_would_break_links_and_commands_is_refused(folder, name):
    with pytest.raises(ConfigError) as found:
        paths.results(f"config/{name}.yaml")
    assert str(found.value) == (
        f"config/{name}.yaml: a profile's name is made of letters (a to z), digits, '.', '_' and '-', "
        f"without a dot in front; found {name!r}"
    )
    assert paths.results("config/a-B_2.30.yaml") == folder / "results" / "a-B_2.30"


def test_a_project_on_a_full_disk_has_whole_files_alone(tmp_path, monkeypatch):
    project, write = tmp_path / "project", Path.write_bytes

    def half(path: Path, content: bytes) -> None:
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(StorageError, match=r"environment\.yml: cannot be written"):
            write_project(project)
    assert list(project.iterdir()) == []
    assert all(file.read_bytes() for file in write_project(project))
    assert write_project(project) == []


def test_a_project_has_every_page_of_the_documentation_that_its_files_name(tmp_path):
    written = write_project(tmp_path)
    named = {name for file in written if file.parent.name != "docs" for name in PAGE.findall(file.read_text())}
    assert named | {"docs/appendix.md"} == {
        file.relative_to(tmp_path).as_posix() for file in written if file.parent.name == "docs"
    }
