"""docs/training.md: every loop ends with the parameters that headdiv's own trainer, or its mixin, ends with."""

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from attachable import random_model
from torch import nn

import headdiv
from headdiv.core.errors import ConfigError, TrainingError
from headdiv.integrations import LightningHooks

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
SETUP, OURS, OWN, ACCELERATE, LIGHTNING = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def run(*codes, **names):
    for code in codes:
        exec(compile(code, PAGE.name, "exec"), names)
    return SimpleNamespace(**names)


def must_be_equal(model, expected):
    torch.testing.assert_close(dict(model.named_parameters()), dict(expected.named_parameters()), rtol=1e-3, atol=1e-5)


def test_our_own_reports_each_step_and_logs():
    page = run(SETUP, OURS)
    steps = [(step, numbers) for step, numbers in page.logged if "learning_rate" in numbers]
    assert [step for step, _ in steps] == [*range(1, 9)]
    assert all(numbers["auxiliary_loss"] and numbers["learning_rate"] == 0.1 for _, numbers in steps)
    epochs = [(step, numbers) for step, numbers in page.logged if "epoch" in numbers]
    assert [step for step, _ in epochs] == [4, 8]
    assert epochs[1][1]["training_loss"] == page.curve[1]["training_loss"]


def test_a_loop_of_ones_own_and_accelerates_are_the_same():
    page = run(SETUP, OURS, OWN, ACCELERATE)
    must_be_equal(page.own_loop(), page.model)
    must_be_equal(page.accelerated, page.model)


class Between(headdiv.Method):
    """Notes what it is given between epochs."""

    def after_epoch(self, end):
        assert isinstance(end.optimiser, torch.optim.Optimizer)
        return {"ended": end.epoch, "of": end.epochs, "before": len(end.history)}


NOTED = [{"ended": 1, "of": 3, "before": 0}, {"ended": 2, "of": 3, "before": 1}]


# ---- Lightning


def fit(callback, module, batches, epochs=2, clip=1.0, by_steps=False):
    """Lightning's order of hooks."""
    optimiser, most = module.configure_optimizers(), -1 if by_steps else epochs
    trainer = SimpleNamespace(global_step=0, estimated_stepping_batches=len(batches) * epochs, max_epochs=most)
    trainer.optimizers = [optimiser]
    callback.on_fit_start(trainer, module)
    for trainer.current_epoch in range(epochs):
        for index, batch in enumerate(batches):
            optimiser.zero_grad()
            if (loss := module.training_step(batch, index)) is not None:
                loss.backward()
            callback.on_before_optimizer_step(trainer, module, optimiser)
            nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimiser.step()
            trainer.global_step += 1
        callback.on_train_epoch_end(trainer, module)
    callback.on_fit_end(trainer, module)


class Module(nn.Module):
    """In the place of a LightningModule."""

    def __init__(self, page):
        super().__init__()
        self.model, self.method = page.new_model()
        self.loss_of, self.logged = page.loss_of, []

    def training_step(self, batch, index):
        return self.loss_of(self.model, batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def log(self, name, value):
        self.logged.append((name, float(value)))


def test_lightnings_hooks_train_the_same_model():
    page = run(SETUP, OURS)
    module = Module(page)
    fit(LightningHooks(module.method, count=torch.numel), module, page.batches)
    must_be_equal(module.model, page.model)
    expected = [numbers["auxiliary_loss"] for _, numbers in page.logged if "learning_rate" in numbers]
    assert [value for _, value in module.logged] == pytest.approx(expected, rel=1e-3)
    assert "training_step" not in vars(module)


class Skipping(Module):
    """Every second batch is skipped, before the model has run or after a pass that only renews statistics."""

    def __init__(self, page, runs):
        super().__init__(page)
        self.runs = runs

    def training_step(self, batch, index):
        skipped = index % 2 == 1
        loss = None if skipped and not self.runs else super().training_step(batch, index)
        return None if skipped else loss


@pytest.mark.parametrize("runs", [False, True])
def test_lightnings_hooks_learn_nothing_from_a_batch_that_is_skipped(runs):
    page = run(SETUP)
    modules = Skipping(page, runs), Module(page)
    for module, batches in zip(modules, (page.batches, page.batches[::2]), strict=True):
        fit(LightningHooks(module.method, count=torch.numel), module, batches)
    must_be_equal(*modules)


@pytest.mark.parametrize("by_steps", [False, True])
def test_lightnings_hooks_act_between_epochs_and_go_on_from_a_checkpoint(by_steps):
    page = run(SETUP)
    module = Module(page)
    module.model, module.method = page.Reverser(), Between()
    hooks = LightningHooks(module.method)
    fit(hooks, module, page.batches, epochs=3, by_steps=by_steps)
    again = LightningHooks(module.method)
    again.load_state_dict(hooks.state_dict())
    assert again.history == NOTED


def test_lightnings_hooks_refuse_what_they_cannot_do():
    with pytest.raises(ConfigError, match="expected the argument 'count'"):
        LightningHooks(headdiv.make_method("mixing"))
    with pytest.raises(TrainingError, match="the method found no heads"):
        LightningHooks(headdiv.make_method("deacon", m=2)).on_fit_start(None, run(SETUP).Reverser())


def test_lightning_itself_trains_the_same_model():
    pytest.importorskip("lightning")
    page = run(SETUP, OURS)
    must_be_equal(run(SETUP, LIGHTNING).module.model, page.model)


# ---- transformers


def trained(page, folder, method, **settings):
    args = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=3, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
        **{"num_train_epochs": 2, "max_grad_norm": 0.0, "learning_rate": 1e-2, "optim": "sgd", **settings}
    )  # fmt: skip
    sizes = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    model = random_model("gpt2", vocab_size=12, **sizes).train()
    rows = [{"input_ids": words, "labels": words.flip(0)} for words in torch.cat(page.batches)]
    torch.manual_seed(4)
    trainer = headdiv.pretrained.Trainer(model, args, train_dataset=rows, method=method)
    trainer.train()
    return trainer


DISAGREEMENT = {"name": "disagreement", "term": "output", "weight": 0.1}


@pytest.mark.parametrize("length", [{"num_train_epochs": 3}, {"max_steps": 24}], ids=str)
def test_transformers_training_lets_a_method_act_between_epochs(length, tmp_path):
    trainer = trained(run(SETUP), tmp_path, Between(), **length)
    assert [entry["method"] for entry in trainer.state.log_history if "method" in entry] == NOTED


@pytest.mark.parametrize("options", [{"name": "deacon", "m": 3}, DISAGREEMENT], ids=lambda options: options["name"])
def test_transformers_training_learns_nothing_from_batches_that_are_skipped(options, tmp_path, monkeypatch):
    step, seen = transformers.Trainer.training_step, []

    def skipping(trainer, model, inputs, *more):
        if trainer.state.global_step >= 1:
            seen.append(copy.deepcopy(model))
            return torch.zeros(())
        return step(trainer, model, inputs, *more)

    monkeypatch.setattr(transformers.Trainer, "training_step", skipping)
    model = trained(run(SETUP), tmp_path, options).model
    assert len(seen) > 2
    must_be_equal(model, seen[0])


def test_transformers_training_may_be_validated_between_accumulated_batches(tmp_path, monkeypatch):
    """Or given a pass that only renews statistics: neither has a loss, and both leave the step as it was."""
    page, models, passes, step = run(SETUP), [], [], transformers.Trainer.training_step

    def disturbed(trainer, model, inputs, *more):
        result = step(trainer, model, inputs, *more)
        with torch.random.fork_rng():
            for training, grad in ((False, False), (True, False), (True, True)):
                with torch.set_grad_enabled(grad):
                    model.train(training)(input_ids=inputs["input_ids"])
                    passes.append(training)
        return result

    for training_step in (step, disturbed):
        monkeypatch.setattr(transformers.Trainer, "training_step", training_step)
        models.append(trained(page, tmp_path, DISAGREEMENT, gradient_accumulation_steps=2).model)
    assert passes
    must_be_equal(*models)
