"""Methods in existing models: transformers models, or models with torch's own attention.

model = BertForMaskedLM.from_pretrained(name)
method = headdiv.insert(model, {"name": "deacon", "architecture": "direct", "m": 12})
…
loss.backward()
method.after_backward(model, progress)
optimiser.step()

What a method puts between the heads and W^O goes in front of the model's own output projection, or replaces it and
starts from its weights as far as there is a place for them: mixing starts as the model was, kWTA keeps the projection,
DEACON's direct architecture starts with the part of it that its components can express. Padding never gets there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.core.arguments import must_be
from headdiv.core.errors import ConfigError, DataError, TrainingError
from headdiv.core.modules import Holder
from headdiv.methods.base import Method, acts_on_block, refuse_no_attention
from headdiv.methods.combined import parts_of
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.options.swaps import SwapOptions
from headdiv.methods.registry import METHODS, make_method
from headdiv.nn.linear import WeightAndBias
from headdiv.nn.projections import NAMES, must_be_merged
from headdiv.nn.sizes import ATTENTION_KINDS, BlockSpec, Kind, Sizes
from headdiv.pretrained.attached import AttachedHeads, attach_heads, attachment_of, detach_heads
from headdiv.pretrained.projections import attention_of, bias, is_packed, is_plain, kind_of
from headdiv.pretrained.recorded import changes, must_be_recorded, record
from headdiv.pretrained.rollback import all_or_nothing


class InsertedOutput(nn.Module):
    """Replaces an output projection: rows of real tokens go through it, padding becomes 0."""

    def __init__(
        self,
        attached: AttachedHeads,
        own: nn.Module | None,
        before: nn.Module | None,
        stage: nn.Module,
    ) -> None:
        super().__init__()
        self.__dict__["attached"] = attached  # the model's submodule already
        self.__dict__["replaced"] = attached.projections.output  # for `remove_method`
        self.own, self.before, self.stage = own, before, stage

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, H·K) -> (B, N, D)."""
        self.attached.inputs.refuse_recomputation()
        B, N, width = x.shape
        side, rows = self.attached.query_side(), x.reshape(B * N, width)
        rows = rows if side.full else rows[side.slots]
        rows = rows if self.own is None else self.own(rows, side)
        y = self.stage(rows if self.before is None else self.before(rows))
        if not side.full:
            y = y.new_zeros(B * N, y.shape[1]).index_copy(0, side.slots, y)
        return y.view(B, N, -1)


@torch.inference_mode(False)  # parameters made within it could not be trained
def insert(model: nn.Module, method: Method | Mapping[str, Any] | str) -> Method:
    """Put a method into a model; for a method that only adds to the loss, heads are recorded from now on.

    It goes into every attention module or, with an error, into none: `inserted_modules` lists what is where,
    `remove_method` removes it. What was taken from the model stays frozen if it was, and hooks stay. In a transformers
    model, ``config.headdiv`` records the method, for `headdiv.pretrained.load`. Make the optimiser and peft's adapters
    afterwards: there are new parameters.

    Args:
        model: attached (`headdiv.pretrained.attach`), any that can be, or one with `torch.nn.MultiheadAttention`.
        method: or its name, or options as in a configuration.

    Returns:
        The method: its `after_backward` and `aux_loss` belong in the training loop.

    Raises:
        ConfigError: the method needs more than a place between heads and output projection, does not fit, or is not
            registered, so that a saved model could not be loaded.
        DataError: the model has no known attention, attention of both kinds, adapters of peft, something other than a
            plain output projection where the method replaces it, or a method already; or it is a stack of T5.
    """
    made = method if isinstance(method, Method) else make_method(method)
    registered = next((name for name, cls in METHODS.items() if cls is type(made)), None)
    name = registered or type(made).__name__
    must_be("model", model, nn.Module, "a torch.nn.Module")
    theirs = _torchs_own(model)
    if theirs and any(part.options.builds_modules and hasattr(part, "inserted") for part in parts_of(made)):
        raise ConfigError(
            f"method {name!r} builds attention modules of its own and is not inserted in place of torch's; expected "
            "headdiv.MultiheadAttention(…, method) there, which loads torch's state, or a model of transformers"
        )
    if any(
        isinstance(part.options, SwapOptions)
        or (part.options.builds_modules and (theirs or not hasattr(part, "inserted")))
        for part in parts_of(made)
    ) or acts_on_block(made, BlockSpec("encoder", 0, 1)):
        raise ConfigError(f"method {name!r} changes more than what is between heads and output projection")
    if not theirs and registered is None and any(made.options.hooks_for(kind) for kind in ATTENTION_KINDS):
        raise ConfigError(
            f"method {name!r} is not registered, and what it makes could not be loaded once the model is saved; "
            f"expected headdiv.register({name}, '…') before"
        )
    new = attachment_of(model) is None
    if not theirs:
        _refuse_ours(model)
        attach_heads(model)
    try:
        with all_or_nothing(model):
            if theirs:
                _replace(model, made, theirs)
            else:
                _insert_into_attached(model, made, name, registered is not None)
    except BaseException:
        if new:
            detach_heads(model)
        raise
    return made


def inserted_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that `insert` put into the model, by path; for peft's ``modules_to_save``."""
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        if isinstance(module, InsertedOutput):
            parts = module.own, module.before, module.stage if module.stage is not module.replaced else None
            names = ("own", "before", "stage")
            found |= {f"{path}.{name}": part for name, part in zip(names, parts, strict=True) if part is not None}
        elif isinstance(module, MultiheadAttention) and hasattr(module, "replaced"):
            found[path] = module
    return found


@torch.inference_mode(False)
def remove_method(model: nn.Module) -> None:
    """Remove what `insert` put into a model.

    Parameters that the model kept stay as they are now; an output projection that the method replaced is the one that
    was there before.

    Raises:
        DataError: nothing was inserted, or torch's own attention would lack what it needs or has no place for: heads
            that have been removed since, or adapters on its projections.
    """
    attachment = attachment_of(model)
    inserted = [
        (owner, name, module)
        for owner in model.modules()
        for name, module in owner._modules.items()  # under each of its names
        if isinstance(module, InsertedOutput | MultiheadAttention) and hasattr(module, "replaced")
    ]
    recorded = attachment is not None and "method" in changes(attachment.config)
    if not inserted and not recorded:
        raise DataError(f"{type(model).__name__}: found no method; expected one that headdiv.insert has put there")
    ours = [module for _, _, module in inserted if isinstance(module, MultiheadAttention)]
    if fewer := next((each for each in ours if each.num_heads != each.replaced.num_heads), None):
        raise DataError(
            f"{fewer.attention.spec.place}: has {fewer.num_heads} heads of {fewer.replaced.num_heads}; expected all of "
            "them, since torch's own attention has no place for fewer"
        )
    for module in ours:
        for name, part in _projections(module).items():
            before = getattr(module.attention.before_output, "registered_as", "before_output")
            must_be_merged(f"{module.attention.spec.place}: its {name}", part, but=before)
    for each in attachment.heads if attachment else ():
        each.unwatch()
    for module in ours:
        _give_back(module)
    former = {module: _former(module) for _, _, module in inserted}
    for module, old in former.items():
        _move_hooks(module, old)
    for owner, name, module in inserted:
        setattr(owner, name, former[module])
        if isinstance(module, InsertedOutput):
            module.attached.built_by = None
    for each in attachment.heads if attachment else ():
        each.watch()
    if recorded:
        record(model, "method", None)


def _former(module: InsertedOutput | MultiheadAttention) -> nn.Module:
    """What takes the place of an inserted module; a projection that the method kept, with the adapters on it now."""
    if isinstance(module, InsertedOutput) and module.replaced in module.stage.modules():
        return module.stage
    return module.replaced.to(next(iter(module.parameters()))).train(module.training)


def inserted_method(model: nn.Module) -> Method | None:
    """A new object of the method in a loaded or attached model; None where nothing was inserted."""
    attachment = attachment_of(model)
    if attachment is None or not any(isinstance(module, InsertedOutput) for module in model.modules()):
        return None
    return make_method(attachment.config.headdiv["method"])


def _torchs_own(model: nn.Module) -> list[tuple[str, nn.MultiheadAttention]]:
    """torch's attention modules, under each of their names.

    Raises:
        DataError: not all of the model's attention can be replaced.
    """
    found = [
        (path, module)
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.MultiheadAttention)
    ]
    for path, module in found:
        if not path:
            raise DataError(
                "the model is a torch.nn.MultiheadAttention, in whose place nothing can be put; expected "
                "headdiv.MultiheadAttention, or a model that holds it"
            )
        if type(module) is not nn.MultiheadAttention:
            raise DataError(f"{path}: a {kind_of(module)}; expected torch.nn.MultiheadAttention itself")
        must_be_merged(path, module)
    if found and (others := [spec.place for spec, _ in attention_of(model)]):
        raise DataError(
            f"{type(model).__name__}: has torch.nn.MultiheadAttention ({found[0][0]}) beside transformers' own "
            f"attention ({', '.join(others)}); expected one of the two: a part of the model, such as its text_model"
        )
    return found


def _refuse_ours(model: nn.Module) -> None:
    ours = next((path for path, module in model.named_modules() if isinstance(module, MultiheadAttention)), None)
    if ours is not None:
        raise DataError(
            f"{type(model).__name__}: has a method already: {ours or 'it'} is headdiv.MultiheadAttention, which is "
            "given its method when it is made; headdiv.remove_method(model) takes out what headdiv.insert put there"
        )


def _insert_into_attached(model: nn.Module, made: Method, name: str, registered: bool) -> None:
    attachment = attachment_of(model)
    if inserted_method(model) is not None:
        raise DataError("the model has a method already: expected one; 'combined' is several")
    for each in attachment.heads:
        _must_fit(made, name, each.spec.heads, each.spec.d_head)
    try:
        refuse_no_attention(made.options, model)
    except TrainingError as error:
        raise ConfigError(f"method {name!r}: {error}") from None
    for each in attachment.heads:
        _insert(each, made)
    if inserted_modules(model):
        _refuse_adapters(model)
        must_be_recorded(model)
    for each in attachment.heads:
        if isinstance(each.projections.output, InsertedOutput):
            each.built_by = made
    if not registered:  # a loss alone: the model is the same without it
        return
    record(model, "method", {"name": name, **made.options.model_dump(mode="json")})


def _must_fit(method: Method, name: str, heads: int, width: int) -> None:
    if problem := method.options.check(Sizes(d_model=heads * width, heads=heads)):
        raise ConfigError(f"method {name!r}: {problem[0]}: {problem[1]}")


def _insert(each: AttachedHeads, method: Method) -> None:
    made, old = method.options.hooks_for(each.spec.kind), each.projections.output
    if not made:
        return
    if is_packed(old):
        raise DataError(
            f"{each.spec.place}: its output projection is a {kind_of(old)}, whose weight is no tensor of numbers that "
            "the method's parameters could be like; expected a model that is not quantised"
        )
    weight, stage = old.weight.T if hasattr(old, "nf") else old.weight, old
    if "output_stage" in made:
        if not is_plain(old):
            raise DataError(
                f"{each.spec.place}: the method takes the place of the output projection, which is no plain Linear of "
                f"torch.nn but a {kind_of(old)}: what else it holds would be lost"
            )
        must_be_merged(f"{each.spec.place}: its output projection", old)
        stage = method.output_stage(each.spec)
        _take_over(stage, weight, bias(old))
    before = method.before_output(each.spec) if "before_output" in made else None
    builders = (part for part in parts_of(method) if "attention" in part.options.hooks_for(each.spec.kind))
    own = next((part.inserted(each.spec) for part in builders), None)
    inserted = InsertedOutput(each, own, before, stage).train(old.training).to(weight)
    each.unwatch()
    _move_hooks(old, inserted)
    setattr(each.projections.owner, each.projections.name, inserted)
    each.watch()


def _refuse_adapters(model: nn.Module) -> None:
    if any(getattr(part, "peft_config", None) for part in model.modules()):
        raise DataError(
            f"{type(model).__name__}: has adapters of peft, which would not save what the method puts there "
            f"({min(inserted_modules(model))}, …); expected adapters that are made afterwards, with "
            "LoraConfig(…, modules_to_save=[*headdiv.inserted_modules(model)])"
        )


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Move the hooks of forward and backward passes, whose handles stay valid; torch's own, as of pruning, stay."""
    for name, value in vars(nn.Module()).items():
        if "_hooks" in name and name.startswith(("_forward", "_backward")):
            moved, left = old.__dict__[name], type(value)()
            for number, hook in list(moved.items()):
                if any(cls.__module__.startswith("torch.nn.utils.") for cls in type(hook).__mro__):
                    left[number] = moved.pop(number)
            moved.update(new.__dict__[name])
            new.__dict__[name], old.__dict__[name] = moved, left
    new._is_full_backward_hook, old._is_full_backward_hook = old._is_full_backward_hook, None


@torch.no_grad()
def _take_over(stage: nn.Module, weight: Tensor, offset: Tensor | None) -> None:
    """Start an output stage from a projection's weight (D, H·K) and bias; frozen where they are."""
    values = torch.zeros(len(weight)) if offset is None else offset
    if hasattr(stage, "take_over"):
        stage.take_over(weight, values)
    elif isinstance(stage, nn.Linear):
        stage.weight.copy_(weight)
        stage.bias.copy_(values)
    else:
        raise ConfigError(
            f"the output stage {type(stage).__name__} cannot start from a projection's weights; "
            "expected an nn.Linear, or a method take_over(weight, bias)"
        )
    projection = stage if isinstance(stage, nn.Linear | WeightAndBias) else getattr(stage, "project", None)
    if projection is not None:
        projection.weight.requires_grad_(weight.requires_grad)
        projection.bias.requires_grad_((weight if offset is None else offset).requires_grad)


def _replace(model: nn.Module, method: Method, theirs: list[tuple[str, nn.MultiheadAttention]]) -> None:
    """Put the drop-in in place of torch's attention modules; projections that stay keep their parameters."""
    layers: Counter[Kind] = Counter()
    made: dict[int, MultiheadAttention] = {}
    for path, old in theirs:
        owner, _, last = path.rpartition(".")
        owner = model.get_submodule(owner)
        if id(old) in made:
            setattr(owner, last, made[id(old)])
            continue
        own: Kind = "decoder" if isinstance(owner, nn.TransformerDecoderLayer) else "encoder"
        kind = "cross" if last == "multihead_attn" else own
        try:
            new = MultiheadAttention(
                old.embed_dim, old.num_heads, method, dropout=old.dropout, bias=old.in_proj_bias is not None,
                kdim=old.kdim, vdim=old.vdim, batch_first=old.batch_first, kind=kind, layer=layers[kind],
                add_bias_kv=old.bias_k is not None, add_zero_attn=old.add_zero_attn,
            )  # fmt: skip
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        layers[kind] += 1
        _take_over(new.attention.output, old.out_proj.weight, old.out_proj.bias)
        new.to(old.out_proj.weight).train(old.training)
        for part, name, its, its_name in _kept(new, old):
            if (parameter := getattr(its, its_name)) is not None:
                setattr(part, name, parameter)
        new.__dict__["replaced"] = old
        if kind == "cross" and isinstance(getattr(owner, "self_attn", None), MultiheadAttention):
            new.holder = Holder(owner)
        _move_hooks(old, new)
        made[id(old)] = new
        setattr(owner, last, new)


def _kept(new: MultiheadAttention, old: nn.MultiheadAttention) -> Iterator[tuple[nn.Module, str, nn.Module, str]]:
    """Which parameters of ours are which of torch's, by module and name: not those of a method's output stage."""
    parts = _projections(new)
    for theirs, ours in NAMES.items():
        (where, name), (owner, _, last) = ours.split("."), theirs.rpartition(".")
        if where in parts:
            yield parts[where], name, old.get_submodule(owner), last


def _projections(new: MultiheadAttention) -> dict[str, nn.Module]:
    """Ours that stand for torch's own, by name: not a method's output stage."""
    found = {"in_projection": new.attention.in_projection}
    if "output_stage" not in new.method.options.hooks_for(new.attention.spec.kind):
        found["output"] = new.attention.output
    return found


def _give_back(new: MultiheadAttention) -> None:
    """Parameters that are others by now (assigned, or a bias that was trained where there was none) go to torch's."""
    for part, name, owner, theirs in _kept(new, new.replaced):
        found = getattr(part, name, None)
        if found is not None and (getattr(owner, theirs) is not None or found.any()):
            setattr(owner, theirs, found)
