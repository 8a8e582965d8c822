"""The command line: what it prints, and one sentence and status 2 for every mistake."""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import EXPERIMENT
from faulty import data_set, put_pairs
from safetensors import SafetensorError

import headdiv
from headdiv.companion.command_line import main
from headdiv.companion.data import public_sets as registry
from headdiv.companion.experiments.running import run_folder
from headdiv.companion.report.figures import KINDS
from headdiv.companion.report.site import build
from headdiv.core.files import read_json


@pytest.fixture
def headdiv_says(monkeypatch, capsys):
    """Run a command in this process: status, stdout, stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["headdiv", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        result = capsys.readouterr()
        return status, result.out, result.err

    return run


def start(*arguments, **environment):
    command = [sys.executable, "-m", "headdiv", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            "params deacon/translatoin --profile tiny",
            "profile tiny: no experiment 'deacon/translatoin'; did you mean 'deacon/translation'?",
        ),
        ("fetch multi40k", "data set 'multi40k' is not known; did you mean 'multi30k'?"),
        (
            "table deacon/translation --profile tiny",
            "{home}/results/tiny/deacon/translation: no stored results; "
            "`snakemake reproduce-all --config profile=tiny` makes them",
        ),
        (
            "figure deacon_figure7 a.png --profile tiny",
            "figure 'deacon_figure7' is not known; did you mean 'deacon_figure6'?",
        ),
        (
            "heads model --text missing.txt",
            "missing.txt: no such file",
        ),
        ("claims --paper mh", "claims of 'mh' are not known; did you mean 'mhr'?"),
        ("prams", "No such command 'prams'. Did you mean 'params'?"),
        ("train a b --seed x", "Invalid value for '--seed': 'x' is not a valid integer."),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(project, headdiv_says, monkeypatch, command, sentence):
    monkeypatch.chdir(project.home)
    before = sorted(project.home.rglob("*"))
    status, out, err = headdiv_says(*command.split())
    assert err == f"headdiv: {sentence.format(home=project.home)}\n"
    assert (status, out) == (2, "")
    assert sorted(project.home.rglob("*")) == before


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_named(project, headdiv_says, monkeypatch, device):
    monkeypatch.setenv("HEADDIV_DEVICE", device)
    status, _, err = headdiv_says("train", EXPERIMENT, "baseline", "--profile", "tiny")
    assert status == 2
    assert err.startswith(f"headdiv: HEADDIV_DEVICE: nothing can be computed on '{device}' here (")
    assert len(err.splitlines()) == 1
    assert not (project.home / "work").exists()


def test_a_file_in_the_place_of_a_folder_is_named(project, headdiv_says, monkeypatch):
    train = ("train", EXPERIMENT, "baseline", "--profile", "tiny")
    (project.home / "results").touch()
    status, _, err = headdiv_says(*train)
    path = project.home / "results" / "tiny" / EXPERIMENT / "baseline" / "seed1" / "outputs.json.xz"
    assert (status, err) == (2, f"headdiv: {path}: cannot be written (Not a directory)\n")
    (project.home / "results").unlink()
    assert headdiv_says(*train)[0] == 0
    home = project.home / "config" / "tiny.yaml"
    monkeypatch.setenv("HEADDIV_HOME", str(home))
    sentence = f"HEADDIV_HOME is set to '{home}', which is not a folder; correct it or unset it"
    assert headdiv_says(*train) == (2, "", f"headdiv: {sentence}\n")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=["of_the_system", "of_safetensors"],
)
def test_a_full_disk_is_named_and_nothing_is_lost(project, headdiv_says, monkeypatch, error):
    def full(*arguments):
        raise error

    train = ("train", EXPERIMENT, "baseline", "--profile", "tiny")
    with monkeypatch.context() as patch:
        patch.setattr("headdiv.training.checkpoints.save_file", full)
        status, _, err = headdiv_says(*train)
    folder = run_folder(project.config())
    path = folder / "checkpoints" / "step5"
    assert (status, err) == (2, f"headdiv: {path}: cannot be written (No space left on device)\n")
    assert list(path.parent.iterdir()) == []
    assert headdiv_says(*train)[0] == 0


def test_a_bug_is_one_sentence_too_and_shown_on_request(project, headdiv_says, monkeypatch):
    def broken(*_):
        raise ValueError("negative\nlength")

    monkeypatch.setattr("headdiv.companion.experiments.parameters.audit", broken)
    sentence = "ValueError, which was not expected: negative length (`headdiv --traceback …` shows where)"
    command = ("params", EXPERIMENT, "--profile", "tiny")
    assert headdiv_says(*command) == (1, "", f"headdiv: {sentence}\n")
    status, _, err = headdiv_says("--traceback", *command)
    assert status == 1
    assert err.startswith("Traceback")
    assert "in broken" in err
    assert err.endswith(f"headdiv: {sentence}\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "headdiv", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "headdiv: No space left on device (while writing)\n")


def test_an_interruption_is_said_in_a_word(project, headdiv_says, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("headdiv.companion.experiments.parameters.audit", interrupted)
    status, out, err = headdiv_says("params", EXPERIMENT, "--profile", "tiny")
    assert (status, out, err.lstrip("\n")) == (130, "", "headdiv: interrupted\n")  # click ends the line with ^C


# ---- what is printed when all is well


def test_prepare_prints_what_was_prepared(project, headdiv_says):
    status, out, err = headdiv_says("prepare", EXPERIMENT, "--profile", "tiny")
    assert (status, err) == (0, "")
    assert json.loads(out)["train"]["examples"] == 60
    assert json.loads(out)["test"]["bleu_references"] == 100


def test_prepare_warns_of_references_that_do_not_come_back(project, headdiv_says, caplog):
    pairs = [("it rains today", "il pleut aujourd’hui"), ("two of them", "deux d’entre eux ici")] * 2
    files = put_pairs(project.home, dict.fromkeys(("train", "valid", "test"), pairs))
    data = {"name": "mine", "files": files, "examples": None, "held_out": 500}
    status, out, _ = headdiv_says("prepare", EXPERIMENT, "--profile", project.write_profile(data=data))
    assert status == 0
    assert f"BLEU of {json.loads(out)['test']['bleu_references']:.2f}: 4 of 4 do not come back" in caplog.text
    assert "aujourd’hui" in caplog.text


def test_train_records_metrics_where_tables_find_them(project, headdiv_says, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    status, out, err = headdiv_says("train", EXPERIMENT, "direct-8", "--profile", "tiny")
    assert (status, err) == (0, "")
    path = project.home / "results" / "tiny" / EXPERIMENT / "direct-8" / "seed1" / "metrics.json"
    lines = out.splitlines()
    assert lines[0].startswith("deacon/translation direct-8 seed 1 epoch 1/2: training loss ")
    assert lines[-1] == str(path)
    metrics = read_json(path)
    assert lines[2].startswith("Training loss  ")  # labels, not keys
    assert len(lines[2:-1]) == len(metrics["scores"])
    assert metrics["hash"] == run_folder(project.config("direct-8")).name
    status, again, err = headdiv_says("train", EXPERIMENT, "direct-8", "--profile", "tiny")
    said, *again = again.splitlines()
    assert said == f"Direct-8, seed 1: already trained, in {run_folder(project.config('direct-8'))}"
    assert again == lines[2:]  # loaded, not trained
    status, out, err = headdiv_says("table", EXPERIMENT, "--profile", "tiny")
    assert (status, err) == (0, "")
    assert "| Direct-8 " in out


class Writer:
    """What `torch.utils.tensorboard.SummaryWriter` is asked for."""

    def __init__(self, folder):
        self.path = f"{folder}.txt"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add_scalar(self, name, value, step):
        with open(self.path, "a") as file:
            print(name, value, step, file=file)

    def flush(self):
        pass


def test_train_logs_each_epoch_for_tensorboard(project, headdiv_says, monkeypatch, tmp_path):
    command = ("train", EXPERIMENT, "baseline", "--profile", "tiny", "--no-scores", "--tensorboard", tmp_path / "log")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    assert headdiv_says(*command)[::2] == (0, "")
    lines = [line.split() for line in (tmp_path / "log.txt").read_text().splitlines()]
    losses = [(float(value), int(step)) for name, value, step in lines if name == "validation_nll"]
    curve = read_json(run_folder(project.config()) / "training.json")["curve"]
    assert losses == [(point["validation_nll"], point["steps"]) for point in curve]


def test_output_can_be_read_without_unicode(finished):
    done = start("table", EXPERIMENT, "--profile", "tiny", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "<unk> as ?" in done.stdout  # ⁇


def test_the_demo_shows_two_models_and_a_picture(project, headdiv_says):
    status, out, err = headdiv_says("demo", "--profile", "tiny")
    assert (status, err) == (0, "")
    assert ["Transformer", "DEACON"] in [line.split() for line in out.splitlines()]
    picture = project.home / "work" / "demo" / "heads.png"
    assert f"picture: {picture}" in out
    assert picture.stat().st_size


@pytest.fixture
def pets(tmp_path, monkeypatch):
    """A data set of the registry, in a mirror."""
    content = {"train.jsonl": b"{}\n{}\n", "test.jsonl": b"{}\n"}
    for name, data in content.items():
        (tmp_path / "pets").mkdir(exist_ok=True)
        (tmp_path / "pets" / name).write_bytes(data)
    files = {
        name: {"url": f"http://127.0.0.1:9/{name}", "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in content.items()
    }
    splits = {
        "train": (2000, {"examples": "train.jsonl"}),
        "test": (1, {"archive": "test.jsonl", "splits": "test.jsonl"}),
    }
    entry = data_set(files, splits)
    monkeypatch.setattr(registry, "load_registry", lambda: {"pets": registry.DataSet.model_validate(entry)})
    monkeypatch.setenv("HEADDIV_MIRROR", str(tmp_path))


def test_fetch_says_what_was_fetched(project, pets, headdiv_says):
    """Of any task: the registry says which file holds what."""
    status, out, err = headdiv_says("fetch", "pets")
    where = project.home / "data" / "raw" / "pets"
    assert (status, out.splitlines()) == (
        0,
        [
            "train: 2,000 examples in train.jsonl",
            "test: 1 examples in test.jsonl",
            f"{where} is complete. Licence: toy",
        ],
    ), err
    assert sorted(path.name for path in where.iterdir()) == ["test.jsonl", "train.jsonl"]


def test_tables_figures_and_report_are_written(finished, headdiv_says, tmp_path, monkeypatch):
    written = [tmp_path / name for name in ("a.csv", "a.md", "a.tex", "a.svg", "a.png")]
    assert headdiv_says("table", EXPERIMENT, *written[:3], "--profile", "tiny") == (0, "", "")
    latex = written[2].read_text(encoding="utf-8")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\toprule") == latex.count(r"\bottomrule") > 0
    assert "±" not in latex
    assert headdiv_says("figure", "deacon_figure6", *written[3:], "--profile", "tiny") == (0, "", "")
    folder = finished.home / "results" / "tiny"
    assert headdiv_says("draw", "deacon", "--profile", "tiny") == (0, "", "")
    for name in ("figures/deacon_figure6", "figures/deacon_translation_curves", "tables/deacon_translation"):
        written += [folder / f"{name}.{kind}" for kind in (("csv", "md") if "tables" in name else ("svg",))]
    assert headdiv_says("draw", "decon", "--profile", "tiny")[::2] == (
        2, "headdiv: decon: profile tiny has no such paper; did you mean 'deacon'?\n"
    )  # fmt: skip
    assert all(path.stat().st_size for path in written)

    monkeypatch.setattr(build, "build_site", shutil.copytree)
    for place, given in ((tmp_path / "report", [tmp_path / "report"]), (folder / "report", [])):
        told = (0, f"report: {place / 'index.html'}\n", "")
        assert headdiv_says("report", *given, "--profile", "tiny") == told
        assert (place / "index.md").is_file()


def test_help_lists_the_options_of_figures(headdiv_says):
    options = {option for kind in KINDS.values() for option in kind.Options.model_fields}
    listed = re.findall(r"`(\w+)`", headdiv_says("figure", "--help")[1])
    assert set(listed) == options - {"how", "definition", "scores", "costs"}  # which the papers' files give


def test_claims_are_printed_counted_and_filtered(project, headdiv_says):
    status, out, err = headdiv_says("claims", "--paper", "dpp", "--verdict", "contradicted", "-v")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "dpp: contradicted (1)"
    assert "160.239" in out
    result = json.loads(headdiv_says("claims", "--paper", "dpp", "--json")[1])
    assert list(result[0]) == ["paper", "place", "value", "unit", "verdict", "ours", "working", "cause", "grade"]
    lines = headdiv_says("claims", "--paper", "dpp", "--summary")[1].splitlines()
    assert ["all", str(len(result)), str(len(result))] in [line.split() for line in lines]


def test_names_are_listed_those_of_the_profile_alone(project, headdiv_says):
    status, out, err = headdiv_says("list", "--profile", "tiny")
    names = dict(line.split(": ") for line in out.splitlines())
    assert (status, err) == (0, "")
    assert names[EXPERIMENT] == "baseline, direct-8"
    assert names["tables"] == EXPERIMENT
    assert "deacon_figure6" in names["figures"].split(", ")
    assert not any(name.startswith("mhr") for name in names["figures"].split(", "))
    assert "deacon" in names["methods"].split(", ")
    assert "multi30k" in names["data sets"].split(", ")


def test_what_the_workflow_alone_calls_is_not_listed(headdiv_says):
    commands = {line.split()[0] for line in headdiv_says("--help")[1].partition("Commands:")[2].splitlines() if line}
    assert {"train", "check", "claims"} <= commands
    assert not commands & {"importance", "prepare"}
    assert headdiv_says("importance", "--help")[0] == 0


# ---- as a process


def test_version_and_module():
    result = start("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.rstrip().endswith(f"version {headdiv.__version__}")


def test_control_characters_of_a_name_do_not_reach_the_terminal(headdiv_says, project):
    status, _, said = headdiv_says("check", "--profile", "\x1b]0;title\x07")
    assert status == 2
    assert r"\x1b]0;title\x07" in said
    assert "\x1b" not in said
