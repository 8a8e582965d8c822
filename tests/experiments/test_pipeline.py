"""What the Snakefile asks about a profile."""

import json
import linecache
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EXPERIMENT
from tracked import ROOT, git_files

from headdiv.companion.experiments.profile_file import Profile
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.pipeline import PipelineConfig, Plan, notebook_code
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.settings import check

NOTEBOOK = "notebooks/runs/deacon_translation.ipynb"


@pytest.fixture
def planned(project):
    """The tiny project with the notebooks that experiments need."""
    shutil.copytree(ROOT / "notebooks" / "runs", project.home / "notebooks" / "runs")
    return project


def test_a_plan_lists_files(planned):
    planned.write_profile("tiny", {"seeds": [1, 7], "threads": 2, "gpu": 1})
    plan = Plan("tiny")
    assert (plan.name, plan.threads, plan.gpu, list(plan.papers)) == ("tiny", 2, 1, ["deacon"])
    folder = "results/tiny/deacon/translation"
    runs = [f"{folder}/{variant}/seed{seed}" for variant in ("baseline", "direct-8") for seed in (1, 7)]
    assert plan.drawn_from("deacon") == plan.companion("explore") == [f"{run}/metrics.json" for run in runs]
    table, *figures = (
        "tables/deacon_translation.md", "figures/deacon_translation_curves.svg", "figures/deacon_table3.svg",
        "figures/deacon_figure6.svg"
    )  # fmt: skip
    assert plan.companion("deacon") == [f"results/tiny/{file}" for file in (table, *figures)]
    assert plan.drawn("deacon") == [f"results/tiny/{file}" for file in (f"{table[:-2]}csv", table, *figures)]
    parameters = {"profile": "tiny", "variant": "direct-8", "seed": 7}
    assert json.loads(plan.parameters(variant="direct-8", seed=7)) == parameters


def test_a_table_that_compares_outputs_needs_them(planned):
    shutil.copy(ROOT / "config" / "headtohead-small.yaml", planned.home / "config")
    plan = Plan("headtohead-small")
    files = {Path(path).name for path in plan.drawn_from("headtohead")}
    assert files == {"metrics.json", "outputs.json.xz"}


# ---- how a plan is made


def test_plugins_and_caution_decide_what_is_drawn_and_no_run(planned):
    plugin, plans = planned.home / "own.py", [Plan("tiny")]
    for top, code in (({"cautious": True}, ""), ({"plugins": ["own.py"]}, ""), ({"plugins": ["own.py"]}, "# changed")):
        plugin.write_text(code)
        planned.write_profile("tiny", top)
        plans.append(Plan("tiny"))
    assert len({plan.papers["deacon"] for plan in plans}) == len(plans)
    assert all(plan.runs == plans[0].runs for plan in plans)


@pytest.mark.usefixtures("own_methods")
def test_a_changed_method_of_ones_own_is_another_run(planned, monkeypatch):
    """With the same options: a class that was edited, in a notebook or in a plugin, must not find its old runs."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))

    def names(code):
        cell = f"<cell {hash(code)}>"  # kept as IPython keeps it
        linecache.cache[cell] = (len(code), None, code.splitlines(keepends=True), cell)
        exec(compile(code, cell, "exec"), {"__name__": "notebook"})
        planned.write_profile("tiny", define=define, variants=["baseline", "mine", "both"])
        return {variant: decides for (variant, _), decides in Plan("tiny").runs[EXPERIMENT].items()}

    combined = {"name": "combined", "methods": [{"name": "own"}, {"name": "drop-head"}]}
    define = {"mine": {"name": "own"}, "both": combined}
    code = (
        "import headdiv\n\nclass Own(headdiv.Method):\n    name = 'own'\n"
        "    def aux_loss(self, *of):\n        return 1.0\n\nheaddiv.register(Own)\n"
    )
    first, remarked, changed = names(code), names(f"# a remark\n{code}"), names(code.replace("1.0", "2.0"))
    assert first == remarked
    assert {variant for variant in first if first[variant] != changed[variant]} == {"mine", "both"}


def test_an_experiment_without_a_notebook_is_named(planned):
    (planned.home / NOTEBOOK).unlink()
    with pytest.raises(DataError, match=f"{NOTEBOOK}: no such notebook"):
        notebook_code(NOTEBOOK)


# ---- what decides a run


def decisive(planned, **sections):
    planned.write_profile("tiny", **sections)
    return Plan("tiny").runs[EXPERIMENT]["direct-8", 1]


def test_what_decides_a_result_is_the_configuration_of_its_training_and_search(planned):
    base = decisive(planned)
    public = {"name": "multi30k", "test": "test_2016_flickr", "held_out": 500}
    assert decisive(planned, train={"checkpoint_seconds": 7.0}) == base
    assert decisive(planned, variants=["direct-8"]) == base
    for name in ("a.en", "a.de"):
        (planned.home / name).write_text("One.\nTwo.\nThree.\n")
    files = {split: {"en": "a.en", "de": "a.de"} for split in ("train", "valid", "test")}
    own = {"name": "own", "files": files, "held_out": 500}
    with_own_files = decisive(planned, data=own)
    (planned.home / "a.de").write_text("One.\nTwo.\nFour.\n")
    changed = [
        with_own_files,
        decisive(planned, data=own),
        decisive(planned, train={"epochs": 3}),
        decisive(planned, decode={"beam": 3}),
        decisive(planned, data=public),
        decisive(planned, data={**public, "more_tests": ["test_2017_flickr"]}),
    ]
    assert len({base, *changed}) == 7


def test_prose_of_a_notebook_does_not_count_and_code_does(planned):
    path = planned.home / NOTEBOOK
    content = json.loads(path.read_text())
    before = notebook_code(NOTEBOOK)

    def changed(kind, add):
        copy = json.loads(json.dumps(content))
        next(cell for cell in copy["cells"] if cell["cell_type"] == kind)["source"] += add
        path.write_text(json.dumps(copy, indent=3))
        return notebook_code(NOTEBOOK)

    assert changed("markdown", ["\nMore words."]) == before
    assert changed("code", ["\n# a comment is code"]) != before
    content["cells"].insert(0, {"cell_type": "markdown", "metadata": {}, "source": "As one string."})
    assert changed("markdown", "") == before


def test_a_mistake_in_the_configuration_of_snakemake_is_named():
    for config, sentence in (
        ({"profle": "multi30k"}, "profle: unknown key; did you mean 'profile'"),
        ({"gpu": "two"}, "gpu: .* found 'two'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            check(PipelineConfig, config)


def test_the_profiles_of_the_repository_can_be_planned(planned, monkeypatch):
    """But those of files of one's own, which are planned where these files are."""
    monkeypatch.setenv("HEADDIV_MIRROR", "nowhere")
    for path in git_files("config/*.yaml"):
        shutil.copy(path, planned.home / "config" / path.name)
        runs = Runs(path.stem)
        for experiment in runs.experiments():
            hashes = [config.hash for config in runs.planned(experiment)]
            assert len({*hashes}) == len(hashes)
        if all(config.data.files is None for config in runs.planned()):
            assert Plan(path.stem).tables
    assert {config.kind for config in Runs("quick").configs()} == {*TASKS}


def test_the_readme_of_the_profiles_names_all_of_them_and_their_keys():
    text = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    names = {path.stem for path in git_files("config/*.yaml")} | {*Profile.model_fields, *PipelineConfig.model_fields}
    assert {name for name in names if f"`{name}`" not in text} == set()


WITH_A_KERNEL = """
import subprocess, sys
from headdiv.companion.pipeline import end_jobs_with_snakemake

end_jobs_with_snakemake()
kernel = [sys.executable, "-c", "import time; print('busy', flush=True); time.sleep(300)"]
job = f"import subprocess; subprocess.run({kernel}, start_new_session=True)"
subprocess.run([sys.executable, "-c", job])
"""


@pytest.mark.slow
def test_what_ends_snakemake_ends_its_jobs_and_their_kernels():
    command = [sys.executable, "-c", WITH_A_KERNEL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as snakemake:
        assert snakemake.stdout.readline() == "busy\n"
        snakemake.send_signal(signal.SIGTERM)
        _, errors = snakemake.communicate(timeout=60)  # the kernel has the pipe too: until it has ended, this waits
    assert "KeyboardInterrupt" in errors
