"""Training: one run from its configuration to a model on disk, resumed exactly where it was interrupted."""

from __future__ import annotations

import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headdiv import checkpoints, places, progress
from headdiv.config import RunConfig
from headdiv.data.batches import Pairs, batch_numbers, make_batch
from headdiv.data.corpus import Corpus, load_corpus
from headdiv.errors import TrainingError
from headdiv.files import read_json, replacing, write_json
from headdiv.losses import linear_cross_entropy
from headdiv.methods import make_method
from headdiv.methods.base import Method
from headdiv.model import Transformer, count_parameters, initialise
from headdiv.optimise import Learner, must_be_finite
from headdiv.provenance import peak_memory_mib, provenance

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A finished run: what was asked for, what came of it, and the model to work with."""

    config: RunConfig
    folder: Path
    corpus: Corpus
    model: Transformer
    record: dict[str, Any]  # training.json: curve, cost, provenance

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.output_embedding.weight.device


def build_model(config: RunConfig, corpus: Corpus, device: torch.device | str = "cpu") -> tuple[Transformer, Method]:
    """A fresh model, its parameters drawn from the run's seed, and the method that trains it."""
    method = make_method(config.method)
    model = Transformer(config.model, len(corpus.source), len(corpus.target), method.attention)
    initialise(model, config.seed)
    return model.to(device), method


def choose_device() -> torch.device:
    """HEADDIV_DEVICE, else a GPU if there is one, else the CPU."""
    named = os.environ.get("HEADDIV_DEVICE")
    return torch.device(named or ("cuda" if torch.cuda.is_available() else "cpu"))


def train(config: RunConfig, device: torch.device | str | None = None) -> Run:
    """Train the model of ``config``, or load it if that has been done before.

    The run's folder is ``work/<hash>``. A finished run is not trained again; an interrupted one goes on
    from its last checkpoint to the same result, bit for bit on the CPU.

    Raises:
        TrainingError: loss or gradient is not finite. Nothing is recorded; the last checkpoint stays.
        DataError: the data cannot be had.
    """
    folder = run_folder(config)
    if (folder / "training.json").is_file():
        return load_run(config, device)
    device = torch.device(device) if device else choose_device()
    torch.set_num_threads(config.threads)
    corpus = load_corpus(config.data)
    model, method = build_model(config, corpus, device)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config.model_dump(mode="json"))
    record = _Training(config, folder, corpus, model, method, device).run()
    with replacing(folder / "model.safetensors") as temporary:
        checkpoints.save_model(model, temporary)
    write_json(folder / "training.json", record)  # last: its presence says that all else is there
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return Run(config, folder, corpus, model.eval(), record)


def load_run(config: RunConfig, device: torch.device | str | None = None) -> Run:
    """A run that has been trained.

    Raises:
        TrainingError: it has not been trained, or its files are damaged.
    """
    folder = run_folder(config)
    if not (folder / "training.json").is_file():
        raise TrainingError(f"{config.variant}, seed {config.seed}: not trained yet, {folder} holds no finished run")
    torch.set_num_threads(config.threads)
    corpus = load_corpus(config.data)
    model, _ = build_model(config, corpus, device or choose_device())
    checkpoints.load_model(model, folder / "model.safetensors")
    return Run(config, folder, corpus, model.eval(), read_json(folder / "training.json"))


def run_folder(config: RunConfig) -> Path:
    """``work/<hash>``."""
    return places.work() / config.hash


class _Training:
    """One training loop; a class because checkpoint, epoch and step share a dozen values."""

    def __init__(
        self, config: RunConfig, folder: Path, corpus: Corpus, model: Transformer, method: Method, device: torch.device
    ) -> None:
        self.config, self.corpus, self.model, self.device = config, corpus, model, device
        self.name = f"{config.variant} seed {config.seed}"
        self.checkpoints = folder / "checkpoints"
        self.learner = Learner(model, method, config.train)
        # Random batches differ in number from epoch to epoch by a handful at most; the first stands for all.
        self.steps = len(self._plan(0)) * config.train.epochs
        self.provenance = provenance(config.threads, device)  # now: files may change while the run lasts
        self.step = 0
        self.curve: list[dict[str, Any]] = []
        self.epoch: dict[str, Any] = _new_epoch()
        self.seconds = 0.0  # of training proper, earlier tries included
        self.tokens = 0

    def run(self) -> dict[str, Any]:
        torch.manual_seed(self.config.seed)
        self._restore()
        epochs = self.config.train.epochs
        for number in range(len(self.curve), epochs):
            self.model.train()
            name = f"epoch {number + 1}/{epochs}"
            try:
                self._train_epoch(number, name)
                self._finish_epoch(number)
            except TrainingError as error:
                raise TrainingError(f"{self.name}, {name}: {error}") from None
            if number + 1 < epochs:
                self._save()
        return self._record()

    def _train_epoch(self, number: int, name: str) -> None:
        plan, done = self._plan(number), self.epoch["batches"]
        last_saved = time.monotonic()
        with progress.bar(len(plan), name, done) as advance:
            for numbers in plan[done:]:
                began = time.perf_counter()
                batch = make_batch(self.corpus.train.pairs, numbers).to(self.device)
                sums = self.learner.step(batch, self.step + 1, self.steps)
                self.seconds += time.perf_counter() - began
                self.step += 1
                self.tokens += sums.tokens
                for key, value in {"batches": 1, **vars(sums)}.items():
                    self.epoch[key] += value
                advance(f"loss {sums.loss / sums.tokens:.3f}")
                if time.monotonic() - last_saved > self.config.train.checkpoint_seconds:
                    self._save()
                    last_saved = time.monotonic()

    def _plan(self, epoch: int) -> list[list[int]]:
        train = self.config.train
        return batch_numbers(
            self.corpus.train.pairs,
            train.tokens_per_batch,
            seed=self.config.seed,
            epoch=epoch,
            bucketed=train.batching == "bucketed",
        )

    def _finish_epoch(self, number: int) -> None:
        sums, tokens = self.epoch, self.epoch["tokens"]
        valid = teacher_forced(self.model, self.corpus.valid.pairs, self.device)
        must_be_finite("validation loss", valid["nll"], self.step)
        told = {
            "epoch": number + 1,
            "steps": self.step,
            "training_loss": sums["loss"] / tokens,
            "training_nll": sums["nll"] / tokens,
            "training_accuracy": 100 * sums["correct"] / tokens,
            "validation_nll": valid["nll"],
            "validation_accuracy": valid["accuracy"],
        }
        self.curve.append(told)
        self.epoch = _new_epoch()
        progress.say(
            f"{self.name} epoch {number + 1}/{self.config.train.epochs}: "
            f"training loss {told['training_loss']:.4f}, validation loss {told['validation_nll']:.4f}, "
            f"accuracy {told['validation_accuracy']:.2f} %, {self.tokens / self.seconds:,.0f} tokens/s"
        )

    def _record(self) -> dict[str, Any]:
        return {
            "parameters": count_parameters(self.model),
            "data": self.corpus.statistics(),
            "curve": self.curve,
            "cost": {
                "training_seconds": self.seconds,
                "target_tokens_per_second": self.tokens / self.seconds,
                "peak_memory_mib": peak_memory_mib(self.device),
            },
            "provenance": self.provenance,
        }

    def _save(self) -> None:
        state = {key: getattr(self, key) for key in ("step", "curve", "epoch", "seconds", "tokens")}
        checkpoints.save(self.checkpoints, self.step, self.model, self.learner.optimiser, state)

    def _restore(self) -> None:
        state = checkpoints.restore(self.checkpoints, self.model, self.learner.optimiser, self.device)
        for key, value in (state or {}).items():
            setattr(self, key, value)
        if state:
            progress.say(f"{self.name}: going on from step {self.step}")


def _new_epoch() -> dict[str, Any]:
    return {"batches": 0, "tokens": 0, "loss": 0.0, "nll": 0.0, "correct": 0}


@torch.no_grad()
def teacher_forced(model: Transformer, pairs: Pairs, device: torch.device, tokens: int = 4000) -> dict[str, float]:
    """Loss in nats a token and accuracy in percent when every word is predicted from the right ones before it."""
    model.eval()
    nll = correct = count = 0.0
    plan = batch_numbers(pairs, tokens, seed=None)
    for numbers in plan:
        batch = make_batch(pairs, numbers).to(device)
        hidden = model(batch)
        _, plain, right = linear_cross_entropy(hidden, model.output_embedding.weight, batch.target_out)
        nll, correct, count = nll + plain.item(), correct + right.item(), count + len(hidden)
    return {"nll": nll / count, "accuracy": 100 * correct / count}
