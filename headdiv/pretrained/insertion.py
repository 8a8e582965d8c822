"""Methods in existing models: transformers models, or models with torch's own attention.

model = BertForMaskedLM.from_pretrained(name)
method = headdiv.insert(model, {"name": "deacon", "architecture": "direct", "m": 12})
…
loss.backward()
method.before_optimizer_step(model, progress)
optimiser.step()

What a method puts between the heads and W^O goes in front of the model's own output projection, or replaces it and
starts from its weights as far as there is a place for them: mixing starts as the model was, kWTA keeps the projection,
DEACON's direct architecture starts with the part of it that its components can express. Padding never gets there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from headdiv.core.errors import ConfigError, DataError, TrainingError
from headdiv.methods.base import Method, acts_on_block
from headdiv.methods.combined import parts_of, refuse_no_attention
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.registry import METHODS, make_method
from headdiv.methods.rotation import SwappingMethod
from headdiv.nn.packing import real_rows
from headdiv.nn.projections import must_be_merged
from headdiv.nn.sizes import ATTENTION_KINDS, BlockSpec, Sizes
from headdiv.pretrained.attached import AttachedHeads, Attachment, attach_heads, attachment_of, changes, detach_heads
from headdiv.pretrained.drop_ins import Plan, attention_of_torch, give_back, must_fit_torch, plan_for_torch, start_from
from headdiv.pretrained.projections import is_plain, kind_of


class InsertedOutput(nn.Module):
    """Replaces an output projection: rows of real tokens go through it, padding becomes 0.

    Args:
        attached: the heads whose outputs it gets.
        own: what they go through first, from a method that builds attention modules of its own.
        before: what they go through in front of the output stage.
        stage: the output stage; None: the model's own projection.
    """

    def __init__(
        self, attached: AttachedHeads, own: nn.Module | None, before: nn.Module | None, stage: nn.Module | None
    ) -> None:
        super().__init__()
        replaced = attached.projections.output
        self.__dict__["attached"] = attached  # the model's submodule already
        self.__dict__["replaced"] = replaced  # for `remove_method`
        self.keeps = stage is None  # the model's projection, in which adapters may be wrapped later
        parts = nn.ModuleList(part for part in (own, before, stage) if part is not None)
        parts.to(replaced.weight).train(replaced.training)
        self.own, self.before, self.stage = own, before, replaced if stage is None else stage
        self.training = replaced.training

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, H·K) -> (B, N, D)."""
        self.attached.inputs.refuse_recomputation()
        B, N, _ = x.shape
        rows = self.attached.query_rows()
        heads = real_rows(x, rows)  # (T, H·K)
        heads = heads if self.own is None else self.own(heads, rows)
        y = self.stage(heads if self.before is None else self.before(heads))
        if not rows.full:
            y = y.new_zeros(B * N, y.shape[1]).index_copy(0, rows.slots, y)
        return y.view(B, N, -1)


def insert(model: nn.Module, method: Method | Mapping[str, Any] | str) -> Method:
    """Put a method into a model; for a method that only adds to the loss, heads are recorded from now on.

    It goes into every attention module or, with an error, into none: `inserted_modules` lists what is where,
    `remove_method` removes it. Parameters taken from the model stay frozen if they were. In a transformers model,
    ``config.headdiv`` records the method, for `headdiv.pretrained.load`. Make the optimiser, peft's adapters and hooks
    of your own afterwards: there are new modules with new parameters.

    Args:
        model: attached (`headdiv.pretrained.attach`), any that can be, or one with `torch.nn.MultiheadAttention`.
        method: or its name, or options as in a configuration.

    Returns:
        The method: its `before_optimizer_step` and `aux_loss` belong in the training loop.

    Raises:
        ConfigError: the method needs more than a place between heads and output projection, does not fit, or is not
            registered, so that a saved model could not be loaded.
        DataError: the model has no known attention, attention of both kinds, adapters of peft, something other than a
            plain output projection, or a method already; or it is a stack of T5.
    """
    if not isinstance(method, Method):
        method = make_method(method)
    registered = next((name for name, cls in METHODS.items() if cls is type(method)), None)
    name = registered or type(method).__name__
    torch_modules = attention_of_torch(model)
    _must_be_insertable(method, name, bool(torch_modules))
    if torch_modules:
        _apply(plan_for_torch(model, method, torch_modules), [])
        return method
    if registered is None and any(method.options.hooks_for(kind) for kind in ATTENTION_KINDS):
        raise ConfigError(
            f"method {name!r} is not registered, and what it makes could not be loaded once the model is saved; "
            f"expected headdiv.register({name}) before"
        )
    if inserted_method(model) is not None:
        raise DataError(
            f"{type(model).__name__}: has a method already; expected one ('combined' is several): "
            "headdiv.remove_method(model) takes out what headdiv.insert put there"
        )
    newly_attached = attachment_of(model) is None
    attachment = attach_heads(model)
    try:
        plan = _plan_for_attached(model, attachment, method, name)
    except BaseException:
        if newly_attached:
            detach_heads(model)
        raise
    _apply(plan, attachment.heads)
    for _, _, new in plan:
        new.attached.method = method
    if registered is not None:  # a loss of one's own leaves the model as it is
        attachment.record("method", {"name": name, **method.options.model_dump(mode="json")})
    return method


def inserted_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that `insert` put into the model, by path; for peft's ``modules_to_save``."""
    inserted: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        if isinstance(module, InsertedOutput):
            parts = {"own": module.own, "before": module.before, "stage": None if module.keeps else module.stage}
            inserted |= {f"{path}.{name}": part for name, part in parts.items() if part is not None}
        elif isinstance(module, MultiheadAttention) and hasattr(module, "replaced"):
            inserted[path] = module
    return inserted


def inserted_method(model: nn.Module) -> Method | None:
    """A model's method, of a loaded or attached model as a new object; None where there is none."""
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            return module.method
    attachment = attachment_of(model)
    if attachment is None or not any(isinstance(module, InsertedOutput) for module in model.modules()):
        return None
    return make_method(attachment.config.headdiv["method"])


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
    drop_ins = dict.fromkeys(module for _, _, module in inserted if isinstance(module, MultiheadAttention))
    for drop_in in drop_ins:
        must_fit_torch(drop_in)
    for drop_in in drop_ins:
        give_back(drop_in)
    plan = [(owner, name, _restored(module)) for owner, name, module in inserted]
    _apply(plan, [] if attachment is None else attachment.heads)
    if recorded:
        attachment.record("method", None)


def _apply(plan: Plan, heads: list[AttachedHeads]) -> None:
    """Put the new modules in place of the old ones, and an attached model's hooks on them."""
    for attached in heads:
        attached.unwatch()
        attached.method = None
    for owner, name, new in plan:
        setattr(owner, name, new)
    for attached in heads:
        attached.watch()


def _restored(module: InsertedOutput | MultiheadAttention) -> nn.Module:
    """What takes the place of an inserted module; a projection that the method kept, with the adapters on it now."""
    if isinstance(module, InsertedOutput) and module.keeps:
        return module.stage
    return module.replaced.to(next(iter(module.parameters()))).train(module.training)


def _must_be_insertable(method: Method, name: str, into_torchs: bool) -> None:
    """Raise a ConfigError where a method changes more than an existing model has a place for."""
    parts = parts_of(method)
    builders = [part for part in parts if part.options.builds_modules]
    if into_torchs and any(hasattr(part, "inserted") for part in builders):
        raise ConfigError(
            f"method {name!r} builds attention modules of its own and is not inserted in place of torch's; expected "
            "headdiv.MultiheadAttention(…, method) there, which loads torch's state, or a model of transformers"
        )
    swaps = any(isinstance(part, SwappingMethod) for part in parts)
    builds = any(not hasattr(part, "inserted") for part in builders)
    if swaps or builds or acts_on_block(method, BlockSpec("encoder", 0, 1)):
        raise ConfigError(f"method {name!r} changes more than what is between heads and output projection")


def _plan_for_attached(model: nn.Module, attachment: Attachment, method: Method, name: str) -> Plan:
    for attached in attachment.heads:
        spec = attached.spec
        if problem := method.options.check(Sizes(d_model=spec.heads * spec.d_head, heads=spec.heads)):
            raise ConfigError(f"method {name!r}: {problem[0]}: {problem[1]}")
    try:
        refuse_no_attention(method, model)
    except TrainingError as error:
        raise ConfigError(f"method {name!r}: {error}") from None
    plan = [
        (attached.projections.owner, attached.projections.name, _inserted_output(attached, method))
        for attached in attachment.heads
        if method.options.hooks_for(attached.spec.kind)
    ]
    if plan and any(getattr(part, "peft_config", None) for part in model.modules()):
        raise DataError(
            f"{type(model).__name__}: has adapters of peft, which would not save what the method puts there; expected "
            "adapters that are made afterwards, with LoraConfig(…, modules_to_save=[*headdiv.inserted_modules(model)])"
        )
    if plan:
        attachment.must_be_recorded()
    return plan


def _inserted_output(attached: AttachedHeads, method: Method) -> InsertedOutput:
    spec, projection = attached.spec, attached.projections.output
    hooks = method.options.hooks_for(spec.kind)
    if not is_plain(projection):
        raise DataError(
            f"{spec.name}: the method needs an output projection that is a plain Linear of torch.nn, found a "
            f"{kind_of(projection)}: what else it holds would be lost"
        )
    must_be_merged(f"{spec.name}: its output projection", projection)
    stage = None
    if "output_stage" in hooks:
        stage = method.output_stage(spec)
        weight = projection.weight.T if hasattr(projection, "nf") else projection.weight
        start_from(stage, weight, projection.bias)
    before = method.before_output(spec) if "before_output" in hooks else None
    builders = (part for part in parts_of(method) if "attention" in part.options.hooks_for(spec.kind))
    own = next((part.inserted(spec) for part in builders), None)
    return InsertedOutput(attached, own, before, stage)
