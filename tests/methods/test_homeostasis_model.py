"""The method in whole models: options, places, what the results keep, the paper's tables, training."""

import json

import pytest
import torch
from examples import CONFIG, sparse, trained_one_step

from headdiv.companion.experiments.papers import load_paper, task_of
from headdiv.companion.models.transformer import Transformer, count_parameters, initialise
from headdiv.methods import check_method, make_method
from headdiv.nn.dropout import Dropout
from headdiv.nn.linear import Linear
from headdiv.nn.sizes import AttentionSpec, BlockSpec, ModelConfig

GROUPS = {
    "B": sparse("rfb-kwta", "dropout"),
    "C": sparse("dropout", "dropout"),
    "D": sparse("smart", "smart"),
    "E": sparse("rfb-kwta", "smart"),
}


def build(options, config=CONFIG):
    model = Transformer(config, 15, 15, make_method(options))
    initialise(model, 1)
    return model


# ---- places


def test_mechanisms_stand_where_they_are_asked_for():
    method = make_method(sparse("rfb-kwta", "smart", s_att=0.5, s_bo=0.8, q_att=7, q_bo=5))
    for kind in ("encoder", "decoder"):
        found = method.attention(AttentionSpec(kind, 2, 12, 3)).output.inhibition
        assert repr(found) == "Inhibition(rfb-kwta, 3×4 units, s=0.5, Q=7)"
        assert (found.spec.place, found.k) == (f"{kind} 3", 2)
    assert type(method.attention(AttentionSpec("cross", 2, 12, 3)).output) is Linear
    block = method.block_output(BlockSpec("decoder", 0, 12))
    assert repr(block) == "Inhibition(smart, 1×12 units, s=0.8, Q=5)"
    assert block.spec.place == "decoder block 1"


def test_dropout_is_the_projects_own_and_keeps_nothing():
    model = build(sparse("dropout", "dropout", dropout=0.3))
    encoder = model.encoder[0]
    for found in (encoder.attention["encoder"].output.inhibition, encoder.block_output):
        assert isinstance(found, Dropout)
        assert found.p == 0.3
    assert make_method(sparse("dropout", "dropout")).artifacts(model) == {}


# ---- findings


def test_the_results_keep_how_often_each_unit_was_active():
    model, method = trained_one_step(sparse("kwta", "smart", s_att=0.5, s_bo=0.7))
    assert method.artifacts(model) == {}  # nothing is counted before the first step is done
    method.after_backward(model, 0.0)
    found = method.artifacts(model)["activations"]
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["encoder 1", "encoder block 1", "decoder 1", "decoder block 1"]
    heads, block = found["decoder 1"], found["decoder block 1"]
    assert (heads["mechanism"], heads["s"]) == ("kwta", 0.5)
    assert [len(group) for group in heads["shares"]] == [4, 4, 4]
    assert [sum(group) for group in heads["shares"]] == pytest.approx([2, 2, 2], abs=1e-3)
    assert (block["mechanism"], [len(group) for group in block["shares"]]) == ("smart", [12])
    assert sum(block["shares"][0]) / 12 == pytest.approx(0.7, abs=0.15)


# ---- the paper


@pytest.mark.parametrize(
    ("size", "count", "millions"),
    [("small", 23_125_760, 23.1), ("base", 68_271_616, 68.3), ("big", 224_623_616, 224.6)],
)
def test_the_counts_of_table_1(size, count, millions):
    """They follow from vocabularies that keep every word, and biases everywhere; no mechanism has parameters."""
    task = task_of(f"homeostasis/{size}")
    config = ModelConfig(**task.sizes.model)
    for variant in task.variants.values():
        with torch.device("meta"):
            model = Transformer(config, *task.sizes.vocabulary, make_method(check_method(variant.method, config)))
        assert count_parameters(model) == count
    assert round(count / 1e6, 1) == millions == task.variants["baseline"].reported["parameters"] / 1e6


# Table 3, typed from the paper's text: group, then (Q_Att, Q_BO, s, BLEU).
TABLE_3 = {
    "small": {
        "A": [(None, None, None, 0.2727)],
        "B": [(256, None, 0.5, 0.2926), (256, None, 0.7, 0.2898), (256, None, 0.8, 0.3025), (256, None, 0.9, 0.2967)],
    },
    "base": {
        "A": [(None, None, None, 0.2768)],
        "B": [(256, None, 0.5, 0.2848), (256, None, 0.7, 0.2918), (256, None, 0.8, 0.2888), (256, None, 0.9, 0.3046)],
        "C": [(None, None, None, 0.3007)],
        "D": [(256, 1, 0.9, 0.2942), (256, 16, 0.9, 0.3062), (256, 256, 0.9, 0.2948), (256, 1024, 0.9, 0.2854)],
    },
    "big": {
        "A": [(None, None, None, 0.2751)],
        "B": [(256, None, 0.5, 0.2863), (256, None, 0.7, 0.2858), (256, None, 0.8, 0.2913), (256, None, 0.9, 0.2927)],
        "E": [(256, 1, 0.9, 0.2891), (256, 4, 0.9, 0.2913), (256, 16, 0.9, 0.2941), (256, 512, 0.9, 0.2868)],
    },
}


@pytest.mark.parametrize("size", TABLE_3)
def test_table_3(size):
    found = {}
    for row in task_of(f"homeostasis/{size}").variants.values():
        group, method = row.label[1], row.method
        expected = GROUPS[group] if group != "A" else {"name": "baseline", "attention": "none", "block": "none"}
        assert method.get("attention", "none") == expected["attention"]
        assert method.get("block", "none") == expected["block"]
        if "s_bo" in method:
            assert method["s_bo"] == method["s_att"]
        settings = (method.get("q_att"), method.get("q_bo"), method.get("s_att"))
        found.setdefault(group, []).append((*settings, round(row.reported["bleu"] / 100, 4)))
    assert found == TABLE_3[size]


def test_tables_1_and_2():
    rows = task_of("homeostasis/memorisation").variants
    assert {name: tuple(row.reported.values()) for name, row in rows.items()} == {
        "baseline": (95.4, 32.5, 0.705),
        "kwta-20": (96.5, 28.4, 0.728),
        "kwta-50": (97.4, 31.0, 0.743),
    }
    assert [row.method.get("s_att") for row in rows.values()] == [None, 0.2, 0.5]
    tasks = load_paper("homeostasis").tasks
    assert {task.kind for task in tasks.values()} == {"translation"}
    keys = ("d_model", "heads", "d_ff", "encoder_layers", "decoder_layers", "dropout")
    assert {name: tuple(task.sizes.model[key] for key in keys) for name, task in tasks.items()} == {
        "memorisation": (256, 4, 1024, 6, 6, 0.1),
        "small": (256, 4, 1024, 6, 6, 0.1),
        "base": (512, 8, 2048, 6, 6, 0.1),
        "big": (1024, 16, 4096, 6, 6, 0.1),
    }
