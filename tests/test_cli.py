"""The command line: what it prints, and one sentence and status 2 for every mistake."""

import errno
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import EXPERIMENT
from safetensors import SafetensorError

import headdiv
from headdiv.companion.command_line import main
from headdiv.companion.experiments.running import run_folder
from headdiv.companion.report.site import build
from headdiv.core.files import read_json

TRAIN = ("train", EXPERIMENT, "baseline", "--profile", "tiny")


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


def start(*arguments):
    command = [sys.executable, "-m", "headdiv", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


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
        ("draw decon --profile tiny", "decon: profile tiny has no such paper; did you mean 'deacon'?"),
        ("heads model --text missing.txt", "missing.txt: no such file"),
        ("claims --paper mh", "paper 'mh' is not known; did you mean 'mhr'?"),
        ("prams", "No such command 'prams'. Did you mean 'params'?"),
        ("train a b --seed x", "Invalid value for '--seed': 'x' is not a valid integer."),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(project, headdiv_says, monkeypatch, command, sentence):
    monkeypatch.chdir(project.home)
    before = sorted(project.home.rglob("*"))
    assert headdiv_says(*command.split()) == (2, "", f"headdiv: {sentence.format(home=project.home)}\n")
    assert sorted(project.home.rglob("*")) == before


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_named(project, headdiv_says, monkeypatch, device):
    monkeypatch.setenv("HEADDIV_DEVICE", device)
    status, _, err = headdiv_says(*TRAIN)
    assert status == 2
    assert err.startswith(f"headdiv: HEADDIV_DEVICE: nothing can be computed on '{device}' here (")
    assert not (project.home / "work").exists()


def test_what_cannot_be_written_is_named_and_nothing_is_lost(project, headdiv_says, monkeypatch):
    folder = run_folder(project.config())
    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(
                "headdiv.training.checkpoints.save_file", lambda *_, error=error: (_ for _ in ()).throw(error)
            )
            status, _, err = headdiv_says(*TRAIN)
        path = folder / "checkpoints" / "step5"
        assert (status, err) == (2, f"headdiv: {path}: cannot be written ({error})\n")
        assert list(path.parent.iterdir()) == []
    (project.home / "results").touch()
    path = project.home / "results" / "tiny" / EXPERIMENT / "baseline" / "seed1" / "outputs.json.xz"
    status, _, err = headdiv_says(*TRAIN)
    assert status == 2
    assert err.startswith(f"headdiv: {path}: cannot be written ([Errno 20] Not a directory")
    (project.home / "results").unlink()
    assert headdiv_says(*TRAIN)[0] == 0
    for home in (project.home / "config" / "tiny.yaml", project.home / "not-there"):
        monkeypatch.setenv("HEADDIV_HOME", str(home))
        sentence = f"HEADDIV_HOME is set to '{home}', which is not a folder; correct it or unset it"
        assert headdiv_says(*TRAIN) == (2, "", f"headdiv: {sentence}\n")


def test_a_bug_shows_where_it_is_and_an_interruption_is_said_in_a_word(project, headdiv_says, monkeypatch):
    def broken(*_):
        raise errors.pop()

    errors = [KeyboardInterrupt(), ValueError("negative")]
    monkeypatch.setattr("headdiv.companion.experiments.parameters.audit", broken)
    status, _, err = headdiv_says("params", EXPERIMENT, "--profile", "tiny")
    assert status == 1
    assert err.startswith("Traceback")
    assert "in broken" in err
    assert err.endswith("headdiv: ValueError, which was not expected: negative\n")
    status, _, err = headdiv_says("params", EXPERIMENT, "--profile", "tiny")
    assert (status, err.lstrip("\n")) == (130, "headdiv: interrupted\n")  # click ends the line with ^C


# ---- what is printed when all is well


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


def test_train_records_metrics_where_tables_find_them(project, headdiv_says, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    status, out, err = headdiv_says(*TRAIN, "--tensorboard", tmp_path / "log")
    assert (status, err) == (0, "")
    path = project.home / "results" / "tiny" / EXPERIMENT / "baseline" / "seed1" / "metrics.json"
    lines = out.splitlines()
    assert lines[0].startswith("deacon/translation baseline seed 1 epoch 1/2: training loss ")
    assert lines[-1] == str(path)
    assert any(line.startswith("Training loss  ") for line in lines)  # labels, not keys
    metrics = read_json(path)
    assert metrics["hash"] == run_folder(project.config()).name
    logged = [line.split() for line in (tmp_path / "log.txt").read_text().splitlines()]
    losses = [(float(value), int(step)) for name, value, step in logged if name == "validation_nll"]
    assert losses == [(point["validation_nll"], point["steps"]) for point in metrics["curve"]]
    status, again, err = headdiv_says(*TRAIN)
    assert f"already trained, in {run_folder(project.config())}" in again.splitlines()[0]
    assert read_json(path) == metrics
    status, out, err = headdiv_says("table", EXPERIMENT, "--profile", "tiny")
    assert (status, err) == (0, "")
    assert f"{metrics['scores']['bleu']['value']:.2f}" in out


def test_the_demo_shows_two_models_and_a_picture(project, headdiv_says):
    status, out, err = headdiv_says("demo", "--profile", "tiny")
    assert (status, err) == (0, "")
    assert ["Transformer", "DEACON"] in [line.split() for line in out.splitlines()]
    picture = project.home / "work" / "demo" / "heads.png"
    assert f"picture: {picture}" in out
    assert picture.stat().st_size


def test_tables_figures_and_report_are_written(finished, headdiv_says, tmp_path, monkeypatch):
    written = [tmp_path / name for name in ("a.csv", "a.md", "a.svg", "a.png")]
    assert headdiv_says("table", EXPERIMENT, *written[:2], "--profile", "tiny") == (0, "", "")
    assert headdiv_says("figure", "deacon_figure6", *written[2:], "--profile", "tiny") == (0, "", "")
    folder = finished.home / "results" / "tiny"
    assert headdiv_says("draw", "deacon", "--profile", "tiny") == (0, "", "")
    written += [folder / f"figures/deacon_{name}.svg" for name in ("figure6", "translation_curves")]
    written += [folder / f"tables/deacon_translation.{ending}" for ending in ("csv", "md")]
    assert all(path.stat().st_size for path in written)
    monkeypatch.setattr(build, "build_site", shutil.copytree)
    told = (0, f"report: {folder / 'report' / 'index.html'}\n", "")
    assert headdiv_says("report", "--profile", "tiny") == told
    assert (folder / "report" / "index.md").is_file()
    finished.write_profile(train={"epochs": 3})
    status, _, err = headdiv_says("report", "--profile", "tiny")
    assert (status, "train.epochs is 2, but 3" in err) == (2, True)


def test_claims_are_printed_of_one_paper(headdiv_says):
    status, out, err = headdiv_says("claims", "--paper", "dpp", "-v")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "dpp: contradicted (1)"
    assert "160.239" in out


# ---- as a process


def test_version_and_module():
    result = start("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.rstrip().endswith(f"version {headdiv.__version__}")


def test_init_says_what_to_do_next(project, headdiv_says):
    status, out, err = headdiv_says("init", project.home / "my new")
    assert (status, err) == (0, "")
    assert re.match(rf"{project.home}/my new: \d+ files written.*\n", out)
    assert f"cd '{project.home}/my new'\n  headdiv demo" in out


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


def test_without_profiles_of_a_projects_own_the_packages_are_listed(folder, headdiv_says):
    status, out, err = headdiv_says("list")
    assert (status, err) == (0, "")
    assert {"quick", "tables"} <= {*out.splitlines()[0].removeprefix("profiles: ").split(", ")}
