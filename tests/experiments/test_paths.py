"""Where a profile's results lie: in the project's folder, and nobody else's; and what a project begins with."""

import re
import shutil

import pytest
from conftest import EXPERIMENT

from headdiv.companion import paths
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.project import write_project
from headdiv.core.errors import ConfigError

PAGE = re.compile(r"docs/[\w-]+\.md")
LINK = re.compile(r"\]\(([^)\s#]+)")


def test_a_profile_outside_config_does_not_share_the_results_of_its_namesake(project, monkeypatch):
    home = project.home
    monkeypatch.chdir(home)
    (home / "a").mkdir()
    for name in ("tiny", "own"):
        shutil.copy(home / "config" / "tiny.yaml", home / "a" / f"{name}.yaml")
    with pytest.raises(ConfigError) as error:
        run_config("a/tiny.yaml", EXPERIMENT, "baseline", 1)
    assert str(error.value) == (
        f"a/tiny.yaml: {home}/results/tiny holds the results of {home}/config/tiny.yaml; "
        "give one of the two another name"
    )
    assert paths.results("config/tiny.yaml") == paths.results("tiny") == home / "results" / "tiny"
    for profile in ("a/own.yaml", str(home / "a" / "own.yaml"), "../../a/own.yaml"):
        assert paths.results(profile) == home / "results" / "own"


@pytest.mark.parametrize("name", ["50% a#b", "größe", ".."])
def test_a_name_that_would_break_links_and_commands_is_refused(folder, name):
    with pytest.raises(ConfigError, match=r"a profile's name is made of letters .* found"):
        paths.results(f"config/{name}.yaml")
    assert paths.results("config/a-B_2.30.yaml") == folder / "results" / "a-B_2.30"


def test_a_project_has_every_page_that_its_files_link_to_but_stored_results(tmp_path):
    written = write_project(tmp_path)
    assert write_project(tmp_path) == []  # what is there stays
    linked = {page for file in written for page in PAGE.findall(file.read_text())}
    for file in (file for file in written if file.suffix == ".md"):
        links = (file.parent / address for address in LINK.findall(file.read_text()) if "://" not in address)
        linked |= {path.resolve().relative_to(tmp_path).as_posix() for path in links}
    assert [name for name in linked if not (tmp_path / name).exists() and not name.startswith("results/")] == []
    assert {f"docs/{file.name}" for file in written if file.parent.name == "docs"} <= linked
