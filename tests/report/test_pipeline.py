"""What the Snakefile asks about a profile."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import EXPERIMENT
from reported import EXPERIMENTS, write_profile

from headdiv.core.errors import ConfigError, DataError
from headdiv.data.cache import prepared_folder
from headdiv.experiments.profiles import Runs
from headdiv.report.pipeline import Plan

NOTEBOOK = "notebooks/runs/deacon_translation.ipynb"


@pytest.fixture
def planned(project):
    """The tiny project with the notebooks that experiments need."""
    shutil.copytree(Path(__file__).parents[2] / "notebooks" / "runs", project.home / "notebooks" / "runs")
    return project


def test_a_plan_lists_files(planned):
    planned.write_profile("tiny", {"seeds": [1, 7], "threads": 2})
    plan = Plan("tiny")
    assert (plan.name, plan.threads, plan.papers) == ("tiny", 2, ["deacon"])
    assert plan.tables == {"deacon_translation": EXPERIMENT}
    assert plan.figures == {"deacon_figure6": EXPERIMENT, "deacon_translation_curves": EXPERIMENT}
    assert plan.metrics(EXPERIMENT) == [
        f"results/tiny/deacon/translation/{variant}/seed{seed}/metrics.json"
        for variant in ("baseline", "direct-8")
        for seed in (1, 7)
    ]
    folder = prepared_folder(planned.config().data)
    assert plan.corpus(EXPERIMENT) == f"data/prepared/{folder.name}/corpus.json"
    assert (planned.home / plan.corpus(EXPERIMENT)).is_file()
    assert plan.experiment_of_corpus(folder.name) == EXPERIMENT
    assert json.loads(plan.parameters(variant="direct-8", seed=7)) == {
        "profile": "tiny",
        "variant": "direct-8",
        "seed": 7,
    }
    assert json.loads(plan.parameters()) == {"profile": "tiny"}


def test_files_lie_where_runs_record_them(planned):
    from headdiv.experiments.results import metrics_path

    for profile in ("tiny", str(planned.home / "config" / "tiny.yaml")):
        plan = Plan(profile)
        listed = [planned.home / path for path in plan.metrics(EXPERIMENT)]
        assert listed == [metrics_path(profile, EXPERIMENT, variant, 1) for variant in ("baseline", "direct-8")]


def test_a_plan_of_all_tasks(planned):
    write_profile(planned, "all", seeds=[1])
    plan = Plan("all")
    assert plan.tables == {
        "deacon_translation": "deacon/translation",
        "deacon_summarisation": "deacon/summarisation",
        "deacon_qa": "deacon/qa",
        "deacon_sources": "deacon/lm",
        "deacon_lm": "deacon/lm",
    }
    assert plan.figures == {
        "deacon_figure6": "deacon/translation",
        **{f"deacon_{task}_curves": f"deacon/{task}" for task in EXPERIMENTS},
    }
    assert plan.papers == ["deacon"]
    corpora = {task: Path(plan.corpus(f"deacon/{task}")).parent.name for task in EXPERIMENTS}
    assert len(set(corpora.values())) == 4
    for task, corpus in corpora.items():
        assert plan.experiment_of_corpus(corpus) == f"deacon/{task}"
        assert len(plan.metrics(f"deacon/{task}")) == 8  # the paper's seven and one more


@pytest.mark.parametrize(
    ("task", "tables", "figures"),
    [
        ("summarisation", ["deacon_summarisation"], ["deacon_summarisation_curves"]),
        ("qa", ["deacon_qa"], ["deacon_qa_curves"]),
        ("lm", ["deacon_sources", "deacon_lm"], ["deacon_lm_curves"]),
    ],
)
def test_a_plan_of_a_single_experiment(planned, task, tables, figures):
    write_profile(planned, "alone", task)
    shutil.rmtree(planned.home / "notebooks")
    with pytest.raises(DataError, match=rf"^notebooks/runs/deacon_{task}\.ipynb: no such notebook; every experiment"):
        Plan("alone")
    shutil.copytree(Path(__file__).parents[2] / "notebooks" / "runs", planned.home / "notebooks" / "runs")
    plan = Plan("alone")
    assert (list(plan.tables), list(plan.figures)) == (tables, figures)


def test_figure_6_is_planned_only_with_one_of_its_variants(planned):
    planned.write_profile("tiny", variants=["baseline"])
    assert list(Plan("tiny").figures) == ["deacon_translation_curves"]


def decisive(planned, **sections):
    planned.write_profile("tiny", **sections)
    return Plan("tiny").decisive(EXPERIMENT, "direct-8", 1)


def test_what_decides_a_result_is_the_configuration_of_its_training_and_search(planned):
    base = decisive(planned)
    assert decisive(planned) == base
    assert decisive(planned, train={"checkpoint_seconds": 7.0}) == base
    assert decisive(planned, variants=["direct-8"]) == base
    changed = [
        decisive(planned, train={"epochs": 3}),
        decisive(planned, decode={"beam": 3}),
        decisive(planned, data={"examples": 61}),
        decisive(planned, model={"d_ff": 17}),
        decisive(planned, methods={"deacon": {"xi": 0.5}}),
    ]
    assert len({base, *changed}) == 6


def test_prose_of_a_notebook_does_not_count_and_code_does(planned):
    path = planned.home / NOTEBOOK
    content = json.loads(path.read_text())
    before = Plan("tiny").notebook_code(NOTEBOOK)

    def changed(kind, add):
        told = json.loads(json.dumps(content))
        next(cell for cell in told["cells"] if cell["cell_type"] == kind)["source"] += add
        path.write_text(json.dumps(told, indent=3))
        return Plan("tiny").notebook_code(NOTEBOOK)

    assert changed("markdown", ["\nMore words."]) == before
    assert changed("code", ["\n# a comment is code"]) != before
    content["cells"].insert(0, {"cell_type": "markdown", "metadata": {}, "source": "As one string."})
    assert changed("markdown", "") == before


def test_a_missing_notebook_is_named(project):
    with pytest.raises(DataError) as found:
        Plan("tiny")
    assert str(found.value) == f"{NOTEBOOK}: no such notebook; every experiment of a profile needs one"


def test_a_data_set_that_is_not_there_is_named_before_anything_runs(planned):
    planned.write_profile("tiny", data={"name": "toi"})
    with pytest.raises(ConfigError, match=r"line 8: .*\.data\.name: 'toi' is not known; there are: .*\btoy\b"):
        Plan("tiny")


def test_a_change_of_ones_own_files_decides_too(planned):
    for name in ("a.en", "a.de"):
        (planned.home / name).write_text("One.\nTwo.\nThree.\n")
    split = {"en": "a.en", "de": "a.de"}
    own = {"name": "own", "files": dict.fromkeys(("train", "valid", "test"), split), "held_out": 500}
    before = decisive(planned, data=own), Plan("tiny").corpus(EXPERIMENT)
    (planned.home / "a.de").write_text("One.\nTwo.\nFour.\n")
    after = Plan("tiny").decisive(EXPERIMENT, "direct-8", 1), Plan("tiny").corpus(EXPERIMENT)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_the_profiles_of_the_repository_can_be_planned(planned, monkeypatch):
    folder = Path(__file__).parents[2] / "config"
    monkeypatch.setenv("HEADDIV_MIRROR", "nowhere")  # profiles of files of one's own are planned where these are
    own = []
    for path in sorted(folder.glob("*.yaml")):
        shutil.copy(path, planned.home / "config" / path.name)
        runs = Runs(path.stem)
        own += [path.stem for config in runs.all() if config.data.files is not None][:1]
        if path.stem not in own:
            assert Plan(path.stem).tables
    assert "quick" not in own
