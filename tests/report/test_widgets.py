"""The explorer's controls, driven by their values without a front end, and the notebook executed."""

import base64
from pathlib import Path

import ipywidgets
import pytest
import yaml
from conftest import EXPERIMENT, TINY
from matplotlib.figure import Figure
from small_runs import SMALL
from test_repository import code_cells

import headdiv
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import load_run, train
from headdiv.companion.report import widgets
from headdiv.companion.report.explorer_panels import look_at
from headdiv.companion.report.explorer_view import MEASURES
from headdiv.companion.report.widgets import ASIDE, Explorer, explore
from headdiv.companion.tasks import TASKS
from headdiv.core import progress
from headdiv.core.errors import TrainingError

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "explore.ipynb"
BASELINE, DEACON = (f"{EXPERIMENT} {variant} seed 1" for variant in ("baseline", "direct-8"))


def shown(explorer):
    """By panel, what stands there: a line of text, or the kind of what else it is."""
    panels = {}
    for name, data in contents(explorer).items():
        ((kind, content),) = data.items()
        panels[name] = content if kind == "text/markdown" else kind
    return panels


PLACES = {"encoder, layer 1": "encoder 1", "decoder, layer 1": "decoder 1", "encoder-decoder, layer 1": "cross 1"}
DRAWN = dict.fromkeys(("attention", "similarity", "components"), "image/png")
DRAWN |= dict.fromkeys(("heads", "masking"), "text/html")


def contents(explorer):
    return {name: panel.outputs[0]["data"] for name, panel in explorer.panels.items()}


def changed(explorer, control, value):
    """Which panels show something else once the control has this value."""
    before = contents(explorer)
    control.value = value
    after = contents(explorer)
    return {name for name in before if before[name] != after[name]}


@pytest.fixture
def sketched(monkeypatch):
    """Pictures hold what stands in them and are not drawn: that is most of the time these tests would take."""

    def savefig(figure, file, **_):
        for name in ("get_text", "get_array", "get_xydata", "get_xy"):
            file.write(repr([getattr(a, name)() for a in figure.findobj() if hasattr(a, name)]).encode())

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture
def explorer(finished, sketched):
    return Explorer("tiny", look_at("tiny", variant="direct-8"))


def test_it_begins_at_the_view(finished):
    explorer = Explorer("tiny", look_at("tiny", variant="direct-8"))
    assert explorer.run.options == (BASELINE, DEACON)
    assert (explorer.run.value, explorer.place.value, explorer.head.value) == (DEACON, "cross 1", 1)
    assert explorer.place.options == tuple(PLACES.items())
    assert explorer.head.options == tuple(range(1, 9))
    source, _ = load_run(Runs("tiny").one(EXPERIMENT, "direct-8", 1)).corpus.test.text[0]
    assert (explorer.text.value, explorer.other.value) == (source, "")
    assert (explorer.text.description, explorer.other.description) == ("source", "target")
    assert explorer.other.placeholder == "the model's own, where this is empty"
    assert shown(explorer) == DRAWN
    picture = base64.b64decode(explorer.panels["attention"].outputs[0]["data"]["image/png"])
    assert picture.startswith(b"\x89PNG")
    _, *controls, choices, panels = explorer.children
    assert controls == [explorer.run, explorer.beside, explorer.text, explorer.other]
    assert list(choices.children) == [explorer.place, explorer.head, explorer.measure]
    assert list(panels.children) == list(explorer.panels.values())
    assert all(isinstance(panel, ipywidgets.Output) for panel in panels.children)


def test_panels_follow_what_is_chosen(explorer):
    assert changed(explorer, explorer.head, 5) == {"heads", "attention", "similarity", "masking"}
    assert changed(explorer, explorer.measure, "js") == {"similarity"}
    assert changed(explorer, explorer.place, "encoder 1") == set(DRAWN)
    assert changed(explorer, explorer.beside, BASELINE) == {"heads"}
    page = explorer.panels["heads"].outputs[0]["data"]["text/html"]
    assert page.count("<svg") == 2 * 8
    assert page.index(DEACON) < page.index(BASELINE)
    assert explorer.head.value == 5
    assert "without encoder, layer 1, head 5" in explorer.panels["masking"].outputs[0]["data"]["text/html"]
    assert "attention" in changed(explorer, explorer.text, "A small cat.")
    run = load_run(Runs("tiny").one(EXPERIMENT, "direct-8", 1))
    said = TASKS["translation"].apply(run, "A small cat.")
    assert said in explorer.panels["masking"].outputs[0]["data"]["text/html"]
    assert changed(explorer, explorer.other, "Der Hund") == {"masking"}  # the encoder does not see the target


@pytest.mark.slow
def test_another_run_keeps_a_text_of_ones_own(explorer):
    example = explorer.text.value
    explorer.text.value = "A small cat."
    explorer.place.value, explorer.head.value = "decoder 1", 2
    explorer.run.value = BASELINE
    assert (explorer.text.value, explorer.place.value, explorer.head.value) == ("A small cat.", "decoder 1", 2)
    lacking = f"*{BASELINE} has no PCA layer in decoder self-attention, layer 1; only DEACON puts one into attention.*"
    assert shown(explorer) == DRAWN | {"components": lacking}
    explorer.text.value = example
    explorer.run.value = DEACON
    assert (explorer.text.value, explorer.place.value) == (example, "decoder 1")
    assert shown(explorer) == DRAWN


def test_what_is_refused_is_a_sentence_in_its_panel(explorer):
    explorer.place.value = "encoder 1"
    explorer.text.value = ""
    assert shown(explorer) == DRAWN | {"similarity": "encoder 1: no words that heads could be compared on"}
    explorer.text.value = "A small cat."
    assert shown(explorer) == DRAWN


def test_a_run_that_cannot_be_loaded_says_so_and_the_next_one_can(explorer, monkeypatch):
    def damaged(config):
        raise TrainingError("model.safetensors is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(widgets, "load_run", damaged)
        explorer.run.value = BASELINE
        assert set(shown(explorer).values()) == {"model.safetensors is damaged"}
        explorer.place.value = "encoder 1"
        assert set(shown(explorer).values()) == {"model.safetensors is damaged"}
        explorer.run.value = DEACON
        assert shown(explorer) == DRAWN
    explorer.run.value = BASELINE
    assert shown(explorer)["attention"] == "image/png"


# ---- other tasks


@pytest.fixture
def mixed(finished, sketched):
    """A profile of translation, question answering and language modelling, all trained."""
    experiments = {EXPERIMENT: TINY["experiments"][EXPERIMENT] | {"variants": ["direct-8"]}}
    for task in ("qa", "lm"):
        train_once = {"variants": ["baseline"], "train": SMALL[task]["train"] | {"epochs": 1}}
        experiments[f"deacon/{task}"] = SMALL[task] | train_once
    content = {"title": "mixed", "seeds": [1], "experiments": experiments}
    finished.write_config("mixed", yaml.safe_dump(content, sort_keys=False))
    for config in Runs("mixed").all():
        train(config)
    return Explorer("mixed", look_at("mixed"))


@pytest.mark.slow
def test_texts_places_and_heads_are_the_tasks(mixed):
    mixed.place.value, mixed.head.value = "decoder 1", 7
    mixed.run.value = "deacon/qa baseline seed 1"
    assert (mixed.text.description, mixed.other.description) == ("passage", "question")
    assert mixed.other.value
    assert mixed.other.placeholder == ""
    assert (mixed.place.value, mixed.head.options, mixed.head.value) == ("decoder 1", (1, 2, 3, 4), 1)
    assert shown(mixed)["masking"] == "text/html"
    mixed.other.value = ""
    sentence = "a passage without a question: give the question as the second text"
    assert [shown(mixed)[name] for name in ("heads", "attention", "similarity", "masking")] == [sentence] * 4
    mixed.run.value = "deacon/lm baseline seed 1"
    assert mixed.place.options == (("decoder, layer 1", "decoder 1"),)
    mixed.beside.value = f"{EXPERIMENT} direct-8 seed 1"
    assert shown(mixed)["heads"] == f"{mixed.beside.value} reads another kind of text than {mixed.run.value}"
    mixed.beside.value = ""
    assert (mixed.text.description, mixed.other.layout.display, mixed.other.value) == ("text", "none", "")
    assert shown(mixed)["masking"] == "text/html"
    mixed.run.value = f"{EXPERIMENT} direct-8 seed 1"
    assert mixed.other.layout.display is None
    assert shown(mixed) == DRAWN


# ---- where there is nobody, or nothing


def test_controls_are_for_somebody_who_looks_on(finished, sketched, monkeypatch):
    monkeypatch.setattr(progress, "interactive", lambda: False)
    assert explore("tiny").data == ASIDE
    monkeypatch.setattr(progress, "interactive", lambda: True)
    still = []
    monkeypatch.setattr(widgets, "display", still.append)
    explorer = explore("tiny")
    assert isinstance(explorer, Explorer)
    assert isinstance(explorer.text, ipywidgets.Text)  # Enter ends the typing
    assert still[0].data.count("<img ") == 3
    assert widgets.STILL in explorer.children[0].value  # hides them where there are controls
    view = look_at("tiny", variant="baseline", head=3)
    assert explore("tiny", view).head.value == 3
    assert headdiv.companion.explore is explore


# ---- the notebook


def executed(monkeypatch, **parameters):
    """What it shows, one after the other: its cells run in this process as in a step of the pipeline."""
    shown, names = [], {}
    monkeypatch.setenv(progress.PLAIN, "plain")
    monkeypatch.setattr(widgets, "display", shown.append)
    defaults, *cells, last = code_cells(NOTEBOOK)
    exec(defaults, names)
    names |= {"profile": "tiny"} | parameters
    for cell in cells:
        exec(cell, names)
    shown.append(eval(last, names))
    return shown


def test_executed_it_shows_all_panels(finished, monkeypatch):
    maps, attention, likeness, masked, parts, aside = executed(monkeypatch, place="encoder 1", head=2, measure="cka")
    assert f"<p>{DEACON}: encoder, layer 1, 8 heads</p>" in maps.data
    assert attention.axes[0].get_title("left") == f"encoder self-attention, layer 1, head 2\n{DEACON}"
    assert likeness.axes[1].child_axes[0].get_ylabel() == MEASURES["cka"].label
    assert "without encoder, layer 1, head 2" in masked.to_html()
    assert parts.get_suptitle().startswith("encoder self-attention, layer 1: 8 columns for 8 inputs")
    assert aside.data == ASIDE


def test_executed_without_a_run_it_says_so(project, monkeypatch):
    (line,) = executed(monkeypatch)
    assert line.data.startswith("*Profile tiny has no trained run on this machine;")


@pytest.mark.slow
def test_executed_by_papermill_alone_it_has_controls_that_hold_the_panels(finished, monkeypatch):
    import papermill  # seconds, which the other tests need not wait

    monkeypatch.setenv("IPYTHONDIR", str(finished.home / "ipython"))
    monkeypatch.delenv(progress.PLAIN, raising=False)
    out = papermill.execute_notebook(
        NOTEBOOK, finished.home / "out.ipynb", {"profile": "tiny"}, kernel_name="python3", progress_bar=False,
        cwd=finished.home,
    )  # fmt: skip
    kinds = ["".join(sorted(output["data"])) for cell in out.cells for output in cell.get("outputs", [])]
    assert any("application/vnd.jupyter.widget-view+json" in kind for kind in kinds)
    assert not any("image/png" in kind for kind in kinds)
    pages = ["".join(output["data"]["text/html"]) for cell in out.cells for output in cell.get("outputs", [])
             if "text/html" in output["data"]]  # fmt: skip
    still = [page for page in pages if page.startswith(f'<div class="{widgets.STILL}">')]  # needs no JavaScript
    assert any("data:image/png" in page for page in still)
