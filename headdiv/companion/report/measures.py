"""Measures of how alike a run's heads are, as tables and figures call them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from headdiv.analysis.similarity import between_heads
from headdiv.companion.experiments.run_result import RunResult

SCORE = "bleu"
MEASURES = {  # of `headdiv.analysis.similarity`: how each is labelled, and its decimals
    "cosine": ("cosine of outputs", 3),
    "cka": ("CKA of outputs", 3),
    "js": ("Jensen–Shannon distance of attention", 3),
    "effective_rank": ("effective rank of outputs", 1),
    "confidence": ("confidence (largest weight)", 3),
    "entropy": ("entropy of attention (nats)", 2),
}


def _module_mean(measure: str, module: dict[str, Any]) -> float:
    """One number of a module: mean over heads, or over pairs of different heads; NaN where there is none."""
    values = torch.tensor(module.get(measure, math.nan), dtype=torch.float64)
    return between_heads(values) if values.ndim == 2 else float(values.mean())


def measures_by_module(run: RunResult, measure: str) -> list[float]:
    """A measure of `headdiv.analysis.similarity` of every attention module of a run, in the order of a forward pass."""
    return [_module_mean(measure, module) for module in run.heads.get("measures", {}).values()]


def mean_measure(run: RunResult, measure: str) -> float:
    """A run's mean of a measure over modules; NaN where its metrics do not have it."""
    values = measures_by_module(run, measure)
    return float(np.mean(values)) if values else math.nan
