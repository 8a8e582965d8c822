"""Training: one run from its configuration to a model on disk, resumed exactly where it was interrupted."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import nn

from headdiv.core import distributed, paths, progress
from headdiv.core.errors import TrainingError
from headdiv.core.files import read_json, replacing, short_hash, write_json
from headdiv.core.provenance import peak_memory_mib, provenance
from headdiv.data.cache import content_key
from headdiv.methods import make_method
from headdiv.methods.base import EpochEnd, Method
from headdiv.nn.transformer import count_parameters, initialise
from headdiv.tasks import TASKS
from headdiv.tasks.base import Run, held_out_loss, observed_heads, vocabulary_of
from headdiv.tasks.config import RunConfig
from headdiv.training import checkpoints
from headdiv.training.optimiser import Learner, must_be_finite


def build_model(
    config: RunConfig, vocabulary: tuple[int, ...], device: torch.device | str = "cpu"
) -> tuple[nn.Module, Method]:
    """A fresh model, its parameters drawn from the run's seed, and the method that trains it.

    Args:
        config: of the run.
        vocabulary: sizes, as `Task.vocabulary` gives them.
        device: where the model goes; "meta" allocates and draws nothing.
    """
    method = make_method(config.method)
    with torch.device("meta" if str(device) == "meta" else "cpu"):
        model = TASKS[config.kind].build(config, vocabulary, method)
    if str(device) == "meta":
        return model, method
    initialise(model, config.seed)
    return model.to(device), method


def choose_device() -> torch.device:
    """HEADDIV_DEVICE, else this rank's GPU if there is one, else the CPU."""
    named = os.environ.get("HEADDIV_DEVICE")
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return torch.device(named or (own if torch.cuda.is_available() else "cpu"))


def train(config: RunConfig, device: torch.device | str | None = None) -> Run:
    """Train the model of ``config``, or load it if that has been done before.

    The run's folder is ``work/<name>`` (`run_name`). A finished run is not trained again; an interrupted one goes on
    from its last checkpoint to the same result, bit for bit on the CPU. Started by `torchrun`, all ranks
    learn from every batch together; the first alone writes files.

    Raises:
        TrainingError: loss or gradient is not finite. Nothing is recorded; the last checkpoint stays.
        DataError: the data cannot be had.
    """
    device = torch.device(device) if device else choose_device()
    folder = run_folder(config)
    with distributed.process_group(device), _alone(folder):
        if distributed.agreed(not (folder / "training.json").is_file()):
            _train(config, folder, device)
        distributed.wait()
    return load_run(config, device)


def _alone(folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Two processes may ask for one run, which has one folder: the second waits, and finds it finished."""
    if not distributed.is_first():
        return contextlib.nullcontext()
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".lock")


def _train(config: RunConfig, folder: Path, device: torch.device) -> None:
    torch.set_num_threads(config.threads)
    task = TASKS[config.kind]
    if distributed.is_first():
        task.load(config.data)  # prepares it where that is still to be done
    distributed.wait()
    corpus = task.load(config.data)
    model, method = build_model(config, vocabulary_of(corpus), device)
    if distributed.is_first():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", config.model_dump(mode="json"))
    record = _Training(config, folder, corpus, model, method, device).run()
    if distributed.is_first():
        with replacing(folder / "model.safetensors") as temporary:
            checkpoints.save_model(model, temporary)
        write_json(folder / "training.json", record)  # last: its presence says that all else is there
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def load_run(config: RunConfig, device: torch.device | str | None = None) -> Run:
    """A run that has been trained.

    Raises:
        TrainingError: it has not been trained, or its files are damaged.
    """
    folder = run_folder(config)
    if not (folder / "training.json").is_file():
        raise TrainingError(f"{config.variant}, seed {config.seed}: not trained yet, {folder} holds no finished run")
    torch.set_num_threads(config.threads)
    task = TASKS[config.kind]
    corpus = task.load(config.data)
    model, _ = build_model(config, vocabulary_of(corpus), device or choose_device())
    checkpoints.load_model(model, folder / "model.safetensors")
    return Run(config, folder, corpus, model.eval(), read_json(folder / "training.json"))


def run_name(config: RunConfig) -> str:
    """Names a trained model by all that decides it: its configuration and the content of its corpus."""
    return short_hash([config.hash, content_key(config.data)])


def run_folder(config: RunConfig) -> Path:
    """``work/<name>``."""
    return paths.work() / run_name(config)


class _Training:
    """One training loop; a class because checkpoint, epoch and step share a dozen values."""

    def __init__(
        self, config: RunConfig, folder: Path, corpus: Any, model: nn.Module, method: Method, device: torch.device
    ) -> None:
        self.config, self.corpus, self.model, self.device = config, corpus, model, device
        self.task = TASKS[config.kind]
        self.name = f"{config.paper}/{config.task} {config.variant} seed {config.seed}"
        self.checkpoints = folder / "checkpoints"
        self.learner = Learner(self.task, model, method, config.train)
        self.feed = self.task.feed(corpus, config)
        # Random batches differ in number from epoch to epoch by a handful at most; the first stands for all.
        self.steps = self.feed.batches(0) * config.train.epochs
        self.provenance = provenance(config.threads, device)  # now: files may change while the run lasts
        self.step = 0
        self.curve: list[dict[str, Any]] = []
        self.epoch: dict[str, Any] = _new_epoch()
        self.seconds = 0.0  # of training proper, earlier tries included
        self.tokens = 0

    def run(self) -> dict[str, Any]:
        torch.manual_seed(self.config.seed + 1000 * distributed.rank())  # ranks drop different values out
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
        last_saved = time.monotonic()
        batches = self.feed.epoch(number)
        with progress.bar(self.feed.batches(number), name, self.epoch["batches"]) as advance:
            while True:
                began = time.perf_counter()
                batch = next(batches, None)
                if batch is None:
                    break
                sums = self.learner.step(batch.to(self.device), self.step + 1, self.steps)
                self.seconds += time.perf_counter() - began
                self.step += 1
                self.tokens += sums.tokens
                for key, value in {"batches": 1, **vars(sums)}.items():
                    self.epoch[key] += value
                advance(f"loss {sums.loss / sums.count:.3f}")
                late = time.monotonic() - last_saved > self.config.train.checkpoint_seconds
                if distributed.agreed(late):
                    self._save()
                    last_saved = time.monotonic()

    def _finish_epoch(self, number: int) -> None:
        sums, count = self.epoch, self.epoch["count"]
        valid = held_out_loss(self.task, self.model, self.corpus, "valid", self.config, self.device)
        must_be_finite("validation loss", valid["nll"], self.step)
        epochs = self.config.train.epochs
        told = {
            "epoch": number + 1,
            "steps": self.step,
            "training_loss": sums["loss"] / count,
            "training_nll": sums["nll"] / count,
            "training_accuracy": 100 * sums["correct"] / count,
            "validation_nll": valid["nll"],
            "validation_accuracy": valid["accuracy"],
        }
        if sums["auxiliary"]:
            told["auxiliary_loss"] = sums["auxiliary"] / sums["batches"]
        told |= self.task.epoch_scores(self.model, self.corpus, self.config, self.device)
        if number + 1 < epochs:
            told |= self._between_epochs(number + 1)
        self.curve.append(told)
        self.epoch = _new_epoch()
        if distributed.is_first():
            progress.say(
                f"{self.name} epoch {number + 1}/{epochs}: "
                f"training loss {told['training_loss']:.4f}, validation loss {told['validation_nll']:.4f}, "
                f"accuracy {told['validation_accuracy']:.2f} %, {self.tokens / self.seconds:,.0f} tokens/s"
            )

    def _between_epochs(self, epoch: int) -> dict[str, Any]:
        """What the method does behind an epoch, if it does anything."""
        end = EpochEnd(
            self.model,
            self.learner.optimiser,
            epoch,
            self.config.train.epochs,
            self.config.seed,
            [point.get("method", {}) for point in self.curve],
            lambda: observed_heads(self.task, self.model, self.corpus, "valid", self.config, self.device),
        )
        done = self.learner.method.after_epoch(end)
        return {"method": done} if done else {}

    def _record(self) -> dict[str, Any]:
        return {
            "parameters": count_parameters(self.model),
            "data": self.corpus.statistics | {"stream": self.feed.report()},
            "curve": self.curve,
            "cost": {
                "training_seconds": self.seconds,
                "target_tokens_per_second": self.tokens / self.seconds,
                "peak_memory_mib": peak_memory_mib(self.device),
            },
            "provenance": self.provenance | {"ranks": distributed.world()},
        }

    def _save(self) -> None:
        state = {key: getattr(self, key) for key in ("step", "curve", "epoch", "seconds", "tokens")}
        state["feed"] = self.feed.state()
        checkpoints.save(self.checkpoints, self.step, self.model, self.learner.optimiser, state)

    def _restore(self) -> None:
        state = checkpoints.restore(self.checkpoints, self.model, self.learner.optimiser, self.device)
        if state:
            self.feed.restore(state.pop("feed"))
            for key, value in state.items():
                setattr(self, key, value)
            if distributed.is_first():
                progress.say(f"{self.name}: going on from step {self.step}")


def _new_epoch() -> dict[str, Any]:
    return {"batches": 0, "count": 0, "tokens": 0, "loss": 0.0, "nll": 0.0, "correct": 0, "auxiliary": 0.0}
