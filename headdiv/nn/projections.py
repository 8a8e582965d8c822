"""Projections of keys and values that do not share one memory: two inputs, or inputs of other widths.

Attention modules read one memory; here its rows hold keys and values side by side, (T', kdim + vdim).

Letters: T rows of queries and T' of memory, D model width, W = H·K width of the heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.errors import DataError
from headdiv.nn.linear import weight_is_all


class SeparateProjections(nn.Module):
    """W^Q, W^K and W^V with inputs of different widths, in place of `MultiHeadAttention`'s ``in_projection``.

    Parameters start as those of `torch.nn.MultiheadAttention` do.

    Args:
        widths: of query, key and value inputs.
        width: W, the output width of each.
        bias: whether they have one.
    """

    def __init__(self, widths: tuple[int, int, int], width: int, bias: bool) -> None:
        super().__init__()
        self.widths = widths
        self.query, self.key, self.value = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(width, inputs))) for inputs in widths
        )
        self.bias = nn.Parameter(torch.zeros(3 * width)) if bias else None

    def forward(self, x: Tensor, first: int) -> Tensor:
        """Queries (T, D) -> (T, W) for ``first`` 0; keys and values of memory (T', kdim + vdim) -> (T', 2·W)."""
        biases = (None,) * 3 if self.bias is None else self.bias.chunk(3)
        if first == 0:
            return F.linear(x, self.query, biases[0])
        keys, values = x.split(self.widths[1:], dim=1)
        return torch.cat([F.linear(keys, self.key, biases[1]), F.linear(values, self.value, biases[2])], dim=1)


def project_separately(projection: nn.Module, x: Tensor, first: int) -> Tensor:
    """`MultiHeadAttention`'s projections if ``in_projection`` is no Linear, or memory (T', 2·D) is keys and values."""
    if isinstance(projection, SeparateProjections):
        return projection(x, first)
    if not weight_is_all(projection):
        return torch.cat([projection(y).chunk(3, dim=1)[i] for i, y in enumerate(x.chunk(2, dim=1), 1)], dim=1)
    weights = projection.weight.chunk(3)
    biases = (None,) * 3 if projection.bias is None else projection.bias.chunk(3)
    return torch.cat([F.linear(y, weights[i], biases[i]) for i, y in enumerate(x.chunk(2, dim=1), 1)], dim=1)


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same values, NaN included; not looked at where they share one memory."""
    if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        return False
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    return torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)


def must_be_merged(where: str, projection: nn.Module, error: type[Exception] = DataError) -> None:
    """Raise an error where a projection, or torch's attention, holds more than its own parameters."""
    own_names = {own.rpartition(".")[2] for own in NAMES.values()}
    extra = projection.state_dict().keys() - NAMES.keys() - own_names
    if extra:
        raise error(
            f"{where} holds {min(extra)}, which would be lost; expected adapters, parametrisations and pruning masks "
            "to be merged before"
        )


def units_of(heads: Sequence[int], width: int) -> Tensor:
    """The units of these heads, counted from 0; each head has ``width`` of them."""
    return (torch.tensor(heads)[:, None] * width + torch.arange(width)).flatten()


@torch.no_grad()
def keep_units(projection: nn.Module, index: Tensor, inputs: bool = False) -> None:
    """Keep these outputs of a linear layer (or of transformers' ``Conv1D``), or these inputs."""
    transposed = hasattr(projection, "nf")
    index, w, b = index.to(projection.weight.device), projection.weight, projection.bias
    projection.weight = nn.Parameter(w.index_select(int(inputs != transposed), index), w.requires_grad)
    if not inputs and b is not None:
        projection.bias = nn.Parameter(b[index], b.requires_grad)
    names = ("nf", "nx") if transposed else ("out_features", "in_features")
    setattr(projection, names[inputs], len(index))


def from_torch(state: dict[str, Tensor], prefix: str) -> None:
    """Rename, in a state dictionary, what `torch.nn.MultiheadAttention` saved; a missing output bias becomes 0."""
    if prefix + "out_proj.weight" in state:
        weight = state[prefix + "out_proj.weight"]
        state.setdefault(prefix + "out_proj.bias", weight.new_zeros(len(weight)))
    for torch_name, own in NAMES.items():
        if prefix + torch_name in state:
            state[f"{prefix}attention.{own}"] = state.pop(prefix + torch_name)


NAMES = {  # of torch.nn.MultiheadAttention's parameters: ours in the attention module
    "in_proj_weight": "in_projection.weight",
    "q_proj_weight": "in_projection.query",
    "k_proj_weight": "in_projection.key",
    "v_proj_weight": "in_projection.value",
    "in_proj_bias": "in_projection.bias",
    "out_proj.weight": "output.weight",
    "out_proj.bias": "output.bias",
}
