"""What the library's parts cost, each over what it stands in for: prints the table of docs/library.md.

    python benchmarks/library.py [--rounds 15]

Steps of layers of width 256 with 8 heads over 16 texts of 64 tokens, on one thread. A method's step is forward and
backward pass and its own update, in two layers of `torch.nn.TransformerEncoder`.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
from timing import Ratio, Step, interleaved
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import headdiv
from headdiv.training.method_steps import MethodSteps

B, N, D, H, LAYERS = 16, 64, 256, 8, 2
WORDS = 1000
METHODS: dict[str, dict[str, Any]] = {
    "deacon, direct": {"name": "deacon", "m": 8},
    "deacon, non-linear": {"name": "deacon", "m": 8, "architecture": "nonlinear"},
    "mixing": {"name": "mixing", "start": 0.0},
    "dpp": {"name": "dpp", "term": "output"},
    "disagreement": {"name": "disagreement", "term": "output"},
}
AIMS = {  # of the ratios
    "drop-in, training": 1.0,
    "drop-in, evaluation with weights": 1.1,
    "deacon, non-linear": 1.3,
    "dpp": 1.2,
    "attached": 1.02,
    "recording": 1.15,
}


def table(rounds: int) -> str:
    """A row for each part."""
    lines = ["| what | compared with | ratio of times (quartiles) | aim |", "|---|---|---|---|"]
    for measure in (drop_in, methods, attached):
        reference, ratios = measure(rounds)
        for name, ratio in ratios.items():
            aim = f"≤ {AIMS[name]:g}" if name in AIMS else ""
            lines.append(f"| {name} | {reference} | {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) | {aim} |")
    return "\n".join(lines)


def drop_in(rounds: int) -> tuple[str, dict[str, Ratio]]:
    """`headdiv.MultiheadAttention` by itself."""
    x = torch.randn(B, N, D, requires_grad=True)
    ratios = {}
    for name, weights, grad in (
        ("drop-in, training", False, True),
        ("drop-in, evaluation", False, False),
        ("drop-in, evaluation with weights", True, False),
    ):
        modules = [
            cls(D, H, batch_first=True).train(grad) for cls in (nn.MultiheadAttention, headdiv.MultiheadAttention)
        ]
        theirs, ours = (
            step(module, lambda module=module, weights=weights: module(x, x, x, need_weights=weights)[0], grad)
            for module in modules
        )
        times = interleaved({"theirs": theirs, "ours": ours}, rounds)
        ratios[name] = Ratio.of(times["ours"] / times["theirs"])
    return "torch.nn.MultiheadAttention", ratios


def methods(rounds: int) -> tuple[str, dict[str, Ratio]]:
    """Whole training steps, feed-forward parts included."""
    x = torch.randn(B, N, D)

    def training(options: dict[str, Any]) -> Step:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(D, H, 4 * D, dropout=0.0, batch_first=True)
        model, method = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False), headdiv.make_method(options)
        for number, encoder_layer in enumerate(model.layers):
            encoder_layer.self_attn = headdiv.MultiheadAttention(D, H, method, batch_first=True, layer=number)
        method_steps = MethodSteps(model, method)

        def step(_: int) -> None:
            model.zero_grad()
            with method_steps.records() as records:
                loss = model(x).square().mean()
            added = method_steps.added(records, 0.5, B * N)
            (loss if added is None else loss + added).backward()
            method_steps.update(0.5)

        return step

    times = interleaved(
        {name: training(options) for name, options in ({"": {"name": "baseline"}} | METHODS).items()}, rounds
    )
    return "the drop-in's ordinary heads", {name: Ratio.of(times[name] / times[""]) for name in METHODS}


def attached(rounds: int) -> tuple[str, dict[str, Ratio]]:
    """Training steps of a small GPT-2; recorded are outputs and values."""
    sizes = {"n_embd": D, "n_head": H, "n_layer": LAYERS, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    config = GPT2Config(vocab_size=WORDS, bos_token_id=None, eos_token_id=None, **sizes)
    plain = GPT2LMHeadModel(config).train()
    model = copy.deepcopy(plain)
    headdiv.pretrained.attach(model)
    ids = torch.randint(4, WORDS, (B, N))

    def recorded() -> Tensor:
        with headdiv.record_heads(model, weights=False):
            return model(input_ids=ids, labels=ids).loss

    steps = {
        "plain": step(plain, lambda: plain(input_ids=ids, labels=ids).loss),
        "attached": step(model, lambda: model(input_ids=ids, labels=ids).loss),
        "recording": step(model, recorded),
    }
    times = interleaved(steps, rounds)
    names = ("attached", "recording")
    return "the model of transformers", {name: Ratio.of(times[name] / times["plain"]) for name in names}


def step(module: nn.Module, run: Callable[[], Tensor], grad: bool = True) -> Step:
    """A forward pass and, with ``grad``, the backward pass."""

    def forward_and_backward(_: int) -> None:
        with torch.set_grad_enabled(grad):
            output = run()
        if grad:
            module.zero_grad()
            output.square().mean().backward()

    return forward_and_backward


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    torch.set_num_threads(1)
    print(table(parser.parse_args().rounds))
