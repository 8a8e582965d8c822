"""What archives and checkers ask for: the RO-Crate of a profile's results, codecheck.yml, the Dockerfile."""

import json
from pathlib import Path

import pytest
import yaml
from reported import metrics, store_all, write_profile

from headdiv.companion.report.crate import write_crate
from headdiv.core.errors import DataError

ROOT = Path(__file__).parents[2]


def test_a_crate_has_every_file_and_an_action_for_the_pipeline_and_each_training(project, tmp_path):
    write_profile(project, "p")
    profile = project.home / "config" / "p.yaml"
    profile.write_text(f"{profile.read_text()}\nplugins: [code/mine.py]\n")
    (project.home / "code").mkdir()
    (project.home / "code" / "mine.py").write_text("MINE = 1\n")
    (project.home / "Snakefile").write_text("rule all:\n")
    store_all("p", metrics("baseline", 1), metrics("direct-8", 1))
    left = project.home / "results" / "p" / ".report.0123abcd.tmp" / "index.html"
    left.parent.mkdir()
    left.touch()
    entities = {one["@id"]: one for one in json.loads(write_crate("p", tmp_path / "crate").read_text())["@graph"]}
    root = entities["./"]
    assert root["mainEntity"] == {"@id": "Snakefile"}
    assert "https://w3id.org/ro/wfrun/workflow/0.5" in [one["@id"] for one in root["conformsTo"]]
    file = "results/p/deacon/translation/direct-8/seed1/metrics.json"
    assert all((tmp_path / "crate" / one).is_file() for one in (file, "code/mine.py"))
    assert {"@id": "code/mine.py"} in entities["#reproduce-all"]["object"]
    assert not [name for name in entities if ".tmp" in name]
    actions = [one for one in entities.values() if one["@type"] == "CreateAction"]
    assert {action["@id"] for action in actions} == {one["@id"] for one in root["mentions"]}
    trainings = {
        "#deacon/translation/baseline/seed1",
        "#deacon/translation/direct-8/seed1",
        "#deacon/lm/baseline/seed1",
    }
    assert trainings < {action["@id"] for action in actions}  # also where two have one hash
    assert {"@id": file} in entities["#reproduce-all"]["result"]
    assert [one["name"] for one in actions if file in json.dumps(one["result"])] == [
        "reproduce-all",
        "train deacon/translation direct-8, seed 1",
    ]
    with pytest.raises(DataError, match=r"crate: is there already; expected the name of a new folder"):
        write_crate("p", tmp_path / "crate")


def test_what_a_checker_would_make_is_there_and_the_container_has_the_locked_packages():
    manifest = yaml.safe_load((ROOT / "codecheck.yml").read_text())["manifest"]
    assert [entry["file"] for entry in manifest if not (ROOT / entry["file"]).is_file()] == []
    assert "-r requirements.lock" in (ROOT / "Dockerfile").read_text()
