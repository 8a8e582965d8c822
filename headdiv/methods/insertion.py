"""Methods in models that are there already: of transformers, or built of torch's own attention.

model = BertForMaskedLM.from_pretrained(name)
method = headdiv.insert(model, {"name": "deacon", "architecture": "direct", "m": 12})
…
loss.backward()
method.after_backward(model, progress)
optimiser.step()

What a method puts between the heads and W^O goes in front of the model's own output projection, or takes its place and
starts from its weights as far as there is a place for them: mixing starts as the model was, kWTA keeps the projection,
DEACON's direct architecture starts with the part of it that its components can express. Padding never gets there.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.core.errors import ConfigError, DataError, TrainingError
from headdiv.methods.base import Method
from headdiv.methods.registry import METHODS, make_method
from headdiv.nn.attached import AttachedHeads, attach_heads, attachment_of, transformers
from headdiv.nn.attention import KINDS, BlockSpec, Kind
from headdiv.nn.config import Sizes
from headdiv.nn.drop_in import MultiheadAttention
from headdiv.nn.projections import bias
from headdiv.nn.removal import remove_heads


class InsertedOutput(nn.Module):
    """What stands in place of an output projection: rows of real tokens go through it, padding becomes 0."""

    def __init__(
        self, attached: AttachedHeads, own: nn.Module | None, before: nn.Module | None, stage: nn.Module
    ) -> None:
        super().__init__()
        self.__dict__["attached"] = attached  # the model's submodule already
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


def insert(model: nn.Module, method: Method | Mapping[str, Any]) -> Method:
    """Put a method into a model; a method that only adds to the loss has its heads recorded from now on.

    Of a transformers model ``config.headdiv`` then says which, for `headdiv.pretrained.load`. Make the optimiser
    afterwards: there are new parameters.

    Args:
        model: attached (`headdiv.pretrained.attach`), any that can be, or one with `torch.nn.MultiheadAttention`.
        method: or its options, as a configuration has them.

    Returns:
        The method: its `after_backward` and `aux_loss` belong into the training.

    Raises:
        ConfigError: the method needs more than a place between heads and output projection, does not fit, or is not
            registered, so that a saved model could not be loaded.
        DataError: the model has no attention that is known here, or has a method already.
    """
    made = method if isinstance(method, Method) else make_method(method)
    registered = next((name for name, cls in METHODS.items() if cls is type(made)), None)
    name = registered or type(made).__name__
    theirs = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)]
    if (
        (made.builds_modules and (theirs or not made.can_be_inserted))
        or made.swaps_heads
        or type(made.block_output(BlockSpec("encoder", 0, 1))) is not nn.Identity
    ):
        raise ConfigError(f"method {name!r} changes more than what is between heads and output projection")
    if theirs:
        _replace(model, made, theirs)
        return made
    if registered is None and any(made.makes(kind) for kind in KINDS):
        raise ConfigError(
            f"method {name!r} is not registered, and what it makes could not be loaded once the model is saved; "
            f"expected headdiv.register({name}, '…') before"
        )
    attachment = attach_heads(model)
    if inserted_method(model) is not None:
        raise DataError("the model has a method already: expected one; 'combined' is several")
    for each in attachment.heads:
        _must_fit(made, name, each.spec.heads, each.spec.d_head)
    try:
        made.refuse_no_attention(model)
    except TrainingError as error:
        raise ConfigError(f"method {name!r}: {error}") from None
    for each in attachment.heads:
        _insert(each, made)
    if registered is None:  # a loss alone: the model is the same without it
        return made
    options = {"name": name, **made.options.model_dump(mode="json")}
    attachment.config.headdiv = {**(getattr(attachment.config, "headdiv", None) or {}), "method": options}
    return made


def _must_fit(method: Method, name: str, heads: int, width: int) -> None:
    if problem := method.misfit(Sizes(d_model=heads * width, heads=heads)):
        raise ConfigError(f"method {name!r}: {problem[0]}: {problem[1]}")


def _insert(each: AttachedHeads, method: Method) -> None:
    made, old = method.makes(each.spec.kind), each.projections.output
    if not made:
        return
    weight, stage = old.weight.T if hasattr(old, "nf") else old.weight, old
    if "output_stage" in made:
        stage = method.output_stage(each.spec)
        _take_over(stage, weight, bias(old))
    before = method.before_output(each.spec) if "before_output" in made else None
    inserted = InsertedOutput(each, method.inserted(each.spec), before, stage).train(old.training)
    setattr(each.projections.owner, each.projections.name, inserted.to(weight))
    each.watch()


@torch.no_grad()
def _take_over(stage: nn.Module, weight: Tensor, offset: Tensor | None) -> None:
    """Start an output stage from a projection's weight (D, H·K) and bias."""
    offset = torch.zeros(len(weight)) if offset is None else offset
    if hasattr(stage, "take_over"):
        stage.take_over(weight, offset)
    elif isinstance(stage, nn.Linear):  # W^O and more
        stage.weight.copy_(weight)
        stage.bias.copy_(offset)
    else:
        raise ConfigError(
            f"the output stage {type(stage).__name__} cannot start from a projection's weights; "
            "expected an nn.Linear, or a method take_over(weight, bias)"
        )


def _replace(model: nn.Module, method: Method, theirs: list[tuple[str, nn.MultiheadAttention]]) -> None:
    """The drop-in in place of torch's attention modules."""
    layers: Counter[Kind] = Counter()
    made = []
    for path, old in theirs:
        owner, _, last = path.rpartition(".")
        owner = model.get_submodule(owner)
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
        with torch.no_grad():
            new.attention.in_projection.weight.copy_(old.in_proj_weight)
            if old.in_proj_bias is not None:
                new.attention.in_projection.bias.copy_(old.in_proj_bias)
        _take_over(new.attention.output, old.out_proj.weight, old.out_proj.bias)
        made.append((owner, last, new.to(old.out_proj.weight).train(old.training)))
    for owner, last, new in made:  # all of them, or none
        setattr(owner, last, new)


# ---- saving and loading


def load(folder: str | Path) -> nn.Module:
    """A model that ``save_pretrained`` wrote after heads were removed or a method was inserted, in evaluation mode.

    Heads and methods are the model's as before: `headdiv.pretrained.attach` and `inserted_method` find them. Of any
    other model, by name or folder, ``from_pretrained``'s answer.

    Raises:
        DataError: there is no such folder, or the weights are not those of the model that ``config.json`` describes.
    """
    if (isinstance(folder, Path) or _is_path(folder)) and not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder; expected a model's, or its name on the hub")
    library = transformers()
    config = library.AutoConfig.from_pretrained(folder)
    cls = getattr(library, (config.architectures or ["AutoModel"])[0], library.AutoModel)
    changed = getattr(config, "headdiv", None)
    if not changed:
        return cls.from_pretrained(folder)
    made: dict[str, Tensor] = {}

    class Changed(cls):  # type: ignore[misc, valid-type]
        """Makes the model that was saved, for transformers' own loader: only that knows older names of parameters."""

        def __new__(_, config: Any) -> nn.Module:
            with torch.device("cpu"):  # the loader makes models without memory, which a method cannot start from
                model = cls(config)
                attach_heads(model)
                remove_heads(model, changed.get("removed", {}))
                if "method" in changed:
                    insert(model, changed["method"])
            made.update([*model.named_parameters(), *model.named_buffers()])
            return model

    with _quiet(library):
        model, found = Changed.from_pretrained(
            folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True
        )
    for problem, names in (("is not there", found["missing_keys"]), ("is unknown", found["unexpected_keys"])):
        if names:
            raise DataError(f"{folder}: the weights do not fit config.json's model: {min(names)} {problem}")
    for name, *shapes in found["mismatched_keys"]:
        its, expected = (tuple(shape) for shape in shapes)
        raise DataError(
            f"{folder}: the weights do not fit config.json's model: {name} has shape {its}, expected {expected}"
        )
    stored = model.state_dict(keep_vars=True)
    for name, x in made.items():  # tables of positions and the like, which no file holds
        if not getattr(stored.get(name), "_is_hf_initialized", False):  # the loader's mark
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, x)
    return model.eval()


def _is_path(name: str) -> bool:
    """Whether this can be no name on the hub, which is ``name`` or ``owner/name``."""
    return name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1


def inserted_method(model: nn.Module) -> Method | None:
    """A new object of the method that stands in a loaded or attached model; None where nothing was put into it."""
    attachment = attachment_of(model)
    if attachment is None or not any(isinstance(each.projections.output, InsertedOutput) for each in attachment.heads):
        return None
    return make_method(attachment.config.headdiv["method"])


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    before = library.logging.get_verbosity()
    library.logging.set_verbosity_error()
    try:
        yield
    finally:
        library.logging.set_verbosity(before)
