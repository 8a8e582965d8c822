"""Runs of every task that train in a second, each test file in a project folder of its own."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from surroundings import Power, fail_after

from headdiv.companion.experiments.running import build_model, run_folder, task_loss, train
from headdiv.companion.models.batching import IGNORED
from headdiv.companion.models.losses import linear_cross_entropy
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Run, vocabulary_of
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.files import read_json, write_json
from headdiv.methods import check_method
from headdiv.training.learner import Learner

METHODS = {
    "baseline": {"name": "baseline"},
    "direct-2": {"name": "deacon", "architecture": "direct", "m": 2},
    "average-2": {"name": "deacon", "architecture": "average", "m": 2},
    "nonlinear-3": {"name": "deacon", "architecture": "nonlinear", "m": 3},
}
_MODEL = {"d_model": 16, "heads": 4, "d_ff": 16}
_ONE_LAYER = _MODEL | {"encoder_layers": 1, "decoder_layers": 1}
_TRAIN = {"epochs": 3, "learning_rate": 0.01, "warmup_steps": 5}
SMALL = {
    "summarisation": {
        "data": {"name": "toy", "examples": 150, "held_out": 8, "document_words": 25, "summary_words": 12}
        | {"min_frequency": 1},
        "model": _ONE_LAYER,
        "train": _TRAIN | {"tokens_per_batch": 500},
        "decode": {"beam": 2, "max_length_factor": 0, "max_length_offset": 8},
    },
    "qa": {
        "data": {"name": "toy", "examples": 150, "held_out": 20, "min_frequency": 1},
        "model": _ONE_LAYER,
        "train": _TRAIN | {"tokens_per_batch": 400},
        "decode": {"max_answer_words": 4},
    },
    "lm": {
        "data": {"name": "toy", "examples": 100, "vocabulary_size": 300, "context": 32, "block": 16}
        | {"epoch_tokens": 3200},
        "model": _MODEL | {"layers": 1},
        "train": _TRAIN | {"tokens_per_batch": 256},
        "decode": {"prompt_tokens": 4, "new_tokens": 8},
    },
}
EVERY_TASK = {
    "translation": {
        "data": {"name": "toy", "examples": 60, "held_out": 8, "min_frequency": 1},
        "model": _ONE_LAYER,
        "train": _TRAIN | {"tokens_per_batch": 170},
        "decode": {"beam": 2, "max_length_factor": 1.0, "max_length_offset": 4},
    },
    **SMALL,
    "mlm": SMALL["lm"] | {"decode": {}},
}


def small_config(task, variant="baseline", seed=1, **sections):
    """The small run of a task, with keys of its sections replaced."""
    settings = {name: keys | sections.get(name, {}) for name, keys in EVERY_TASK[task].items()}
    if "files" in settings["data"]:  # one's own; without the keys of the toy corpora
        settings["data"] = {
            key: value for key, value in settings["data"].items() if key not in ("examples", "held_out")
        }
    kind = TASKS[task]
    model = kind.Model(**settings["model"])
    return RunConfig(
        paper="deacon",
        task=task,
        kind=task,
        variant=variant,
        data=kind.Data(**settings["data"]),
        model=model,
        method=check_method(METHODS[variant], model),
        train=TrainConfig(**settings["train"]),
        decode=kind.Decode(**settings["decode"]),
        seed=seed,
    )


def untrained(config, model=None):
    """A run with its model as it starts out, or with a model of the test's own."""
    corpus = TASKS[config.task].load(config.data)
    folder = run_folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    fresh, _ = build_model(config, vocabulary_of(corpus))
    record = {
        "parameters": 1,
        "data": corpus.statistics,
        "curve": [{"epoch": 1, "validation_nll": 2.0}],
        "cost": {"training_seconds": 43200.0},
        "provenance": {},
    }
    return Run(config, folder, corpus, (model or fresh).eval(), record)


def learner_of(model, method, train, task="translation"):
    """A learner of a task's model; the method observes no held-out batches."""
    loss = task_loss(RunConfig.model_construct(kind=task, train=train), model)
    return Learner(model, loss, method, train, observe=lambda: iter(()))


def result(folder):
    """What must be equal for equal runs: every tensor's bytes, and the whole curve."""
    tensors = {name: t.numpy().tobytes() for name, t in sorted(load_file(folder / "model.safetensors").items())}
    return tensors, read_json(folder / "training.json")["curve"]


def interrupt(config, *steps):
    """Tries that end after these numbers of steps, each with torch's generator in another state."""
    for count in steps:
        with pytest.MonkeyPatch.context() as patch:
            fail_after(patch, count)
            with pytest.raises(Power):
                train(config)
        torch.manual_seed(12345)
    assert not (run_folder(config) / "training.json").exists()


def assert_loss_is_literal(losses, hidden, weight, targets, smoothing):
    """Sums over the rows that have a target, one row after the other in float64; returns how many these are."""
    log_p = (hidden @ weight.T).double().log_softmax(-1)
    nll = uniform = 0.0
    correct = count = 0
    for row, target in zip(log_p, targets.tolist(), strict=True):
        if target != IGNORED:
            nll -= row[target].item()
            uniform -= row.mean().item()
            correct += int(row.argmax()) == target
            count += 1
    assert losses.nll.item() == pytest.approx(nll, rel=1e-5)
    assert losses.loss.item() == pytest.approx((1 - smoothing) * nll + smoothing * uniform, rel=1e-5)
    assert (int(losses.correct), losses.count) == (correct, count)
    return count


def assert_gradients_of_the_loss(model, batch, words, patch):
    """`gradcheck` of the loss by every parameter, with both ways of attention; the first ``words`` can be targets."""
    names, values = zip(*model.named_parameters(), strict=True)
    there = batch.targets != IGNORED

    def loss(*parameters):
        values_by_name = dict(zip(names, parameters, strict=True))
        hidden = torch.func.functional_call(model, values_by_name, (batch,))[there]
        return linear_cross_entropy(hidden, values_by_name["embedding.weight"][:words], batch.targets[there])[0]

    assert torch.autograd.gradcheck(loss, values)
    patch.setattr("headdiv.nn.packing.WIDE", 0)
    assert torch.autograd.gradcheck(loss, values)


def put_squad(path: Path, *paragraphs):
    """A file in SQuAD's form: (context, {question's id: (question, gold answers)}) a paragraph.

    An answer is a text, at its first place in the context, or (text, answer_start).
    """
    records = []
    for context, questions in paragraphs:
        qas = []
        for id, (question, *golds) in questions.items():
            pairs = [gold if isinstance(gold, tuple) else (gold, context.index(gold)) for gold in golds]
            answers = [{"text": text, "answer_start": start} for text, start in pairs]
            qas.append({"id": id, "question": question, "answers": answers})
        records.append({"context": context, "qas": qas})
    write_json(path, {"version": "1.1", "data": [{"title": "t", "paragraphs": records}]})
    return str(path)


def randomise(model, seed=3):
    """Norms and biases, which start as ones and zeros, count too; and running statistics."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            if ("norm" in name or "bias" in name or name.endswith(".b")) and values.is_floating_point():
                values.add_(0.3 * torch.rand(values.shape, generator=generator, dtype=values.dtype))
    return model
