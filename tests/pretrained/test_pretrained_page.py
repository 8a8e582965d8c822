"""The examples of docs/pretrained.md, as they stand there."""

import re
from pathlib import Path
from types import SimpleNamespace

import torch
from attachable import arguments, model_of

import headdiv
from headdiv.methods.deacon import pca_layers

PAGE = Path(__file__).parents[2] / "docs" / "pretrained.md"
BERT = {"hidden_size": 48, "num_attention_heads": 12}
LOOK, _, LOOP = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def run(code, **names):
    names |= {"headdiv": headdiv, "torch": torch}
    exec(compile(code, PAGE.name, "exec"), names)
    return names


def test_heads_are_looked_at_masked_ranked_and_removed():
    model = model_of("bert", **BERT, num_hidden_layers=4)
    batch, tokenizer = arguments(model, labels=True), SimpleNamespace(all_special_ids=[0])
    metric = headdiv.pretrained.mean_loss(model, [batch])
    names = run(LOOK, model=model, batch=batch, batches=[batch], tokenizer=tokenizer, metric=metric)
    assert {each[:2] for each in names["scores"]} == set(names["order"])
    assert len(names["order"]) == 48
    assert model.config.headdiv["removed"]


def test_any_other_loop_trains_a_model_that_was_just_loaded():
    model = model_of("bert", **BERT).eval()
    begin, step = re.split(r"^(?=with )", LOOP, maxsplit=1, flags=re.M)
    names = run(begin, model=model)
    before = [layer.w.detach().clone() for layer in pca_layers(model).values()]
    run(step, **names, batch=arguments(model, labels=True), progress=0.0, count=15)
    after = [layer.w for layer in pca_layers(model).values()]
    assert len(after) == 2
    assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True))
