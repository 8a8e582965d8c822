"""Models that were saved with fewer heads or with a method: they come back whole, or with an error."""

import json

import pytest
import torch
from attachable import arguments, logits, model_of, other, output
from safetensors.torch import load_file, save_file

import headdiv
from headdiv.core.errors import DataError

DEACON = {"name": "deacon", "architecture": "direct", "m": 3, "gha_steps": 5}


@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_model_with_fewer_heads_and_a_method_loads_back(kind, tmp_path):
    model = model_of(kind)
    headdiv.pretrained.attach(model).remove([("decoder 1", 1), ("decoder 2", 2), ("decoder 2", 3), ("decoder 2", 4)])
    headdiv.insert(model, {**DEACON, "m": 1})
    model.save_pretrained(tmp_path)
    loaded, batch = headdiv.pretrained.load(tmp_path), arguments(model)
    assert torch.equal(logits(loaded, batch), logits(model, batch))
    config = json.loads((tmp_path / "config.json").read_text())
    config["headdiv"]["removed"] = {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"weights do not fit config.json's model: .* has shape .*, expected"):
        headdiv.pretrained.load(tmp_path)


def test_heads_that_were_removed_before_the_model_was_detached_are_remembered(tmp_path):
    model = model_of("bert")
    for gone in ([("encoder 1", 2)], [("encoder 1", 2), ("encoder 2", 1)]):
        heads = headdiv.pretrained.attach(model)
        heads.remove(gone)
        heads.detach()
    assert model.config.headdiv["removed"] == {"encoder 1": [2, 3], "encoder 2": [1]}
    model.save_pretrained(tmp_path)
    loaded, batch = headdiv.pretrained.load(tmp_path), arguments(model)
    assert torch.equal(logits(loaded, batch), logits(model, batch))


def test_a_model_in_half_precision_with_a_method_loads_back(tmp_path):
    model = model_of("gpt2").bfloat16()
    headdiv.insert(model, DEACON)
    model.save_pretrained(tmp_path)
    loaded, batch = headdiv.pretrained.load(tmp_path), arguments(model)
    assert {x.dtype for x in loaded.parameters()} == {torch.bfloat16}
    assert torch.equal(logits(loaded, batch), logits(model.eval(), batch))


def test_parts_that_were_changed_alone_load_back_with_the_whole_model(tmp_path):
    """In turns with the whole model, whose modules have other names: its text and its image stack are both encoders."""
    model, batch = other("clip")
    for part, gone in (
        (model.vision_model, [("encoder 1", 2)]),
        (model, [("encoder 1", 1), ("encoder 3", 1), ("encoder 4", 4)]),
        (model.vision_model, [("encoder 1", 1), ("encoder 2", 1)]),
    ):
        heads = headdiv.pretrained.attach(part)
        heads.remove(gone, batch if part is model else {"pixel_values": batch["pixel_values"]})
        heads.detach()
    headdiv.insert(model.text_model, {**DEACON, "m": 1})
    model.eval().save_pretrained(tmp_path / "whole")
    loaded = headdiv.pretrained.load(tmp_path / "whole")
    assert torch.equal(output(loaded, batch), output(model, batch))
    loaded.vision_model.save_pretrained(tmp_path / "part")
    part, pixels = headdiv.pretrained.load(tmp_path / "part"), {"pixel_values": batch["pixel_values"]}
    assert torch.equal(output(part, pixels), output(model.vision_model, pixels))


def test_a_stack_of_t5_whose_configuration_is_not_saved_is_not_changed_alone():
    model = model_of("t5")
    state = list(model.state_dict())
    headdiv.insert(model.encoder, {"name": "disagreement", "term": "output"})  # a loss alone
    headdiv.remove_method(model.encoder)
    heads = headdiv.pretrained.attach(model.encoder)
    for change in (lambda: heads.remove([("encoder 1", 2)]), lambda: headdiv.insert(model.encoder, "mixing")):
        with pytest.raises(DataError, match=r"T5Stack: .* expected the whole model"):
            change()
        assert list(model.state_dict()) == state
        assert heads.counts["encoder 1"] == 4
    heads.detach()
    headdiv.pretrained.attach(model).remove([("encoder 1", 2)])


@pytest.mark.parametrize("problem", ["is not there", "is unknown"])
def test_a_parameter_that_is_unset_or_unknown_is_an_error(problem, tmp_path):
    model = model_of("bert")
    headdiv.insert(model, DEACON)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if name.endswith("stage.w"))
    weights |= {"bert.own": torch.ones(2)} if problem == "is unknown" else {}
    if problem == "is not there":
        del weights[name]
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(DataError, match=rf"{name if 'not' in problem else 'bert.own'} {problem}"):
        headdiv.pretrained.load(tmp_path)
