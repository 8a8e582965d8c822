"""What a run asks of GPUs or of this CPU, worked out from its sizes: a training step on the meta device.

How long a profile takes on this CPU is measured instead: small products are far from the rate of large ones.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import build_model, task_loss
from headdiv.companion.provenance import peak_memory_mib
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import nearest
from headdiv.nn.attention import WIDE
from headdiv.nn.transformer import Layer, count_parameters
from headdiv.training.learner import Learner

GIB = 2**30


class UncountableError(ConfigError):
    """The operations of a step depend on values, which a model without numbers does not have."""


@dataclass(frozen=True)
class Device:
    """Peak rates without sparsity and memory, from the makers' data sheets; of this machine's CPU measured."""

    bfloat16: float  # operations a second
    float32: float  # without TF32, which headdiv does not switch on
    memory: float  # bytes


DEVICES = {
    "a100": Device(312e12, 19.5e12, 80e9),
    "h100": Device(989.4e12, 66.9e12, 80e9),
    "h200": Device(989.4e12, 66.9e12, 141e9),
}
CPU = "cpu"  # beside them: this machine's
LAUNCH = 50e-6  # seconds a kernel where a GPU waits for Python: a step's time shared out, on one H200's host
SIZE, SECONDS = 1024, 0.3  # of the products by which its rate is measured, and how long for
WARM, TIMED = 1, 3  # steps of a variant before those that are timed, and these
LONGEST = 10.0  # seconds that a step may take at the fastest rate; longer ones are not timed


@functools.cache
def _this_cpu(threads: int) -> Device:
    """Its memory, and its rates: the fastest product of two matrices on one thread, times the threads of a run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rates = [threads * _rate(kind) for kind in (torch.bfloat16, torch.float32)]
    finally:
        torch.set_num_threads(before)
    return Device(*rates, memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _rate(kind: torch.dtype) -> float:
    """Operations a second of this thread's own time, which other processes do not shorten."""
    left, right = torch.ones(2, SIZE, SIZE, dtype=kind)
    best, end = 0.0, time.thread_time() + SECONDS
    while (began := time.thread_time()) < end:
        left @ right
        best = max(best, 2 * SIZE**3 / (time.thread_time() - began))
    return best


def _device(name: str, threads: int) -> Device:
    if name == CPU:
        return _this_cpu(threads)
    if name not in DEVICES:
        raise ConfigError(f"device: {name!r} is not known{nearest(name, [*DEVICES, CPU])}")
    return DEVICES[name]


def _matrix_operations() -> FlopCounterMode:
    """Counts the floating-point operations of matrix products, two for each multiplication, while it is open."""
    in_place = {torch.ops.aten.addmm_: lambda _, left, right, **more: 2 * math.prod(left) * right[-1]}  # not in torch's
    return FlopCounterMode(display=False, custom_mapping=in_place)


class _Launches(TorchDispatchMode):
    """Counts operations that launch a kernel: those that neither view what is there nor only allocate."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        views = any(one.alias_info and not one.alias_info.is_write for one in schema.returns)
        self.count += not views and "empty" not in schema.name
        return func(*args, **(kwargs or {}))


@dataclass
class StepCost:
    """What a step on one batch takes."""

    operations: int
    once: int  # operations of the method's update, whatever the batch
    tokens: int
    kept: int  # bytes of activations, kept from the forward to the backward pass
    recomputed: int  # the same with activation checkpointing
    state: int  # numbers of the optimiser
    launches: int  # of kernels, forward and backward


def cost_of(config: RunConfig, device: str, count: int, mfu: float) -> dict[str, Any]:
    """Parameters, operations, memory and time of a run.

    Activations are those of a model whose activations all have the precision's type and whose wide attention is a fused
    kernel; fragmentation, the loss's buffers and the libraries' own memory are left out. A GPU takes at least `LAUNCH`
    for each kernel of the forward and the backward pass; what the method's update and the optimiser launch is left out.

    Args:
        config: of the run.
        device: a key of `DEVICES`, or `CPU`.
        count: devices that share each batch.
        mfu: model FLOPs utilisation, the share of the peak rate that is assumed.

    Returns:
        JSON; memory in GiB of each device, rates of all of them.

    Raises:
        ConfigError: an unknown device, or a wrong run.
        UncountableError: a method whose operations depend on values.
    """
    made, precision, train = _device(device, config.threads), config.train.precision, config.train
    batches, an_epoch = TASKS[config.kind].sample_batches(config)
    steps = {share: _step(config, batch) for share, batch in batches.items()}

    def at(share: float, what: str) -> float:
        return _at(share, {one: getattr(step, what) for one, step in steps.items()})

    parameters = count_parameters(_model(config)[0])
    tokens = at(1.0, "tokens")
    operations = (at(1.0, "operations") + at(1.0, "once") / train.accumulate) / tokens
    computing = tokens * operations / (count * mfu * getattr(made, precision))  # seconds a batch
    launches = 0 if device == CPU else round(at(1 / count, "launches"))
    rate = tokens / max(computing, LAUNCH * launches)
    memory = {
        "weights": 4 * parameters,
        "gradients": 4 * parameters * (2 if count > 1 else 1),  # DistributedDataParallel's buckets hold them once more
        "optimiser": 4 * at(1.0, "state"),
        "weights in bfloat16": 2 * parameters if precision == "bfloat16" else 0,
        "activations": at(1 / count, "kept"),
    }
    if device == CPU:
        memory["process without a model"] = peak_memory_mib(torch.device("cpu")) * 2**20
    total = sum(memory.values())
    recomputed = total - memory["activations"] + at(1 / count, "recomputed")
    return {
        "run": f"{config.experiment} {config.variant}",
        "devices": f"{count} {device}",
        "precision": precision,
        "parameters": parameters,
        "operations_a_token": round(operations),
        "tokens_a_batch": round(tokens),
        "memory_gib": {name: round(size / GIB, 2) for name, size in memory.items() if size},
        "total_gib": round(total / GIB, 2),
        "total_with_activation_checkpointing_gib": round(recomputed / GIB, 2),
        "memory_of_a_device_gib": round(made.memory / GIB, 1),
        "mfu": mfu,
        "launches_a_batch": launches,
        "waits_for_launches": LAUNCH * launches > computing,
        "tokens_a_second": round(rate),
        "tokens": round(tokens * an_epoch * train.epochs),
        "days": round(tokens * an_epoch * train.epochs / rate / 86400, 3),
        "hours": tokens * an_epoch * train.epochs / rate / 3600,
    }


def profile_hours(profile: str, device: str, count: int, mfu: float) -> list[dict[str, Any]]:
    """How long all trainings of a profile take, a row for each variant's tuning and runs, and one for all.

    On this machine's CPU a few steps of each variant are timed, unless they take too long. Of trainings alone:
    preparing data, validation, search and pictures are not in it. Where operations depend on values and nothing is
    timed, the hours are those of the experiment's variant with the most.

    Raises:
        ConfigError: an unknown device or a wrong profile.
    """
    runs, rows = Runs(profile), []
    for experiment in runs.experiments():
        configs = runs.planned(experiment)
        firsts = {config.variant: config for config in reversed(configs)}
        hours: dict[str, float] = {}  # of an epoch
        for variant, config in firsts.items():
            with contextlib.suppress(UncountableError):
                hours[variant] = _hours_of_an_epoch(config, device, count, mfu)
        if not hours:
            raise ConfigError(f"{experiment}: the operations of all variants depend on values")
        most = max(hours.values())
        for variant, config in reversed(firsts.items()):
            epochs = {"runs": config.train.epochs * sum(one.variant == variant for one in configs)}
            if arm := runs.arms.get(experiment, {}).get(variant):
                epochs = {"tuning": arm.tune.epochs(variant)} | epochs
            rows += [
                {"experiment": experiment, "variant": variant, "part": part, "epochs": n,
                 "hours": hours.get(variant, most) * n}
                for part, n in epochs.items()
            ]  # fmt: skip
    totals = {name: sum(row[name] for row in rows) for name in ("epochs", "hours")}
    return [*rows, {"experiment": "all", "variant": "", "part": "", **totals}]


def _hours_of_an_epoch(config: RunConfig, device: str, count: int, mfu: float) -> float:
    """By operations, or of this CPU by steps that are timed, unless one takes too long even at the fastest rate."""

    def timed(operations: float) -> bool:
        rate = getattr(_device(device, config.threads), config.train.precision)
        return device == CPU and operations / rate <= LONGEST

    try:
        found = cost_of(config, device, count, mfu)
        if not timed(found["operations_a_token"] * found["tokens_a_batch"]):
            return found["hours"] / config.train.epochs
    except UncountableError:
        if not timed(6 * count_parameters(_model(config)[0]) * config.train.tokens_per_batch):  # each meets every token
            raise
    batches, an_epoch = TASKS[config.kind].sample_batches(config)
    return _at(1.0, {share: _seconds(config, batch) for share, batch in batches.items()}) * an_epoch / count / 3600


def _seconds(config: RunConfig, batch: Any) -> float:
    """Of a training step on a batch, the median of a few; of one thread its own time, which others do not lengthen."""
    model, method = build_model(config, TASKS[config.kind].vocabulary(config.data))
    learner = Learner(model.train(), task_loss(config, model), method, config.train)
    now, before = time.thread_time if config.threads == 1 else time.perf_counter, torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        times = [now()]
        for number in range(1, WARM + TIMED + 1):
            learner.step(batch, number, 2 * number)
            times.append(now())
    finally:
        torch.set_num_threads(before)
    return median(later - earlier for earlier, later in pairwise(times[WARM:]))


def _at(share: float, values: Mapping[float, float]) -> float:
    """What a share of a batch takes, by what one or two other shares take."""
    (x, y), *more = values.items()
    return y + (share - x) * (((more[0][1] - y) / (more[0][0] - x)) if more else y / x)


def _model(config: RunConfig) -> tuple[nn.Module, Any]:
    return build_model(config, TASKS[config.kind].vocabulary(config.data), "meta")


def _step(config: RunConfig, batch: Any) -> StepCost:
    """A step on the meta device."""
    model, method = _model(config)
    model = model.to(getattr(torch, config.train.precision)).train()
    train = config.train.model_copy(update={"precision": "float32"})
    if train.optimiser is None:  # AdamW's fused kernel is not there on meta
        train = train.model_copy(update={"optimiser": {"name": "AdamW", "fused": False}})
    learner = Learner(model, task_loss(config, model), method, train)
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    kept: dict[int, Tensor] = {}  # by storage
    inputs: list[int] = []  # bytes, of each layer
    inside: list[int] = []  # bytes that each keeps

    def keep(x: Tensor) -> Tensor:
        weights = x.dim() > 2 and x.shape[-1] == x.shape[-2] and x.shape[-1] ** 2 > WIDE
        if x.untyped_storage()._cdata not in parameters and not weights:
            kept[x.untyped_storage()._cdata] = x
        return x

    def size() -> int:
        return sum(x.untyped_storage().nbytes() for x in kept.values())

    def enter(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs.append(given[0].nbytes)
        inside.append(-size())

    def leave(*_: Any) -> None:
        inside[-1] += size()

    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.register_forward_pre_hook(enter)
            layer.register_forward_hook(leave)
    try:
        kept_tensors = torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x)
        with _matrix_operations() as operations, kept_tensors, _Launches() as launches:
            _, tokens, _ = learner.backward(batch.to("meta"), 0.0, summed=False)
        with _matrix_operations() as once:
            method.after_backward(model, 0.0)
    except (NotImplementedError, RuntimeError) as error:
        raise UncountableError(
            f"{config.label}: its operations depend on values ({str(error).splitlines()[0]})"
        ) from None
    learner.optimiser.step()
    state = sum(x.numel() for found in learner.optimiser.state.values() for x in found.values() if x.dim())
    recomputed = size() - sum(inside) + sum(inputs) + max(inside, default=0)
    flops = operations.get_total_flops(), once.get_total_flops()
    return StepCost(*flops, tokens, size(), recomputed, state, launches.count)


def message(cost: dict[str, Any]) -> str:
    """The result of `cost_of` as lines of text."""
    parts = ", ".join(f"{name} {size:,.1f}" for name, size in cost["memory_gib"].items())
    fits, days = cost["memory_of_a_device_gib"], cost["days"]
    lasts = f"days                  {days:,.2f}" if days >= 1 else f"hours                 {cost['hours']:,.2f}"
    bound = f"if {cost['mfu']:.0%} of the peak rate are reached"
    if cost["waits_for_launches"]:
        bound = f"by the launches of {cost['launches_a_batch']:,} kernels a batch, {LAUNCH * 1e6:.0f} µs each"
    return "\n".join(
        [
            f"{cost['run']} on {cost['devices']}, {cost['precision']}",
            f"parameters            {cost['parameters']:,}",
            f"operations a token    {cost['operations_a_token'] / 1e9:,.3f} G, forward, backward, attention included",
            f"memory (GiB)          {cost['total_gib']:,.1f} of {fits:,.1f} a device: {parts}",
            f"with train.activation_checkpointing: {cost['total_with_activation_checkpointing_gib']:,.1f}",
            f"tokens a second       {cost['tokens_a_second']:,} {bound}",
            f"{lasts} for {cost['tokens']:,} tokens",
        ]
    )
