"""`headdiv.MultiheadAttention` in place of torch's in an existing model, and torch's in its place again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headdiv.core.errors import ConfigError, DataError
from headdiv.core.modules import Holder
from headdiv.methods.base import Method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.linear import WeightAndBias
from headdiv.nn.projections import NAMES, must_be_merged
from headdiv.nn.sizes import Kind
from headdiv.pretrained.projections import attention_of, kind_of

Plan = list[tuple[nn.Module, str, nn.Module]]  # a module, the name of its attribute, and what is to stand there


def attention_of_torch(model: nn.Module) -> list[tuple[str, nn.MultiheadAttention]]:
    """torch's attention modules, under each of their names.

    Raises:
        DataError: not all of the model's attention can be replaced.
    """
    theirs = [
        (path, module)
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.MultiheadAttention)
    ]
    for path, module in theirs:
        if type(module) is not nn.MultiheadAttention:
            raise DataError(f"{path}: a {kind_of(module)}; expected torch.nn.MultiheadAttention itself")
        must_be_merged(path, module)
    if theirs and (others := [spec.name for spec, _ in attention_of(model)]):
        raise DataError(
            f"{type(model).__name__}: has torch.nn.MultiheadAttention ({theirs[0][0]}) beside transformers' own "
            f"attention ({', '.join(others)}); expected one of the two: a part of the model, such as its text_model"
        )
    return theirs


def plan_for_torch(model: nn.Module, method: Method, theirs: list[tuple[str, nn.MultiheadAttention]]) -> Plan:
    """A drop-in with the method for each of torch's; a ConfigError where it does not fit."""
    layers: Counter[Kind] = Counter()
    made: dict[nn.MultiheadAttention, MultiheadAttention] = {}
    plan = []
    for path, old in theirs:
        owner, _, last = path.rpartition(".")
        owner = model.get_submodule(owner)
        if old not in made:
            own: Kind = "decoder" if isinstance(owner, nn.TransformerDecoderLayer) else "encoder"
            kind = "cross" if last == "multihead_attn" else own
            try:
                made[old] = _drop_in(old, method, kind, layers[kind])
            except ValueError as error:
                raise ConfigError(f"{path}: {error}") from None
            layers[kind] += 1
            if kind == "cross" and hasattr(owner, "self_attn"):
                made[old].holder = Holder(owner)
        plan.append((owner, last, made[old]))
    return plan


def _drop_in(old: nn.MultiheadAttention, method: Method, kind: Kind, layer: int) -> MultiheadAttention:
    """What takes the place of torch's attention; projections that stay share its parameters."""
    new = MultiheadAttention(
        old.embed_dim, old.num_heads, method, dropout=old.dropout, bias=old.in_proj_bias is not None,
        kdim=old.kdim, vdim=old.vdim, batch_first=old.batch_first, kind=kind, layer=layer,
        add_bias_kv=old.bias_k is not None, add_zero_attn=old.add_zero_attn,
    )  # fmt: skip
    start_from(new.attention.output, old.out_proj.weight, old.out_proj.bias)
    new.to(old.out_proj.weight).train(old.training)
    for part, name, owner, theirs in _kept(new, old):
        if (parameter := getattr(owner, theirs)) is not None:
            setattr(part, name, parameter)
    new.__dict__["replaced"] = old
    return new


def _kept(new: MultiheadAttention, old: nn.MultiheadAttention) -> Iterator[tuple[nn.Module, str, nn.Module, str]]:
    """Which parameters of ours are which of torch's, by module and name: not those of a method's output stage."""
    parts = _projections(new)
    for theirs, ours in NAMES.items():
        (where, name), (owner, _, last) = ours.split("."), theirs.rpartition(".")
        if where in parts:
            yield parts[where], name, old.get_submodule(owner), last


def _projections(new: MultiheadAttention) -> dict[str, nn.Module]:
    """Ours that stand for torch's own, by name: not a method's output stage."""
    parts = {"in_projection": new.attention.in_projection}
    if "output_stage" not in new.method.options.hooks_for(new.attention.spec.kind):
        parts["output"] = new.attention.output
    return parts


def must_fit_torch(new: MultiheadAttention) -> None:
    """Raise a DataError where torch's own attention has no place for what ours has by now."""
    where = new.attention.spec.name
    if new.num_heads != new.replaced.num_heads:
        raise DataError(
            f"{where}: has {new.num_heads} heads of {new.replaced.num_heads}; expected all of them, since torch's own "
            "attention has no place for fewer"
        )
    for name, part in _projections(new).items():
        must_be_merged(f"{where}: its {name}", part)


def give_back(new: MultiheadAttention) -> None:
    """Parameters that are others by now (assigned, or a bias that was trained where there was none) go to torch's."""
    for part, name, owner, theirs in _kept(new, new.replaced):
        parameter = getattr(part, name, None)
        if parameter is not None and (getattr(owner, theirs) is not None or parameter.any()):
            setattr(owner, theirs, parameter)


@torch.no_grad()
def start_from(stage: nn.Module, weight: Tensor, offset: Tensor | None) -> None:
    """Start an output stage from a projection's weight (D, H·K) and bias; frozen where they are."""
    values = torch.zeros(len(weight)) if offset is None else offset
    if hasattr(stage, "init_from"):
        stage.init_from(weight, values)
    elif isinstance(stage, nn.Linear):
        stage.weight.copy_(weight)
        stage.bias.copy_(values)
    else:
        raise ConfigError(
            f"the output stage {type(stage).__name__} cannot start from a projection's weights; "
            "expected an nn.Linear, or a method init_from(weight, bias)"
        )
    projection = stage if isinstance(stage, nn.Linear | WeightAndBias) else getattr(stage, "project", None)
    if projection is not None:
        projection.weight.requires_grad_(weight.requires_grad)
        projection.bias.requires_grad_((weight if offset is None else offset).requires_grad)
