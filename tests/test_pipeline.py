"""What the Snakefile asks about a profile."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import EXPERIMENT

from headdiv.data.corpus import prepared_folder
from headdiv.errors import ConfigError, DataError
from headdiv.pipeline import Plan

NOTEBOOK = "notebooks/runs/deacon_translation.ipynb"


@pytest.fixture
def planned(project):
    """The tiny project with the notebook that its experiment needs."""
    (project.home / NOTEBOOK).parent.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[1] / NOTEBOOK, project.home / NOTEBOOK)
    return project


def test_a_plan_lists_files(planned):
    planned.write_profile("tiny", {"seeds": [1, 7], "threads": 2})
    plan = Plan("tiny")
    assert (plan.name, plan.threads, plan.papers) == ("tiny", 2, ["deacon"])
    assert plan.tables == {"deacon_translation": EXPERIMENT}
    assert plan.figures == {
        "deacon_figure6": "deacon_translation",
        "deacon_translation_curves": "deacon_translation",
    }
    assert plan.metrics("deacon_translation") == [
        f"results/tiny/deacon/translation/{variant}/seed{seed}/metrics.json"
        for variant in ("baseline", "direct-8")
        for seed in (1, 7)
    ]
    folder = prepared_folder(planned.config().data)
    assert plan.vocabulary(EXPERIMENT) == f"data/prepared/{folder.name}/vocabulary.json"
    assert (planned.home / plan.vocabulary(EXPERIMENT)).is_file()
    assert plan.experiment_of_corpus(folder.name) == EXPERIMENT
    assert json.loads(plan.parameters(variant="direct-8", seed=7)) == {
        "profile": "tiny",
        "variant": "direct-8",
        "seed": 7,
    }
    assert json.loads(plan.parameters()) == {"profile": "tiny"}


def test_files_lie_where_runs_record_them(planned):
    from headdiv.report.store import metrics_path

    for profile in ("tiny", str(planned.home / "config" / "tiny.yaml")):
        plan = Plan(profile)
        listed = [planned.home / path for path in plan.metrics("deacon_translation")]
        assert listed == [metrics_path(profile, EXPERIMENT, variant, 1) for variant in ("baseline", "direct-8")]


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
        decisive(planned, data={"pairs": 61}),
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
    with pytest.raises(ConfigError, match=r"line 8: .*\.data\.name: 'toi' is not known; there are: multi30k, toy$"):
        Plan("tiny")
