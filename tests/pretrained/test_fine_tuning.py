"""A small random model learns to summarise real documents, with a method, interrupted, saved and loaded."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from attachable import logits

import headdiv

MIRROR = os.environ.get("HEADDIV_MIRROR")
DOCUMENTS, WORDS = 256, 2000
DISAGREEMENT = {"name": "disagreement", "term": "output", "weight": 10.0}
DEACON = {"name": "deacon", "architecture": "direct", "m": 4}


def summaries(split, count):
    lines = Path(MIRROR, "xsum", f"{split}.jsonl").read_text(encoding="utf-8").splitlines()[:count]
    records = [json.loads(line) for line in lines]
    return [record["document"] for record in records], [record["summary"] for record in records]


def loss_of(model, batches):
    with torch.no_grad():
        return sum(float(model(**batch).loss) for batch in batches) / len(batches)


def fine_tuned(folder, method, resume=False):
    """The trainer after three epochs, and the loss on held-out documents before and after."""
    import transformers

    (documents, answers), held_out = summaries("train", DOCUMENTS), summaries("val", 64)
    tokenizer = headdiv.pretrained.small_tokenizer([*documents, *answers], WORDS)
    sizes = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "dropout": 0.0}
    model = headdiv.pretrained.small_model("bart", WORDS, **sizes)
    examples = headdiv.pretrained.text_examples(model, tokenizer, documents, targets=answers, length=64)
    batches = list(headdiv.pretrained.text_batches(model, tokenizer, held_out[0], held_out[1], length=64))
    before = loss_of(model, batches)
    arguments = transformers.TrainingArguments(
        str(folder), num_train_epochs=3, per_device_train_batch_size=8, learning_rate=3e-3, seed=1, report_to=[],
        logging_steps=32, save_strategy="epoch", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = headdiv.pretrained.Trainer(model=model, args=arguments, train_dataset=examples, method=method)
    trainer.train(resume_from_checkpoint=resume)
    after = loss_of(model.eval(), batches)
    cosine = headdiv.pretrained.attach(model).table(batches, tokenizer.all_special_ids)["cosine"].mean()
    return trainer, batches, {"before": before, "after": after, "cosine": float(cosine)}


@pytest.mark.slow
@pytest.mark.skipif(not MIRROR, reason="needs the real data: HEADDIV_MIRROR")
def test_fine_tuning_on_summaries_learns_resumes_and_loads_back(tmp_path, capsys):
    found = {}
    for method in ({"name": "baseline"}, DISAGREEMENT, DEACON):
        trainer, batches, found[method["name"]] = fine_tuned(tmp_path / method["name"], method)
        assert found[method["name"]]["after"] < found[method["name"]]["before"] - 0.5
    with capsys.disabled():
        print(json.dumps(found, indent=1))
    assert found["disagreement"]["cosine"] < found["baseline"]["cosine"]
    folder, last = tmp_path / "deacon", f"checkpoint-{3 * DOCUMENTS // 8}"
    loaded = headdiv.pretrained.load(folder / last)
    assert torch.equal(logits(loaded, batches[0]), logits(trainer.model, batches[0]))
    shutil.rmtree(folder / last)  # as if interrupted in the third epoch
    _, _, again = fine_tuned(folder, DEACON, resume=True)
    assert again == pytest.approx(found["deacon"], abs=1e-3)
