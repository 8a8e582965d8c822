"""A stored file of a run that is not what was written is named, with the command that makes it anew."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT

from headdiv.companion import paths
from headdiv.companion.command_line import cli
from headdiv.companion.experiments import run_result
from headdiv.companion.experiments.importance import ImportanceResult, record_importance
from headdiv.companion.experiments.results import record, runs_frame
from headdiv.companion.experiments.run_result import RunResult, metrics_path
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import read_json, write_json
from headdiv.core.manifest import MANIFEST, first_damaged

STORED = ["counts.csv", "examples.json", "metrics.json", "model.json", "outputs.json", "tokens.json"]
COMMANDS = (["check"], ["table", EXPERIMENT], ["report"])


@pytest.fixture
def path(finished):
    """The metrics of a run, recorded with checksums."""
    found = metrics_path("tiny", EXPERIMENT, "baseline", 1)
    record(read_json(found), "tiny")
    return found


def flip(file):
    """Change one bit in the middle, as another process finds it; returns what undoes it."""
    run_result._READ.clear()
    whole = file.read_bytes()
    at = len(whole) // 2
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    return lambda: file.write_bytes(whole)


def headdiv(*command, profile="tiny"):
    cli([*command, "--profile", profile], standalone_mode=False)


def refusal(*command, profile="tiny"):
    with pytest.raises(HeaddivError) as found:
        headdiv(*command, profile=profile)
    return str(found.value)


def test_each_damaged_file_is_named_by_whatever_reads_the_run(path):
    headdiv("table", EXPERIMENT)
    assert sorted(file.name for file in path.parent.iterdir()) == [MANIFEST, *STORED]
    for name in (MANIFEST, *STORED):
        undo = flip(path.with_name(name))
        for command in COMMANDS:
            said = refusal(*command)
            if name not in (MANIFEST, "metrics.json"):  # these may no longer be of their form
                assert said.startswith(f"{path.with_name(name)}: damaged, its sha256 is ")
            assert said.startswith(f"{path.parent}/")
            assert said.endswith(f"`headdiv train {EXPERIMENT} baseline --seed 1 --profile tiny` makes it anew")
        undo()
    assert len(runs_frame("tiny"))


def test_what_the_sentence_says_makes_the_file_anew_in_a_shell_too(path):
    whole = path.with_name("counts.csv").read_bytes()
    folder = (paths.home() / "config").rename(paths.home() / "my config")
    record(read_json(path), profile := str(folder / "tiny.yaml"))
    flip(path.with_name("counts.csv"))
    said = refusal("check", profile=profile)
    assert said.endswith(f"`headdiv train {EXPERIMENT} baseline --seed 1 --profile '{profile}'` makes it anew")
    cli(shlex.split(said.split("`")[-2])[1:], standalone_mode=False)
    assert path.with_name("counts.csv").read_bytes() == whole
    RunResult.read(path)


def test_a_file_that_is_gone_is_named_and_one_without_a_checksum_is_taken(path):
    write_json(path.with_name("more.json"), 1)
    RunResult.read(path)
    path.with_name("outputs.json").unlink()
    with pytest.raises(DataError, match=r"outputs\.json: missing; `headdiv train"):
        RunResult.read(path)
    path.with_name(MANIFEST).unlink()  # of runs from before
    RunResult.read(path)
    assert not path.with_name(MANIFEST).exists()


def test_outputs_that_an_evaluation_no_longer_has_are_forgotten(path):
    metrics, outputs = read_json(path), read_json(path)["outputs"]
    record(metrics | {"more_outputs": {"best": outputs}}, "tiny")
    assert "outputs_best.json" in path.with_name(MANIFEST).read_text()
    record(metrics, "tiny")
    RunResult.read(path)


def test_importance_has_a_checksum_of_its_own_and_its_own_command(path):
    score = {"value": 1.0, "unit": "", "signature": ""}
    identity = {key: read_json(path)[key] for key in ("paper", "task", "kind", "variant", "seed", "hash", "config")}
    importance = identity | {"format": 1, "modules": {}, "loss": score, "score": score | {"name": "bleu"}}
    file = record_importance(importance | {"heads": [], "curve": []}, "tiny")
    record(read_json(path), "tiny")
    ImportanceResult.read(file)
    flip(file)
    with pytest.raises(DataError, match=r"importance\.json: damaged, .*`headdiv importance \S+ baseline"):
        RunResult.read(path)


def as_folder(path):
    path.unlink()
    path.mkdir()


def as_loop(path):
    path.unlink()
    path.symlink_to(path)


def with_negative_parameters(path):
    write_json(path, read_json(path) | {"parameters": -5})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (as_folder, "cannot be read (Is a directory)"),
        (as_loop, "cannot be read (Too many levels of symbolic links)"),
        (with_negative_parameters, "parameters: input should be greater than 0, found -5"),
    ],
)
def test_metrics_that_are_none_are_named_and_no_run_is_lost_in_silence(path, caplog, spoil, said):
    spoil(path)
    for command in (*COMMANDS, ["rescore"]):
        assert refusal(*command).startswith(f"{path}: {said}; `headdiv train {EXPERIMENT} baseline")
    judged = CliRunner().invoke(cli, ["claims", "--summary"])
    assert judged.exit_code == 0
    assert any(message.startswith(f"{path}: {said}") for message in caplog.messages)


@pytest.mark.parametrize("note", [b"\xff\xfe\x00", b"", b"own.yamm\n"])
def test_a_damaged_name_of_a_profile_is_one_sentence(project, note):
    folder = project.home / "results" / "mine"
    folder.mkdir(parents=True)
    (folder / paths.OWNER).write_bytes(note)
    assert refusal("table", EXPERIMENT, profile="mine").startswith(f"{folder / paths.OWNER}: found ")
    (folder / paths.OWNER).write_text("moved/own.yaml\n")
    said = refusal("table", EXPERIMENT, profile="mine")
    assert said.startswith(f"{folder / paths.OWNER}: names {project.home}/moved/own.yaml, which is not there")


def test_the_repositorys_stored_runs_are_as_their_checksums_say():
    folders = [path.parent for path in (Path(__file__).parents[2] / "results").glob(f"**/seed*/{MANIFEST}")]
    assert folders
    assert [damaged for folder in folders if (damaged := first_damaged(folder))] == []
