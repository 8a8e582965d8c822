"""Projections of keys and values that do not share one memory: two inputs, other widths, keys added to the input's.

Attention modules read one memory; here its rows hold keys and values side by side, (T', kdim + vdim), and for
`SeparateProjections` one more column that says which rows are not input: 1 for ``bias_k`` and ``bias_v``, 2 for zeros.

Letters: B batch, S keys, e keys added to the input's, T' rows of memory, D model width, W = H·K width of the heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.errors import DataError
from headdiv.nn.linear import weight_is_all

LEARNT, ZERO = 1, 2  # in the last column


class SeparateProjections(nn.Module):
    """W^Q, W^K and W^V with inputs of different widths, in place of `MultiHeadAttention`'s ``in_projection``.

    Parameters start as those of `torch.nn.MultiheadAttention` do.

    Args:
        widths: of query, key and value inputs.
        width: W, the output width of each.
        bias: whether they have one.
        learnt: whether a learnt key and value are added to those of the input (torch's ``add_bias_kv``).
        zero: whether a key and value of zeros are added (``add_zero_attn``).
    """

    def __init__(self, widths: tuple[int, int, int], width: int, bias: bool, learnt: bool, zero: bool) -> None:
        super().__init__()
        self.widths, self.zero = widths, zero
        shapes = {"weight": (3 * width, widths[0])}
        if not self.one_width:
            shapes = {name: (width, each) for name, each in zip(("query", "key", "value"), widths, strict=True)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape))))
        self.bias = nn.Parameter(torch.zeros(3 * width)) if bias else None
        for name in ("bias_k", "bias_v"):
            extra = nn.Parameter(nn.init.xavier_normal_(torch.empty(1, 1, width))) if learnt else None
            self.register_parameter(name, extra)

    @property
    def one_width(self) -> bool:
        """Whether the inputs have one width, and the three weights are one parameter, as in torch."""
        return len({*self.widths}) == 1

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W^Q, W^K, W^V."""
        return self.weight.chunk(3) if self.one_width else (self.query, self.key, self.value)

    @property
    def extra(self) -> int:
        """e, the keys added to those of the input."""
        return (self.bias_k is not None) + self.zero

    def joined(self, key: Tensor, value: Tensor) -> Tensor:
        """(B, S, kdim) and (B, S, vdim) as one memory, (B, S + e, kdim + vdim + 1)."""
        rows = F.pad(torch.cat([key, value], dim=2), (0, 1))
        for mark in (LEARNT,) * (self.bias_k is not None) + (ZERO,) * self.zero:
            row = F.pad(rows.new_full((rows.shape[0], 1, 1), mark), (rows.shape[2] - 1, 0))
            rows = torch.cat([rows, row], dim=1)
        return rows

    def forward(self, x: Tensor, first: int) -> Tensor:
        """Queries (T, D) -> (T, W) for ``first`` 0; keys and values of memory (T', kdim + vdim + 1) -> (T', 2·W)."""
        weights, biases = self.weights, (None,) * 3 if self.bias is None else self.bias.chunk(3)
        if first == 0:
            return F.linear(x, weights[0], biases[0])
        keys, values, mark = x.split([*self.widths[1:], 1], dim=1)
        k, v = F.linear(keys, weights[1], biases[1]), F.linear(values, weights[2], biases[2])
        if self.bias_k is not None:
            k, v = (torch.where(mark == LEARNT, b[0], y) for b, y in ((self.bias_k, k), (self.bias_v, v)))
        if self.zero:
            k, v = (y.masked_fill(mark == ZERO, 0.0) for y in (k, v))
        return torch.cat([k, v], dim=1)


def blocks_apart(projection: nn.Module, x: Tensor, first: int) -> Tensor:
    """What `MultiHeadAttention` projects where ``in_projection`` is no Linear, or memory is (T', 2·D): keys, values."""
    if isinstance(projection, SeparateProjections):
        return projection(x, first)
    if not weight_is_all(projection):
        return torch.cat([projection(y).chunk(3, dim=1)[i] for i, y in enumerate(x.chunk(2, dim=1), 1)], dim=1)
    weights = projection.weight.chunk(3)
    biases = (None,) * 3 if projection.bias is None else projection.bias.chunk(3)
    return torch.cat([F.linear(y, weights[i], biases[i]) for i, y in enumerate(x.chunk(2, dim=1), 1)], dim=1)


# ---- names of parameters


def must_be_merged(where: str, projection: nn.Module, error: type[Exception] = DataError, but: str = "") -> None:
    """Raise an error where a projection, or torch's attention, holds more than parameters, ``but`` this submodule."""
    known = {name for names in NAMES.items() for name in (names[0], names[1].rpartition(".")[2])}
    if more := {name for name in projection.state_dict() if name.partition(".")[0] != but} - known:
        raise error(
            f"{where} holds {min(more)}, which would be lost; expected adapters, parametrisations and pruning masks to "
            "be merged before"
        )


def from_torch(state: dict[str, Tensor], prefix: str) -> None:
    """Rename, in a state dictionary, what `torch.nn.MultiheadAttention` saved; a missing output bias becomes 0."""
    if prefix + "out_proj.weight" in state:
        weight = state[prefix + "out_proj.weight"]
        state.setdefault(prefix + "out_proj.bias", weight.new_zeros(len(weight)))
    for theirs, ours in NAMES.items():
        if prefix + theirs in state:
            state[f"{prefix}attention.{ours}"] = state.pop(prefix + theirs)


def to_torch(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse: the state dictionary of an attention module whose output is a Linear, under torch's names."""
    made = {theirs: state[ours] for theirs, ours in NAMES.items() if ours in state}
    if "in_proj_bias" not in made:  # torch's output then has none either
        if made["out_proj.bias"].any():
            made["in_proj_bias"] = made["out_proj.bias"].new_zeros(3 * made["out_proj.weight"].shape[1])
        else:
            del made["out_proj.bias"]
    return made


NAMES = {  # of torch.nn.MultiheadAttention's parameters: ours in the attention module
    "in_proj_weight": "in_projection.weight",
    "q_proj_weight": "in_projection.query",
    "k_proj_weight": "in_projection.key",
    "v_proj_weight": "in_projection.value",
    "in_proj_bias": "in_projection.bias",
    "bias_k": "in_projection.bias_k",
    "bias_v": "in_projection.bias_v",
    "out_proj.weight": "output.weight",
    "out_proj.bias": "output.bias",
}
