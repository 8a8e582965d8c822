"""What the notebook of a run shows: its data, its model, its training and its heads."""

import html

import pytest
import yaml
from conftest import EXPERIMENT, TINY
from IPython.display import Image
from small_runs import SMALL

from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.running import load_run
from headdiv.companion.models.transformer import count_parameters
from headdiv.companion.report import run_views
from headdiv.companion.tasks import TASKS


def test_the_heads_of_a_run_are_a_picture(finished):
    assert isinstance(run_views.show_heads(evaluate(load_run(finished.config("direct-8")))), Image)


def test_an_architecture_adds_up(finished):
    run = load_run(finished.config("direct-8"))
    table = run_views.show_architecture(run)
    assert list(table.index) == ["encoder 1", "decoder 1", "cross 1", "everything else", "the model"]
    assert table["parameters"].iloc[:-1].sum() == table["parameters"].iloc[-1] == count_parameters(run.model)
    assert set(table["output stage"]) == {"DirectOutput", ""}
    assert isinstance(run_views.show_training(run), Image)


@pytest.mark.parametrize("task", ["translation", *SMALL])
def test_the_data_of_every_task_are_seen(project, task):
    sections = ({"translation": TINY["experiments"][EXPERIMENT]} | SMALL)[task] | {"variants": ["baseline"]}
    content = {"title": "p", "seeds": [1], "experiments": {f"deacon/{task}": sections}}
    project.write_config("p", yaml.safe_dump(content))
    config = run_config("p", f"deacon/{task}", "baseline", 1)
    kind = TASKS[config.kind]
    (example,) = kind.example_texts(kind.load(config.data), "valid", 1)
    assert html.escape(example.text[:20]) in run_views.show_data(config).to_html()
    assert isinstance(run_views.show_lengths(config), Image)
