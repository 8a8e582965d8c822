"""What works with which architecture of transformers; the table of docs/architectures.md is made from it.

Attaching changes no bit, and no generated token; masking acts; with heads removed, outputs are the masked model's up to
rounding; with heads removed or a method inserted, saving and loading changes no bit. What does not work is refused.
"""

import os
from pathlib import Path

import pytest
import torch
from attachable import EVERY, other

import headdiv
from headdiv.core.errors import HeaddivError

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
LEAST = 50  # architectures that can be attached, and have a method inserted

REFUSED = {  # what is not there: refused in one sentence
    "attach": {"diffllama", "qwen3_next", "deberta", "megatron-bert", "bloom", "falcon", "xglm", "gptj", "gpt_neo"},
    "remove": {"yolos", "gpt_oss", "olmo2", "gpt_bigcode", "umt5", "doge", "swin", "phi3"},
    "insert": {"siglip"},
}


@torch.no_grad()
def outputs(model, batch):
    """Of one pass; what a model draws is the same in each."""
    torch.manual_seed(0)
    return model(**batch)[0]


def attached_outputs(model, batch):
    headdiv.pretrained.attach(model)
    return outputs(model, batch)


def model_of(kind):
    torch.manual_seed(5)
    return other(kind)


def saved_and_loaded(model, folder):
    model.save_pretrained(folder)
    return headdiv.pretrained.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_an_architecture_does_what_the_table_says(kind, tmp_path):
    model, batch = model_of(kind)
    plain = outputs(model, batch)
    ids = {"input_ids": torch.arange(4, 9)[None]}
    generates = can_generate(model, batch)
    generated = model.generate(**ids, max_new_tokens=3, do_sample=False) if generates else None
    if kind in REFUSED["attach"]:
        with pytest.raises(HeaddivError):
            attached_outputs(model, batch)
        return
    heads = headdiv.pretrained.attach(model)
    place = next(iter(heads.counts))
    with heads.record() as records:
        assert torch.equal(outputs(model, batch), plain)
    assert {record.spec.name for record in records} == {*heads.counts}
    with heads.without([(place, 1)]):
        masked = outputs(model, batch)
    assert not torch.equal(masked, plain)
    if generates:
        assert torch.equal(model.generate(**ids, max_new_tokens=3, do_sample=False), generated)
    if kind in REFUSED["remove"]:
        with pytest.raises(HeaddivError, match="does not work with fewer heads"):
            heads.remove([(place, 1)], batch)
    else:
        heads.remove([(place, 1)], batch)
        torch.testing.assert_close(outputs(model, batch), masked, rtol=1e-3, atol=1e-3)
        removed = outputs(model, batch)
        assert torch.equal(outputs(saved_and_loaded(model, tmp_path / "removed"), batch), removed)
    model, batch = model_of(kind)
    if kind in REFUSED["insert"]:
        with pytest.raises(HeaddivError):
            headdiv.insert(model, {"name": "mixing"})
        assert torch.equal(outputs(model, batch), plain)
        return
    headdiv.insert(model, {"name": "mixing"})
    with torch.no_grad():
        for module in headdiv.inserted_modules(model).values():
            for parameter in module.parameters():
                parameter += 0.1
    inserted = outputs(model, batch)
    assert not torch.equal(inserted, plain)
    assert torch.equal(outputs(saved_and_loaded(model, tmp_path / "inserted"), batch), inserted)


def can_generate(model, batch):
    return "input_ids" in batch and hasattr(model, "generate") and model.can_generate()


def test_the_table_of_the_page_is_this():
    assert len(EVERY) - len(REFUSED["attach"] | REFUSED["insert"]) >= LEAST
    lacks = {kind: {what for what, kinds in REFUSED.items() if kind in kinds} for kind in EVERY}
    rows = {
        "everything": set(),
        "all but removing heads": {"remove"},
        "all but inserting": {"insert"},
        "nothing": {"attach"},
    }
    lines = ["| what works | architectures |", "|---|---|"]
    for works, refused in rows.items():
        lines.append(f"| {works} | {', '.join(sorted(kind for kind in EVERY if lacks[kind] == refused))} |")
    assert all(refused in rows.values() for refused in lacks.values())
    head, _, _ = PAGE.read_text().partition("| what works |")
    page = head + "\n".join(lines) + "\n"
    if os.environ.get("HEADDIV_UPDATE_GOLDEN"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page
