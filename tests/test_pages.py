"""The examples of the library's pages work as they stand there; those of docs/training.md are in `test_loops`."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import pytest
import torch
from attachable import arguments, model_of

import headdiv
from headdiv.methods.deacon import pca_layers

DOCS = Path(__file__).parents[1] / "docs"
BERT = {"hidden_size": 48, "num_attention_heads": 12}
PRETRAINED = {"headdiv": headdiv, "torch": torch}  # what the page takes for granted


def examples(page, after=""):
    """The code of a page's examples in Python, or of the first one after a text."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text[text.index(after) :], re.M | re.S)
    return found[0] if after else found


def run(*codes, **names):
    """What the examples leave, one after the other."""
    names = {"__name__": "page", **names}
    for code in codes:
        exec(compile(code, "page", "exec"), names)
    return names


@pytest.mark.usefixtures("own_methods")
def test_the_library():
    torch.manual_seed(0)
    names = run(*examples("library.md"))
    assert names["output"].shape == (8, 9, 64)
    assert names["pushed"].options.weight == 0.2
    assert len(names["layers"]) == 2


def test_heads():
    mpl.use("agg")
    *ours, captum = examples("heads.md")
    names = run(*ours)
    mpl.pyplot.close("all")
    assert len(names["frame"]) == 8
    assert [point.kept for point in names["curve"]] == [8, 6, 4, 2, 0]
    assert sum(names["heads"].counts.values()) == 6
    assert names["padded"].weights.shape == (8, 4, 10, 10)
    assert not torch.equal(names["patched"], names["encoder"](names["corrupted"]))
    if importlib.util.find_spec("captum"):
        names = run(captum, **names)
        assert names["by_head"].shape == (names["encoder"].layers[0].num_heads,)
        assert names["by_head"].abs().min() > 0


def test_heads_of_a_pretrained_model():
    look, *_ = examples("pretrained.md")
    model = model_of("bert", **BERT, num_hidden_layers=4)
    batch, tokenizer = arguments(model, labels=True), SimpleNamespace(all_special_ids=[0])
    given = {"model": model, "batch": batch, "batches": [batch], "tokenizer": tokenizer}
    names = run(look, **PRETRAINED, **given, metric=lambda: float(model(**batch).loss))
    assert {each[:2] for each in names["scores"]} == set(names["order"])
    assert len(names["order"]) == 48
    assert model.config.headdiv["removed"]


def test_a_loop_of_ones_own_with_a_pretrained_model():
    *_, loop = examples("pretrained.md")
    model = model_of("bert", **BERT).eval()
    begin, step = re.split(r"^(?=with )", loop, maxsplit=1, flags=re.M)
    names = run(begin, **PRETRAINED, model=model)
    before = [layer.w.detach().clone() for layer in pca_layers(model).values()]
    run(step, **names, batch=arguments(model, labels=True), progress=0.0, count=15)
    after = [layer.w for layer in pca_layers(model).values()]
    assert len(after) == 2
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_a_model_of_ones_own_learns():
    code = examples("guide.md", "## Train your own model\n")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    torch.manual_seed(1)
    names = run(code)
    assert [point["epoch"] for point in names["curve"]] == [1, 2, 3]
    assert names["curve"][-1]["validation_nll"] < 0.1  # nats; chance is log 20 = 3
    (layer,) = pca_layers(names["model"]).values()
    assert all(layer.w is not p for group in names["trainer"].learner.optimiser.param_groups for p in group["params"])
