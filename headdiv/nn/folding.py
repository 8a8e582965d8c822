"""Trained models as the plain Transformers they are in evaluation, where the method's part is linear."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

from headdiv.core.precision import full_precision
from headdiv.nn.linear import Linear
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import AttentionSpec

Folded = TypeVar("Folded", bound=nn.Module)


@torch.inference_mode(False)  # parameters made within it could not be trained
@torch.no_grad()
def fold(model: Folded) -> Folded:
    """A copy in evaluation mode whose linear output stages are one layer each, like W^O in the plain Transformer.

    A stage is folded if its attribute ``affine`` is true: the module is then plain attention, number for number.
    Other stages stay as they are, and so does the attention of transformers. Call it outside `masked_heads`, or some
    masks would stay and others not.
    """
    folded = copy.deepcopy(model).eval()
    for module in folded.modules():
        if isinstance(module, MultiHeadAttention) and getattr(module.output, "affine", False):
            module.output = _as_linear(module.output, module.spec)
    return folded


def _as_linear(stage: nn.Module, spec: AttentionSpec) -> Linear:
    """The layer equivalent to the stage, from the stage's outputs for 0 and each unit vector, in float64."""
    like = next(stage.parameters())
    width = spec.heads * spec.d_head
    rows = torch.eye(width + 1, width, dtype=torch.float64, device=like.device)  # the last row is 0
    with full_precision(rows):
        outputs = copy.deepcopy(stage).double().forward(rows)
    layer = Linear(width, outputs.shape[1], device=like.device, dtype=like.dtype)
    layer.weight.copy_((outputs[:-1] - outputs[-1]).T)
    layer.bias.copy_(outputs[-1])
    return layer
