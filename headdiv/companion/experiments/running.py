"""Training: one run from its configuration to a model on disk, resumed exactly where it was interrupted."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import save_file
from torch import nn

from headdiv.analysis.similarity import averages, compare_heads
from headdiv.companion import paths, runtime
from headdiv.companion.data.cache import content_key
from headdiv.companion.models.transformer import checkpoint_layers, count_parameters, initialise
from headdiv.companion.provenance import other_load, peak_memory_mib, provenance
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import AVERAGE, BEST, Run, held_out_loss, observed_heads, vocabulary_of
from headdiv.companion.tasks.run_config import RunConfig, run_name
from headdiv.core import distributed, manifest
from headdiv.core.errors import ConfigError, DamageError, TrainingError
from headdiv.core.files import read_json, remove_leftovers, replacing, short_hash, write_json
from headdiv.methods.base import Method
from headdiv.methods.registry import make_method, own_code
from headdiv.training import checkpoints
from headdiv.training.learner import Loss
from headdiv.training.trainer import Log, Trainer, TrainerState

MODEL, RECORD = "model.safetensors", "training.json"  # of a finished run, in the order in which they are written


log = logging.getLogger(__name__)


def build_model(
    config: RunConfig, vocabulary: tuple[int, ...], device: torch.device | str = "cpu"
) -> tuple[nn.Module, Method]:
    """A fresh model, its parameters drawn from the run's seed, and the method that trains it.

    ``vocabulary``: sizes, as `Task.vocabulary` gives them. The device "meta" allocates and draws nothing.
    """
    method = make_method(config.method)
    if str(device) == "meta":
        with torch.device("meta"):
            return TASKS[config.kind].build(config, vocabulary, method), method
    with torch.device("cpu"):
        model = TASKS[config.kind].build(config, vocabulary, method)
    initialise(model, config.seed)
    return model.to(device), method


def choose_device() -> torch.device:
    """HEADDIV_DEVICE, else this rank's GPU if there is one, else the CPU.

    Raises:
        ConfigError: HEADDIV_DEVICE names nothing that torch can compute on here.
    """
    name = os.environ.get("HEADDIV_DEVICE")
    if not name:
        return torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # a GPU that is not there, "gpu", "meta"
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"HEADDIV_DEVICE: nothing can be computed on {name!r} here ({reason}); expected cpu, or cuda"
        ) from None
    return device


def run_folder(config: RunConfig) -> Path:
    """``work/<name>``."""
    return paths.work() / run_name(config)


def is_trained(config: RunConfig) -> bool:
    """Whether `train` would load the run; its files are not checked."""
    return (run_folder(config) / RECORD).is_file()


def train(config: RunConfig, device: torch.device | str | None = None, log: Log | None = None) -> Run:
    """Train the model of ``config``, or load it if that has been done before.

    ``log`` is called with its numbers, as `headdiv.Trainer` does it.

    The run's folder is ``work/<name>`` (`run_name`). A finished run is not trained again; an interrupted one goes on
    from its last checkpoint to the same result, bit for bit on the CPU. Started by `torchrun`, all ranks
    learn from every batch together; the first alone writes files.

    Raises:
        TrainingError: loss or gradient is not finite. Nothing is recorded; the last checkpoint stays.
        DataError: the data cannot be had.
    """
    device = torch.device(device) if device else choose_device()
    folder = run_folder(config)
    with runtime.process_group(device), _locked(folder):
        if distributed.agreed(distributed.is_first() and not _is_finished(folder)):
            return _train(config, folder, device, log)
    return load_run(config, device)


def train_until(config: RunConfig, epochs: int) -> TrainerState:
    """Train a run's first epochs and stop; `train`, or this function with more epochs, goes on from there.

    Returns:
        What was measured; of more epochs where the training is further along.

    Raises:
        DivergenceError: loss or gradient is not finite.
        DataError: the data cannot be had.
    """
    device, folder = choose_device(), run_folder(config)
    with runtime.process_group(device), _locked(folder):
        if is_trained(config):
            record = read_json(folder / RECORD)
            return TrainerState(curve=record["curve"], seconds=record["cost"]["training_seconds"])
        runtime.configure(config.threads)
        return _trainer(config, folder, TASKS[config.kind].load(config.data), device).run(until=epochs)


def discard_checkpoints(config: RunConfig) -> None:
    """Remove the checkpoints of a run that is not to be trained further, or that may begin anew."""
    folder = run_folder(config)
    if (folder / "checkpoints").is_dir():
        with _locked(folder):
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _locked(folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Lock a run's folder: of two processes that ask for the run, the second waits, and finds it finished."""
    if not distributed.is_first():
        return contextlib.nullcontext()
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".lock")


def _is_finished(folder: Path) -> bool:
    """Whether the run is trained and its files are whole; damaged ones are removed, which a warning says."""
    if not (folder / RECORD).is_file():
        return False
    try:
        _check_files(folder)
    except DamageError as error:
        log.warning("%s; the run is trained again", error)
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != ".lock":
                path.unlink()
        return False
    return True


def _check_files(folder: Path) -> None:
    """Compare a finished run's record and all of its models with their checksums: DamageError."""
    manifest.check(folder, MODEL, RECORD)
    for name in _further_models(read_json(folder / RECORD)):
        manifest.check(folder / name, MODEL)


def _further_models(record: dict[str, Any]) -> list[str]:
    """The folders of the models that are kept beside the evaluated one."""
    names = []
    if record["best_epoch"] != record["evaluated_epoch"]:
        names.append(BEST)
    if "averaged_epochs" in record:
        names.append(AVERAGE)
    return names


def _train(config: RunConfig, folder: Path, device: torch.device, log: Log | None) -> Run:
    runtime.configure(config.threads)
    task = TASKS[config.kind]
    if not distributed.is_first():
        distributed.wait()  # the first rank prepares the corpus where that is still to be done
    content, code = content_key(config.data), own_code(config.method)
    corpus = task.load(config.data)
    if distributed.is_first():
        distributed.wait()
        remove_leftovers(folder)
        write_json(folder / "config.json", config.model_dump(mode="json"))
    origin = provenance(config.threads, device)  # now: files may change while the run lasts
    if code:
        origin["method_code"] = short_hash(code)
    trainer = _trainer(config, folder, corpus, device, log)
    state, model = trainer.run(), trainer.model
    record = {
        "parameters": count_parameters(model),
        "data": corpus.statistics | {"content": content, "stream": trainer.stream.report()},
        "curve": state.curve,
        "best_epoch": trainer.kept_epoch,
        "evaluated_epoch": trainer.kept_epoch if config.train.patience else len(state.curve),
        "cost": {
            "training_seconds": state.seconds,
            "target_tokens_per_second": state.tokens / state.seconds,
            "peak_memory_mib": peak_memory_mib(device),
            "other_load": other_load(state.seconds, config.threads * distributed.world()),
        },
        "provenance": origin | {"ranks": distributed.world()},
    }
    if average := config.train.average:
        record["averaged_epochs"] = [max(1, len(state.curve) - average + 1), len(state.curve)]
    if distributed.is_first():
        for name in (BEST, AVERAGE):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in _further_models(record):
            parameters = trainer.best if name == BEST else trainer.average()
            with replacing(folder / name) as temporary:
                temporary.mkdir()
                save_file(parameters or {}, temporary / MODEL)
                manifest.note(temporary)
        with replacing(folder / MODEL) as temporary:
            checkpoints.save_model(model, temporary)
        write_json(folder / RECORD, record)  # last: its presence says that everything else is there
        manifest.note(folder, MODEL, RECORD)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    distributed.wait()  # until the files are there
    model.zero_grad()  # gives the gradients' memory back
    return Run(config, folder, corpus, model.eval(), record)


def load_run(config: RunConfig, device: torch.device | str | None = None) -> Run:
    """A run that has been trained.

    Raises:
        TrainingError: it has not been trained.
        DamageError: its files are not what was written.
    """
    folder = run_folder(config)
    command = f"`headdiv train {config.experiment} {config.variant} --seed {config.seed} --profile …`"
    if not is_trained(config):
        raise TrainingError(
            f"{config.variant}, seed {config.seed}: not trained yet, {folder} holds no finished run; "
            f"{command} with the run's profile trains it"
        )
    try:
        _check_files(folder)
    except DamageError as error:
        raise DamageError(f"{error}; {command} with the run's profile trains it again") from None
    runtime.configure(config.threads)
    corpus = TASKS[config.kind].load(config.data)
    model, _ = build_model(config, vocabulary_of(corpus), device or choose_device())
    checkpoints.load_model(model, folder / MODEL)
    return Run(config, folder, corpus, model.eval(), read_json(folder / RECORD))


def best_run(run: Run) -> Run:
    """The run with the parameters of its best epoch, the one with the lowest validation loss, and a folder of its own.

    The run itself where that is the epoch whose parameters it has.
    """
    if BEST not in _further_models(run.record):
        return run
    return _with_parameters(run, BEST, {"evaluated_epoch": run.record["best_epoch"]})


def averaged_run(run: Run) -> Run | None:
    """The run with the mean of its last epochs' parameters; None where ``train.average`` did not ask for it."""
    return _with_parameters(run, AVERAGE, {}) if "averaged_epochs" in run.record else None


def _with_parameters(run: Run, name: str, record: dict[str, Any]) -> Run:
    """The run with parameters that are kept beside its own, which are ``run.folder / name``."""
    folder = run.folder / name
    model, _ = build_model(run.config, vocabulary_of(run.corpus), run.device)
    checkpoints.load_model(model, folder / MODEL)
    return replace(run, folder=folder, model=model.eval(), record=run.record | record)


def _trainer(config: RunConfig, folder: Path, corpus: Any, device: torch.device, log: Log | None = None) -> Trainer:
    """The trainer of a run: its fresh model, the task's batches and loss, scores and measures after each epoch."""
    task = TASKS[config.kind]
    model, method = build_model(config, vocabulary_of(corpus), device)
    run = Run(config, folder, corpus, model, {})
    if config.train.activation_checkpointing:
        checkpoint_layers(model)

    def validate(model: nn.Module) -> dict[str, float]:
        valid = held_out_loss(run, "valid")
        scores = {"validation_nll": valid["nll"], "validation_accuracy": valid["accuracy"]}
        return scores | task.epoch_scores(model, corpus, config, device)

    def measure(model: nn.Module) -> dict[str, Any]:
        if not config.train.epoch_heads:
            return {}
        places = {spec.name: averages(measured) for spec, measured in compare_heads(observed_heads(run), model)}
        # DEACON's Figure 6 as one number: of each PCA layer the mean absolute cosine of two columns of w.
        for layer in method.artifacts(model).get("pca_weights", {}).values():
            places[layer["place"]]["column_cosine"] = layer["mean_absolute_cosine"]
        # A single head has no pairs, and JSON no NaN.
        return {
            "heads": {
                place: {name: round(value, 6) for name, value in measured.items() if not math.isnan(value)}
                for place, measured in places.items()
            }
        }

    return Trainer(
        model,
        task.batch_stream(corpus, config),
        task_loss(config, model),
        method=method,
        config=config.train,
        folder=folder / "checkpoints",
        validate=validate,
        measure=measure,
        observe=partial(observed_heads, run),
        log=log,
        seed=config.seed,
        name=config.label,
    )


def task_loss(config: RunConfig, model: nn.Module) -> Loss:
    """The loss of a run's task in the form that a trainer calls."""
    task, smoothing = TASKS[config.kind], config.train.label_smoothing
    return lambda forward, batch: task.loss(forward, model.output_weight, batch, smoothing)


@contextlib.contextmanager
def tensorboard_log(folder: Path) -> Iterator[Log]:
    """Write the numbers of steps and epochs to ``folder``, over the steps done; `tensorboard --logdir` shows them.

    Raises:
        ModuleNotFoundError: tensorboard is not installed.
    """
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:

        def log(numbers: Mapping[str, float], step: int) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        yield log
