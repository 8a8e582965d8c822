"""Neither mixed devices nor hidden waiting, as far as a build of torch without CUDA can tell: see docs/gpu.md.

A training step and inference run on the meta device, where everything but values is computed.
"""

import itertools
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import OF_CONTRACTS, some_pairs
from small_runs import learner_of
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import headdiv
from headdiv.companion.experiments.running import build_model
from headdiv.companion.models.batching import make_batch
from headdiv.companion.models.language_model import make_windows
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.methods import check_method

PACKAGE = f"{Path(headdiv.__file__).parent}{os.sep}"

WAITS = {  # where a step waits for the device: function, how often in a step, why it must be
    "training/learner.py step": (1, "loss and gradient must be finite before parameters change; the loss is shown"),
    "methods/deacon.py _is_due": (1, "update_every alone: whether w moves at this step"),
}
TRAIN = TrainConfig(label_smoothing=0.1, optimiser={"name": "AdamW", "fused": False})  # fused: not on meta
WIDTH = 12
READ = np.random.default_rng(0).integers(1, 15, (3, 9))
aten = torch.ops.aten

BATCHES = {  # summarisation has translation's model and loss
    "translation": lambda: make_batch(some_pairs(), range(6)),
    "qa": lambda: make_batch(some_pairs(), range(6)).with_target(torch.zeros(6, 2, dtype=torch.int64)),
    "lm": lambda: make_windows(READ[:, :-1], READ[:, 1:], 3, boundaries=True, causal=True),
    "mlm": lambda: make_windows(READ, np.where(READ % 3, -1, READ), 3, boundaries=False, causal=False),
}
# Every method with one of the tasks: what a task does differently lies before and after attention.
CASES = [
    pytest.param(task, options, id=f"{task}-{name}")
    for (name, options), task in zip(OF_CONTRACTS.items(), itertools.cycle(BATCHES), strict=False)
]


def small_model(task, options, device="meta", **sizes):
    kind, stack = TASKS[task], {"lm": "decoder", "mlm": "encoder"}.get(task)
    sizes |= {"layers": 1} if stack else {"encoder_layers": 1, "decoder_layers": 1}
    model = kind.Model(**{"d_model": WIDTH, "heads": 3, "d_ff": 10, "dropout": 0.1} | sizes)
    data = kind.Data(name="toy", **({"epoch_tokens": 1, "context": 9} if stack else {}))
    if stack and options["name"] == "rotation":
        options = options | {"plan": [options["plan"][0] | {"kind": stack}]}
    names = {"paper": "", "task": task, "kind": task, "variant": "", "seed": 1}
    config = RunConfig(**names, data=data, model=model, method=check_method(options, model), train=TRAIN)
    return build_model(config, (15,) * (2 if task == "translation" else 1), device)


class Waits(TorchDispatchMode):
    """Counts by function of headdiv where the host asks for a value of the meta device, or gives it one."""

    def __init__(self):
        super().__init__()
        self.found, self.asked = Counter(), Asked(self)

    def __enter__(self):
        self.asked.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.asked.__exit__(*error)

    def note(self):
        frame = sys._getframe(1)
        while frame.f_back and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        self.found[f"{frame.f_code.co_filename.removeprefix(PACKAGE)} {frame.f_code.co_name}"] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if {x.device.type for x in tensors if x.dim() or x.device.type == "meta"} == {"meta", "cpu"}:
            self.note()  # indices that lie on the host; all else raises
        if func is aten._local_scalar_dense.default and tensors[0].device.type == "meta":
            self.note()
            return 0
        return func(*args, **(kwargs or {}))


class Asked(TorchFunctionMode):
    """What the dispatcher does not see."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ("tolist", "cpu", "numpy") and args[0].device.type == "meta":
            self.waits.note()
            return getattr(torch.zeros(args[0].shape, dtype=args[0].dtype), name)()
        made = func(*args, **(kwargs or {}))
        if name in ("tensor", "new_tensor", "as_tensor") and made.device.type == "meta":
            self.waits.note()
        return made


def infer(task, model, batch):
    """Losses of a batch, and where a model writes word by word one step."""
    TASKS[task].loss(model, model.output_weight, batch)
    if hasattr(model, "start"):
        if task == "lm":
            lines, state = 2, model.start(2)
        else:
            rows = batch.source_rows
            lines, state = len(rows.lengths), model.start(torch.zeros(rows.tokens, WIDTH, device="meta"), rows)
        model.step(torch.zeros(lines, dtype=torch.int64, device="meta"), state)


@pytest.mark.parametrize(("task", "options"), CASES)
def test_a_training_step_and_inference_stay_on_their_device_and_wait_where_they_must(task, options):
    model, method = small_model(task, options)
    learner = learner_of(model.train(), method, TRAIN, task)
    batch = BATCHES[task]().to("meta")
    with Waits() as waits:
        learner.step([batch], 3, 10)
    assert waits.found.keys() <= WAITS.keys()
    assert all(count <= WAITS[place][0] for place, count in waits.found.items())
    with Waits() as waits, torch.no_grad():
        infer(task, model.eval(), batch)
    assert not waits.found


MISTAKES = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "tensor": lambda x: torch.tensor([1.0], device=x.device),
    "sum of two devices": lambda x: x + torch.ones(3),
    "mask": lambda x: x[x > 0],
    "index on the host": lambda x: x[torch.tensor([0])],
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_noticed(mistake):
    x, raised = torch.zeros(3, device="meta"), False
    with Waits() as waits:
        try:
            mistake(x)
        except (RuntimeError, NotImplementedError):
            raised = True
    assert raised or waits.found
