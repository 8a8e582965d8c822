"""What the library's parts cost, each beside what it stands in for: ratios of times taken in turn, within a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import headdiv
from headdiv.companion.experiments.bench import WARM_UP, interleaved
from headdiv.methods.base import Method
from headdiv.training.method_steps import MethodSteps

B, N, D, H, LAYERS = 16, 64, 256, 8, 2
WORDS = 1000
METHODS: dict[str, dict[str, Any]] = {
    "deacon, direct": {"name": "deacon", "m": 8},
    "deacon, non-linear": {"name": "deacon", "m": 8, "architecture": "nonlinear"},
    "talking heads": {"name": "talking-heads"},
    "differential": {"name": "differential"},
    "gated": {"name": "gated"},
    "mixing": {"name": "mixing", "start": 0.0},
    "mixture of heads": {"name": "moh"},
    "dpp": {"name": "dpp", "term": "output"},
    "disagreement": {"name": "disagreement", "term": "output"},
}
TARGETS = {  # of the ratios
    "drop-in, training": 1.0,
    "drop-in, evaluation with weights": 1.1,
    "deacon, non-linear": 1.3,
    "talking heads": 1.5,
    "differential": 1.3,
    "dpp": 1.2,
    "attached": 1.02,
    "recording": 1.15,
}


class Ratio(NamedTuple):
    """Time over that of what it stands in for."""

    what: str
    over: str
    median: float
    quartiles: tuple[float, float]
    target: float | None


def measure_library(rounds: int = 15, threads: int = 1) -> list[Ratio]:
    """Steps of layers of width 256 with 8 heads over 16 texts of 64 tokens, on so many threads.

    A method's step is forward and backward pass and its own update, in two layers of `torch.nn.TransformerEncoder`,
    over that with the drop-in alone; the drop-in is over torch's; attaching and recording (outputs and values) are in
    training steps of a GPT-2 of two layers.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return [*_layers(rounds), *_methods(rounds), *_attached(rounds)]
    finally:
        torch.set_num_threads(before)


def _layers(rounds: int) -> list[Ratio]:
    x = torch.randn(B, N, D, requires_grad=True)
    found = []
    for what, weights, grad in (
        ("drop-in, training", False, True),
        ("drop-in, evaluation", False, False),
        ("drop-in, evaluation with weights", True, False),
    ):
        steps = {}
        for name, cls in (("torch", nn.MultiheadAttention), ("ours", headdiv.MultiheadAttention)):
            module = cls(D, H, batch_first=True).train(grad)
            steps[name] = _step(
                module, lambda module=module, weights=weights: module(x, x, x, need_weights=weights)[0], grad
            )
        times = interleaved(steps, rounds + WARM_UP)
        found.append(_of(what, times["ours"] / times["torch"], "torch.nn.MultiheadAttention"))
    return found


def _methods(rounds: int) -> list[Ratio]:
    x = torch.randn(B, N, D)

    def step_of(options: dict[str, Any]) -> Callable[[int], None]:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(D, H, 4 * D, dropout=0.0, batch_first=True)
        model, method = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), headdiv.make_method(options)
        for number, each in enumerate(model.layers):
            each.self_attn = headdiv.MultiheadAttention(D, H, method, batch_first=True, layer=number)
        return _training(model, method, lambda: model(x).square().mean())

    steps = {name: step_of(options) for name, options in {"baseline": {"name": "baseline"}, **METHODS}.items()}
    times = interleaved(steps, rounds + WARM_UP)
    return [_of(name, times[name] / times["baseline"], "the drop-in's ordinary heads") for name in METHODS]


def _attached(rounds: int) -> list[Ratio]:
    sizes = {"n_embd": D, "n_head": H, "n_layer": LAYERS, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    plain, attached = (headdiv.pretrained.small_model("gpt2", words=WORDS, **sizes).train() for _ in range(2))
    headdiv.attach(attached)
    ids = torch.randint(4, WORDS, (B, N))

    def recorded() -> torch.Tensor:
        with headdiv.record_heads(attached, weights=False):
            return attached(input_ids=ids, labels=ids).loss

    steps = {
        "plain": _step(plain, lambda: plain(input_ids=ids, labels=ids).loss),
        "attached": _step(attached, lambda: attached(input_ids=ids, labels=ids).loss),
        "recording": _step(attached, recorded),
    }
    times = interleaved(steps, rounds + WARM_UP)
    over = "the model of transformers"
    return [_of(name, times[name] / times["plain"], over) for name in ("attached", "recording")]


def _step(module: nn.Module, run: Callable[[], torch.Tensor], grad: bool = True) -> Callable[[int], None]:
    def step(_: int) -> None:
        with torch.set_grad_enabled(grad):
            found = run()
        if grad:
            module.zero_grad()
            found.square().mean().backward()

    return step


def _training(model: nn.Module, method: Method, run: Callable[[], torch.Tensor]) -> Callable[[int], None]:
    steps = MethodSteps(model, method)

    def step(_: int) -> None:
        model.zero_grad()
        with steps.records() as records:
            loss = run()
        added = steps.added(records, 0.5, B * N)
        (loss if added is None else loss + added).backward()
        steps.update(0.5)

    return step


def _of(what: str, ratios: np.ndarray, over: str) -> Ratio:
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    return Ratio(what, over, median, (low, high), TARGETS.get(what))


def library_table(found: list[Ratio]) -> str:
    """A Markdown table for docs/library.md."""
    lines = ["| what | time over that of | ratio (quartiles) | aim |", "|---|---|---|---|"]
    for each in found:
        low, high = each.quartiles
        aim = "" if each.target is None else f"≤ {each.target:g}"
        lines.append(f"| {each.what} | {each.over} | {each.median:.2f} ({low:.2f} to {high:.2f}) | {aim} |")
    return "\n".join(lines)
