"""Pictures of heads draw what they are given, into the axes that they are given."""

import math
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot

import headdiv
from headdiv import plots
from headdiv.analysis import similarity
from headdiv.analysis.masking import HeadChange
from headdiv.analysis.similarity import Observed, compare_heads
from headdiv.core.errors import ConfigError, DataError

mpl.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.ModuleList(headdiv.MultiheadAttention(8, 4, batch_first=True) for _ in range(2))


@pytest.fixture
def records(model):
    padding = torch.arange(5) >= torch.tensor([[5], [3]])
    x = torch.randn(2, 5, 8)
    with headdiv.record_heads(model) as records:
        for module in model:
            module(x, x, x, padding)
    return records


def image_of(ax):
    (image,) = ax.images
    return np.asarray(image.get_array())


def texts(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_a_measure_of_every_head_is_a_row_for_each_module():
    attention = headdiv.MultiheadAttention(8, 4)
    frame = headdiv.ModelHeads(attention, lambda x: attention(x, x, x)).to_frame([torch.randn(5, 2, 8)])
    ax = plots.head_map(frame, "entropy")
    assert image_of(ax) == pytest.approx(frame["entropy"].to_numpy()[None])
    assert (texts(ax.yaxis), texts(ax.xaxis)) == (["encoder 1"], ["1", "2", "3", "4"])
    assert len(ax.texts) == 4
    _, own_ax = pyplot.subplots()
    assert plots.head_map(frame["cosine"], ax=own_ax) is own_ax
    assert own_ax.images[0].norm.vmin == -own_ax.images[0].norm.vmax  # signed
    change = plots.head_map(frame["entropy"].rename("loss change") - 1e-3 - frame["entropy"].mean()).images[0]
    assert change.norm.vmin == -change.norm.vmax  # so is what has negative values
    assert "units of 0.001" in plots.head_map(0.001 + 0 * frame["entropy"]).get_title()
    with pytest.raises(DataError, match="measure: found None, expected one of confidence, entropy, "):
        plots.head_map(frame)


def test_modules_of_different_numbers_of_heads_stand_in_their_order():
    index = pd.MultiIndex.from_tuples(
        [("encoder 2", 1), ("encoder 10", 1), ("encoder 10", 2)], names=["module", "head"]
    )
    ax = plots.head_map(pd.Series([1.0, 2.0, 3.0], index, name="entropy"))
    assert texts(ax.yaxis) == ["encoder 2", "encoder 10"]
    assert np.isnan(np.ma.filled(ax.images[0].get_array(), np.nan)[0, 1])


def test_the_similarity_of_every_two_heads_is_that_of_the_measures(records):
    ax = plots.similarity_map(records, "encoder 2", "cosine")
    ((_, expected),) = compare_heads([Observed([records[1]], {})])
    assert image_of(ax) == pytest.approx(expected.cosine.numpy())
    for name in (None, "encoder 3"):
        with pytest.raises(DataError, match=f"name: found {name!r}, .*: encoder 1, encoder 2"):
            plots.similarity_map(records, name)
    with pytest.raises(DataError, match="measure: found 'cosin', expected one of cosine, l2"):
        plots.similarity_map(records, "encoder 2", "cosin")


def test_the_similarity_is_that_of_all_records(model, monkeypatch):
    monkeypatch.setattr(similarity, "ENOUGH", 1)
    with headdiv.record_heads(model) as records:
        for x in torch.randn(2, 2, 5, 8):
            model[0](x, x, x)
    ((_, expected),) = compare_heads([Observed([record], {}) for record in records], enough=math.inf)
    assert image_of(plots.similarity_map(records)) == pytest.approx(expected.cka.numpy())


def test_an_attention_map_is_of_one_sentence_without_padding(records):
    ax = plots.attention_map(records[0], head=2, sentence=1, tokens=["a", "b", "c"])
    assert image_of(ax) == pytest.approx(records[0].weights[1, 1, :3, :3].detach().numpy())
    assert texts(ax.xaxis) == texts(ax.yaxis) == ["a", "b", "c"]
    with pytest.raises(DataError, match="tokens: found 2 and 2, expected 3 queries and 3 keys"):
        plots.attention_map(records[0], sentence=1, tokens=["a", "b"])
    ax = plots.attention_map(records[0], tokens=(list("abcde"), list("vwxyz")))
    assert (texts(ax.yaxis), texts(ax.xaxis)) == (list("abcde"), list("vwxyz"))
    with pytest.raises(DataError, match="found head 5 of sentence 0, expected 1 to 4 of 0 to 1"):
        plots.attention_map(records[0], head=5)


def test_records_without_weights_are_refused(model):
    with headdiv.record_heads(model, weights=False) as records:
        model[0](*[torch.randn(1, 3, 8)] * 3, need_weights=False)
    for draw in (plots.attention_map, lambda record: plots.similarity_map([record])):
        with pytest.raises(DataError, match="encoder 1: recorded without attention weights"):
            draw(records[0])


def test_what_is_no_number_has_no_colour_and_ranks_last():
    """The similarity of a module's only head with others; the importance of a head without which the loss is NaN."""
    index = pd.MultiIndex.from_tuples([("encoder 1", 1), ("encoder 2", 1)], names=["module", "head"])
    ax = plots.head_map(pd.Series([math.nan, math.nan], index, name="cosine"))
    assert not ax.texts
    changes = [HeadChange("encoder 1", head, change) for head, change in enumerate((0.2, math.nan, 0.1, 0.3), 1)]
    assert [head for _, head in headdiv.pretrained.least_important_first(changes)] == [3, 1, 4, 2]


def test_without_matplotlib_a_sentence_says_what_to_install(records, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'headdiv\[plots\]'"):
        plots.attention_map(records[0])
