"""A stored file of a run that cannot be read is named, with the command that makes it anew."""

import json
import math
import shlex

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT

from headdiv.companion import paths
from headdiv.companion.command_line import cli
from headdiv.companion.experiments.results import record, with_results
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.experiments.stored_outputs import FILE
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import read_json, write_json

COMMANDS = (["check"], ["table", EXPERIMENT], ["report"])


@pytest.fixture
def path(finished):
    """The metrics of a run."""
    found = metrics_path("tiny", EXPERIMENT, "baseline", 1)
    record(read_json(found), "tiny")
    return found


def headdiv(*command, profile="tiny"):
    cli([*command, "--profile", profile], standalone_mode=False)


def refusal(*command, profile="tiny"):
    with pytest.raises(HeaddivError) as found:
        headdiv(*command, profile=profile)
    return str(found.value)


def test_damaged_outputs_are_named_and_made_anew_in_a_shell_too(path):
    assert sorted(file.name for file in path.parent.iterdir()) == ["metrics.json", FILE]
    whole = path.with_name(FILE).read_bytes()
    folder = (paths.home() / "config").rename(paths.home() / "my config")
    record(read_json(path), profile := str(folder / "tiny.yaml"))
    path.with_name(FILE).write_bytes(whole[:-8])
    said = refusal("check", profile=profile)
    assert said.startswith(f"{path.with_name(FILE)}: damaged (")
    assert said.endswith(f"`headdiv train {EXPERIMENT} baseline --seed 1 --profile '{profile}'` makes it anew")
    cli(shlex.split(said.split("`")[-2])[1:], standalone_mode=False)
    assert path.with_name(FILE).read_bytes() == whole


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
    for command in COMMANDS:
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


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("scores", "bleu", "value"), "scores.bleu.value: input should be a finite number, found nan"),
        (("curve", 1, "validation_nll"), "curve.1.validation_nll: input should be"),
        (("heads", "measures"), "heads.measures: input should be"),
    ],
)
def test_a_number_that_is_none_is_named_with_its_file_and_the_remedy(path, keys, said):
    content = found = read_json(path)
    for key in keys[:-1]:
        found = found[key]
    found[keys[-1]] = math.nan
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError) as error:
        with_results("tiny")
    assert str(error.value).startswith(f"{path}: {said}")
    assert str(error.value).endswith(
        "`headdiv train deacon/translation baseline --seed 1 --profile tiny` makes it anew"
    )
