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

Plan = list[tuple[nn.Module, str, nn.Module]]  # a module, the name of its attribute, and the module to put there


def attention_of_torch(model: nn.Module) -> list[tuple[str, nn.MultiheadAttention]]:
    """torch's attention modules, under each of their names.

    Raises:
        DataError: not all of the model's attention can be replaced.
    """
    torch_modules = [
        (path, module)
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.MultiheadAttention)
    ]
    for path, module in torch_modules:
        if type(module) is not nn.MultiheadAttention:
            raise DataError(f"{path}: a {kind_of(module)}; expected torch.nn.MultiheadAttention itself")
        must_be_merged(path, module)
    others = [spec.name for spec, _ in attention_of(model)] if torch_modules else []
    if others:
        raise DataError(
            f"{type(model).__name__}: has torch.nn.MultiheadAttention ({torch_modules[0][0]}) beside transformers' own "
            f"attention ({', '.join(others)}); expected one of the two: a part of the model, such as its text_model"
        )
    return torch_modules


def plan_for_torch(model: nn.Module, method: Method, torch_modules: list[tuple[str, nn.MultiheadAttention]]) -> Plan:
    """A drop-in with the method for each of torch's; a ConfigError where it does not fit."""
    layers: Counter[Kind] = Counter()
    drop_ins: dict[nn.MultiheadAttention, MultiheadAttention] = {}
    plan = []
    for path, old in torch_modules:
        parent, _, attribute = path.rpartition(".")
        owner = model.get_submodule(parent)
        if old not in drop_ins:
            kind: Kind = "decoder" if isinstance(owner, nn.TransformerDecoderLayer) else "encoder"
            if attribute == "multihead_attn":
                kind = "cross"
            try:
                drop_ins[old] = _make_drop_in(old, method, kind, layers[kind])
            except ValueError as error:
                raise ConfigError(f"{path}: {error}") from None
            layers[kind] += 1
            if kind == "cross" and hasattr(owner, "self_attn"):
                drop_ins[old].holder = Holder(owner)
        plan.append((owner, attribute, drop_ins[old]))
    return plan


def _make_drop_in(old: nn.MultiheadAttention, method: Method, kind: Kind, layer: int) -> MultiheadAttention:
    """A drop-in in place of torch's attention; projections that stay share its parameters."""
    new = MultiheadAttention(
        old.embed_dim, old.num_heads, method, dropout=old.dropout, bias=old.in_proj_bias is not None,
        kdim=old.kdim, vdim=old.vdim, batch_first=old.batch_first, kind=kind, layer=layer,
        add_bias_kv=old.bias_k is not None, add_zero_attn=old.add_zero_attn,
    )  # fmt: skip
    start_from(new.attention.output, old.out_proj.weight, old.out_proj.bias)
    new.to(old.out_proj.weight).train(old.training)
    for part, name, owner, torch_name in _shared_parameters(new, old):
        parameter = getattr(owner, torch_name)
        if parameter is not None:
            setattr(part, name, parameter)
    new.__dict__["replaced"] = old
    return new


def _shared_parameters(
    new: MultiheadAttention, old: nn.MultiheadAttention
) -> Iterator[tuple[nn.Module, str, nn.Module, str]]:
    """The drop-in's parameters that are torch's, each by module and name in both; not those of an output stage."""
    parts = _projections(new)
    for torch_path, path in NAMES.items():
        part, name = path.split(".")
        owner, _, torch_name = torch_path.rpartition(".")
        if part in parts:
            yield parts[part], name, old.get_submodule(owner), torch_name


def _projections(new: MultiheadAttention) -> dict[str, nn.Module]:
    """The drop-in's projections that torch's attention has too, by name; not a method's output stage."""
    parts = {"in_projection": new.attention.in_projection}
    if "output_stage" not in new.method.options.hooks_for(new.attention.spec.kind):
        parts["output"] = new.attention.output
    return parts


def must_fit_torch(new: MultiheadAttention) -> None:
    """Raise a DataError where torch's own attention has no place for what ours has by now."""
    place = new.attention.spec.name
    if new.num_heads != new.replaced.num_heads:
        raise DataError(
            f"{place}: has {new.num_heads} heads of {new.replaced.num_heads}; expected all of them, since torch's own "
            "attention has no place for fewer"
        )
    for name, part in _projections(new).items():
        must_be_merged(f"{place}: its {name}", part)


def give_back(new: MultiheadAttention) -> None:
    """Give torch's attention the parameters that are new since (assigned, or a bias trained where there was none)."""
    for part, name, owner, torch_name in _shared_parameters(new, new.replaced):
        parameter = getattr(part, name, None)
        if parameter is not None and (getattr(owner, torch_name) is not None or parameter.any()):
            setattr(owner, torch_name, parameter)


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
