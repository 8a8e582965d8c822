"""The explorer's panels and its controls, which are set without a front end; the notebook executed."""

import shutil
from pathlib import Path

import ipywidgets
import numpy as np
import pytest
import torch
import yaml
from conftest import EXPERIMENT
from IPython.display import Markdown
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from test_repository import code_cells

from headdiv.analysis.masking import heads_of
from headdiv.companion import paths
from headdiv.companion.experiments import shipped
from headdiv.companion.experiments.attention_maps import AttentionMap
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.shipped import load_shipped, ship
from headdiv.companion.report import explorer, explorer_panels
from headdiv.companion.report.explorer import explore
from headdiv.companion.report.explorer_panels import (
    draw_attention,
    draw_components,
    draw_likeness,
    draw_masking,
    draw_views,
)
from headdiv.companion.report.explorer_view import MEASURES, View, held_out_covariances, similarity
from headdiv.companion.report.plotting import ORANGE
from headdiv.core import progress
from headdiv.core.errors import DataError

SOURCE = "The old dog sees a small cat."
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "explore.ipynb"
BASELINE, DEACON = (f"{EXPERIMENT} {variant} seed 1" for variant in ("baseline", "direct-8"))


@pytest.fixture
def view(run):
    return View(run, SOURCE, None, "cross 1", 3)


def draw_panel(draw, view, **options):
    """The axes of one panel."""
    part = Figure(figsize=(6, 3)).subfigures()
    draw(part, view, **options)
    return part.axes


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def texts(figure):
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


# ---- panels


def test_a_map_has_the_heads_weights_and_names_tokens_that_can_be_read(view, monkeypatch):
    """Fewer of a long text; long tokens are cut; tokens are no formulas."""
    queries, keys = [f"word{i}" for i in range(200)], ["$x_$", "Donaudampfschifffahrtsgesellschaft", "\\frac"]
    weights = np.random.default_rng(0).random((8, len(queries), len(keys)))
    monkeypatch.setattr(View, "attention", AttentionMap(queries, keys, weights))
    ax, _ = draw_panel(draw_attention, view)
    assert (ticks(ax.yaxis), ticks(ax.xaxis)) == (queries[::12], ["$x_$", "Donaudampfs…", "\\frac"])
    assert "(one label for 12 tokens)" in ax.get_ylabel()
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), weights[2])
    assert image.get_clim() == (0, pytest.approx(weights.max()))
    draw_views([view]).canvas.draw()  # as a formula "$x_$" would be refused here


def test_likeness_is_of_every_two_heads_and_the_chosen_head_stands_out(view):
    ax, _ = draw_panel(draw_likeness, view, measure="js")
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == [str(head) for head in range(1, 9)]
    np.testing.assert_array_equal(ax.images[0].get_array(), similarity(view, "js"))
    (chosen,) = (label for label in ax.get_yticklabels() if to_hex(label.get_color()) == to_hex(ORANGE))
    assert chosen.get_text() == "3"


def test_what_is_lost_has_both_outputs_and_components_say_how_much_is_kept(view):
    (ax,) = draw_panel(draw_masking, view)
    text = ax.texts[0].get_text().replace("\n", " ")
    assert "without encoder-decoder, layer 1, head 3: " in text
    assert text.count("log-probability of all heads' translation (nats/token): ") == 2
    ax, _ = draw_panel(draw_components, view)
    assert ax.get_title().startswith("8 columns for 8 inputs keep 100.0 %")


def test_a_panel_that_has_nothing_to_show_says_why(view, monkeypatch):
    monkeypatch.setattr(explorer_panels, "similarity", lambda *_: np.ones((1, 1)))
    monkeypatch.setattr(explorer_panels, "components", lambda _: None)
    text = " ".join(texts(draw_views([view])).split())
    assert "encoder-decoder attention, layer 1 has a single head" in text
    assert "has no PCA layer in encoder-decoder attention, layer 1" in text
    assert "attention weight" in text


# ---- where it begins


def test_executed_it_shows_all_panels_of_deacons_run(finished, monkeypatch):
    monkeypatch.setattr(progress, "interactive", lambda: False)
    defaults, imports, last = code_cells(NOTEBOOK)
    names = {}
    exec(defaults, names)
    names |= {"profile": "tiny", "place": "encoder 1", "head": 2, "measure": "cka"}
    exec(imports, names)
    figure = eval(last, names)
    assert figure.get_suptitle() == f"{DEACON}: encoder self-attention, layer 1, head 2"
    text = " ".join(texts(figure).split())
    for panel in ("attention weight", MEASURES["cka"].label, "without encoder, layer 1, head 2", "8 columns for 8"):
        assert panel in text
    assert explore("tiny", variant="baseline").get_suptitle().startswith(BASELINE)


def test_an_unknown_measure_is_refused():
    with pytest.raises(DataError, match="measure 'cosin' is not known; did you mean 'cosine'"):
        explore("tiny", measure="cosin")


def test_without_a_trained_run_there_is_a_line(project):
    line = explore("tiny", EXPERIMENT, "direct-8").data
    assert "`headdiv train deacon/translation direct-8 --seed 1 --profile tiny` trains one" in line


# ---- controls


@pytest.fixture
def shown(monkeypatch):
    """What the explorer shows in a live notebook; pictures as figures."""
    shown = []
    monkeypatch.setattr(progress, "interactive", lambda: True)
    monkeypatch.setattr(explorer, "display", shown.append)
    monkeypatch.setattr(explorer, "_picture", lambda figure: figure)
    return shown


@pytest.fixture
def controls(finished, shown):
    """What the explorer shows of the tiny profile, and its controls by their description."""
    assert explore("tiny", text=SOURCE, place="decoder 1") is None
    (box,) = (item for item in shown if isinstance(item, ipywidgets.HBox))
    left, right = box.children
    return shown, {part.description: part for part in left.children if hasattr(part, "description")}, left, right


def test_panels_follow_the_controls(controls, monkeypatch):
    shown, widgets, left, right = controls
    assert widgets["run"].options == (BASELINE, DEACON)
    assert widgets["attention"].options == (
        ("encoder, layer 1", "encoder 1"), ("decoder, layer 1", "decoder 1"), ("encoder-decoder, layer 1", "cross 1")
    )  # fmt: skip
    assert shown[-1].get_suptitle() == f"{DEACON}: decoder self-attention, layer 1, head 1"
    heads, _ = right.children
    assert heads.options == tuple(range(1, 9))
    heads.value = 5
    widgets["run"].value = BASELINE
    assert shown[-1].get_suptitle() == f"{BASELINE}: decoder self-attention, layer 1, head 5"
    widgets["attention"].value = "encoder 1"
    widgets["text"].value = "dog Ωmega " * 2
    assert "dog" in texts(shown[-1])
    assert "Not in the vocabulary:</b> Ωmega<" in "".join(part.value for part in left.children[-2:])
    _, example = widgets["example"].options[1]
    widgets["example"].value = example
    assert widgets["text"].value == example[0]
    assert f"Reference:</b> {example[2]}" in left.children[-2].value
    widgets["beside it"].value = DEACON
    assert shown[-1].get_suptitle().startswith(f"{BASELINE} and {DEACON}: ")
    monkeypatch.setattr(explorer, "draw_views", lambda *_: (_ for _ in ()).throw(DataError("too long")))
    widgets["text"].value = "cat"
    assert isinstance(shown[-1], Markdown)
    assert shown[-1].data == "too long"


def test_a_training_that_two_experiments_share_opens_as_a_run_of_either(finished, shown):
    path = finished.home / "config" / "tiny.yaml"
    profile = yaml.safe_load(path.read_text())
    profile["experiments"]["deacon/dissection"] = profile["experiments"][EXPERIMENT] | {"variants": ["baseline"]}
    path.write_text(yaml.safe_dump(profile))
    explore("tiny", "deacon/dissection", text=SOURCE, beside="baseline")
    assert shown[-1].get_suptitle().startswith("deacon/dissection baseline seed 1")


# ---- models that come with the project


def test_a_shipped_model_translates_and_comes_back_as_it_was_written(tmp_path, monkeypatch):
    for config in Runs("explorer").configs():
        model = load_shipped(config)
        assert model.task.apply(model, "A brown dog runs through the snow.").startswith("Ein brauner Hund")
        ship(model, model.record["covariances"], tmp_path)
    monkeypatch.setattr(shipped, "model_file", lambda variant: tmp_path / f"{variant}.safetensors")
    reloaded = load_shipped(config)
    assert held_out_covariances(reloaded).keys() == heads_of(reloaded.model).keys()
    for name, tensor in model.model.state_dict().items():
        torch.testing.assert_close(reloaded.model.state_dict()[name], tensor, rtol=0, atol=0)
    assert reloaded.corpus.encode(["Donau"], "target").tolist() == model.corpus.encode(["Donau"], "target").tolist()


def test_without_a_run_of_its_own_the_explorer_opens_with_them(project, monkeypatch):
    monkeypatch.setattr(progress, "interactive", lambda: False)
    shutil.copy(paths.shipped() / "config" / "explorer.yaml", project.home / "config")
    figure = explore(beside="baseline", place="cross 4")
    assert figure.get_suptitle() == (
        "deacon/translation direct-8 seed 1 and deacon/translation baseline seed 1: "
        "encoder-decoder attention, layer 4, head 1"
    )
