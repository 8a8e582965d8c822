"""What the notebook of a run shows: its data, its model, its training, its heads, and its method's pictures."""

import html

import pytest
import yaml
from conftest import EXPERIMENT, TINY
from IPython.display import Image, Markdown
from small_runs import SMALL

from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.running import load_run, train
from headdiv.companion.models.transformer import count_parameters
from headdiv.companion.report import run_views
from headdiv.companion.tasks import TASKS

METHODS = {
    "direct": ({"name": "deacon", "architecture": "direct", "m": 4}, ["map", "lines"]),
    "rotation": ({"name": "dynamic-rotation", "choice": "random"}, ["map"]),
    "alphas": ({"name": "mixing", "start": 0.0}, ["map"]),
    "rfb": ({"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5}, ["histogram"]),
    "moa": ({"name": "moa", "experts": 8, "k": 4}, ["map"]),
    "dis": ({"name": "disagreement", "term": "output"}, []),
    "both": (
        {
            "name": "combined",
            "methods": [
                {"name": "deacon", "architecture": "direct", "m": 8},
                {"name": "homeostasis", "attention": "kwta", "s_att": 0.5},
            ],
        },
        ["map", "lines", "histogram"],
    ),
}


@pytest.mark.parametrize("variant", METHODS)
def test_a_method_shows_what_it_is_about(project, variant):
    method, kinds = METHODS[variant]
    project.write_profile("tiny", define={variant: method}, variants=[variant], train={"epochs": 3})
    run = train(run_config("tiny", EXPERIMENT, variant, 1))
    metrics = evaluate(run)
    history = [point.get("method", {}) for point in run.record["curve"]]
    pictures = run_views.pictures_of(metrics["heads"], history)
    assert [picture.kind for picture in pictures] == kinds
    for number, picture in enumerate(pictures):
        assert isinstance(run_views.show_method(run, metrics, number), Image)
        figure = run_views.draw_picture(picture)
        assert sum(bool(ax.get_title()) for ax in figure.axes) == len(picture.panels)
    assert isinstance(run_views.show_method(run, metrics, len(pictures)), Markdown)


def test_swapped_heads_are_marked_before_their_epoch():
    heads = {"swaps": [{"kind": "encoder", "one": [1, 1], "other": [1, 3]}], "back": False}
    returned = heads | {"back": True}
    measures = {f"encoder {layer}": {"cosine": [[1.0] * 4] * 4} for layer in (1, 2)}
    (picture,) = run_views.pictures_of({"measures": measures}, [heads, {}, {"rotation": returned}])
    assert picture.panels["encoder"][:, [0, 1, 2, 3]].T.tolist() == [
        [0] * 8, [1, 0, 1, *[0] * 5], [0] * 8, [-1, 0, -1, *[0] * 5]
    ]  # fmt: skip


def test_alphas_that_did_not_move_are_white():
    (picture,) = run_views.pictures_of({"alphas": {"cross 1": {"alphas": [[1.0, 0.0], [0.0, 1.0]]}}}, [])
    assert picture.limit == 1.0  # of 0 both ends of the colours, and all values, are one colour
    assert not picture.panels["cross 1"].any()


def test_the_heads_of_a_run_are_a_picture(finished):
    assert isinstance(run_views.show_heads(evaluate(load_run(finished.config("direct-8"))), "tiny"), Image)


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
    examples = TASKS[config.kind].data_examples(TASKS[config.kind].load(config.data), 1)
    assert html.escape(str(examples.iloc[0, 0])[:20]) in run_views.show_data(config).to_html()
    assert isinstance(run_views.show_lengths(config), Image)
