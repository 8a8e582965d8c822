"""What more experts cost: a layer's time must grow with k, the chosen ones, and not with E."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from headdiv.core.provenance import provenance
from headdiv.methods import make_method
from headdiv.nn.attention import AttentionLayout, AttentionSpec, record_heads
from headdiv.nn.packing import assign_windows, attention_mask, lay_out
from headdiv.nn.transformer import initialise

D, HEADS, K_CHOSEN, ROWS = 256, 4, 4, 1800
LENGTHS = (8, 22)  # of the sentences, as in Multi30k
WARM_UP = 3


def measure_moa(rounds: int = 25, threads: int = 1) -> dict[str, Any]:
    """Time a training step of one layer, encoder self-attention of width 256, with E = 4 and with E = 32, k = 4.

    A step is forward pass, the router's losses, backward pass (with the gradient of the input) and AdamW. Each round
    times one step of either, in turns the one and the other first, and their ratio is taken within the round.

    Args:
        rounds: how many are counted, behind a few that are not.
        threads: of the CPU.

    Returns:
        moa_e32_over_e4: median and quartiles over the rounds.
        moa_milliseconds: median of each step, by "e4" and "e32".
        and what was measured: rows, rounds, provenance.
    """
    torch.set_num_threads(threads)
    steps = {experts: _stepper(experts) for experts in (4, 32)}
    seconds: dict[int, list[float]] = {experts: [] for experts in steps}
    for number in range(rounds + WARM_UP):
        for experts in sorted(steps, reverse=number % 2 == 1):
            began = time.perf_counter()
            steps[experts]()
            seconds[experts].append(time.perf_counter() - began)
    few, many = (np.array(seconds[experts][WARM_UP:]) for experts in (4, 32))
    low, middle, high = np.quantile(many / few, [0.25, 0.5, 0.75])
    return {
        "moa_e32_over_e4": {
            "median": round(float(middle), 4),
            "low": round(float(low), 4),
            "high": round(float(high), 4),
        },
        "moa_milliseconds": {
            f"e{experts}": round(1000 * statistics.median(values[WARM_UP:]), 2) for experts, values in seconds.items()
        },
        "rows": ROWS,
        "rounds": rounds,
        "provenance": provenance(threads, torch.device("cpu")),
    }


def _stepper(experts: int) -> Callable[[], None]:
    """A training step of a layer with so many experts, on the same rows for every number of them."""
    rng = np.random.default_rng(1)
    lengths: list[int] = []
    while sum(lengths) < ROWS:
        lengths.append(min(int(rng.integers(*LENGTHS)), ROWS - sum(lengths)))
    side = lay_out(lengths, assign_windows(lengths))
    layout = AttentionLayout(side, side, attention_mask(side, side))
    x = torch.from_numpy(rng.standard_normal((ROWS, D), dtype=np.float32)).requires_grad_()
    method = make_method({"name": "moa", "experts": experts, "k": K_CHOSEN})
    layer = method.attention(AttentionSpec("encoder", 0, D, HEADS))
    initialise(layer, seed=1)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimiser.zero_grad()
        x.grad = None
        with record_heads(layer, weights=False) as records:
            y = layer(x, None, layout)
        added = method.aux_loss(layer, records, 0.0, ROWS)
        (y.square().mean() + (0.0 if added is None else added)).backward()
        optimiser.step()

    return step
