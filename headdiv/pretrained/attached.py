"""The heads of Hugging Face models, in place: recorded and masked in the model's own attention.

transformers calls attention through a table of functions by name. `attach` adds our function to it, which calls the
model's own one with the same arguments, so that the outputs are the same to the last bit, records what heads did, and
multiplies their outputs by masks. Every attention module gets an `AttachedHeads` as a submodule without parameters:
anything that works on headdiv's attention modules (`record_heads`, `masked_heads`, measures, losses) works on it.

Letters for shapes: B batch, N queries, S keys, H heads, G heads of keys and values, K head width, T real tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headdiv.core.errors import ConfigError, DataError
from headdiv.core.modules import Holder, with_state
from headdiv.nn.packing import AttentionLayout, PackedRows
from headdiv.nn.records import HeadModule, HeadRecord
from headdiv.nn.sizes import AttentionSpec
from headdiv.pretrained.checkpointing import leave_checkpointing, watch_checkpointing
from headdiv.pretrained.padding import Inputs
from headdiv.pretrained.projections import NAMINGS, Projections, attention_of, transformers_model

NAME = "attached_heads"  # of the submodule
REMOVED = "headdiv_removed"  # attribute of a module that was detached after heads were removed: `original` and `kept`
PREFIX = "headdiv_"  # of the names of our implementations
SUPPORTED = ("sdpa", "eager")  # attention implementations


def transformers() -> Any:
    """The package, imported when it is needed.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import transformers
    except ImportError:
        raise ConfigError(
            "transformers is not installed, which models of Hugging Face need: pip install 'headdiv[hf]'"
        ) from None
    return transformers


class AttachedHeads(HeadModule):
    """The heads of one attention module in another library's model.

    Attributes:
        projections: the module's own.
        output: what replaces its output projection, where `headdiv.insert` has put something there.
        kept: numbers, from 0, of the heads left of ``original``; None: all of them.
        key_heads: for each head left, its head of keys and values; None: as the module says.
    """

    def __init__(self, spec: AttentionSpec, projections: Projections, inputs: Inputs) -> None:
        super().__init__(spec)
        self.projections, self.inputs = projections, inputs  # dataclasses: their modules are not registered here
        self.original, self.kept = getattr(projections.module, REMOVED, (spec.heads, None))
        self.key_heads: list[int] | None = None
        self.hooks: tuple[RemovableHandle, ...] = ()
        self.checked = False  # whether the output projection was seen to read the heads' outputs
        self.expected: Tensor | None = None  # what it should read

    def __deepcopy__(self, memo: dict[int, Any]) -> AttachedHeads:
        """A copy of the output projection alone, as peft makes it, has the same heads in front of it."""
        copied_alone = id(self.projections.module) not in memo and not self.inputs.copied_in(memo)
        return self if copied_alone else with_state(self, memo)

    @property
    def output(self) -> nn.Module:
        """The output stage."""
        output = self.projections.output
        return getattr(output, "stage", output)

    @property
    def needed(self) -> bool:
        """Whether the model cannot run without it."""
        cuts_bias = self.kept is not None and self.projections.naming.shared_bias
        return cuts_bias or self.key_heads is not None or hasattr(self.projections.output, "stage")

    def query_rows(self) -> PackedRows:
        """The queries' real tokens, while the model runs."""
        return self.inputs.rows_of(self.spec.name)[0]

    # ---- hooks

    def watch(self) -> None:
        """Make sure that the module's attention runs through this, with nothing between heads and output projection."""
        self.unwatch()
        module, output = self.projections.module, self.projections.output
        begin = module.register_forward_pre_hook(self._begin)
        self.hooks = begin, output.register_forward_pre_hook(self._check, with_kwargs=True)

    def unwatch(self) -> None:
        """Leave the module alone."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = ()

    def _begin(self, module: nn.Module, _: Any) -> None:
        redirect(module.config)
        self.inputs.passes.pop(self.spec.name, None)

    def _check(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.spec.name not in self.inputs.passes:
            raise DataError(f"{self._label}: its attention did not run through transformers' table of functions")
        if self.expected is not None:
            received, expected = (*args, *kwargs.values())[0].detach().flatten(), self.expected.flatten()
            self.checked, self.expected = True, None
            same_shape = received.shape == expected.shape
            if not same_shape or not torch.allclose(received, expected.to(received), 0, 0, equal_nan=True):
                self.checked = False
                raise DataError(
                    f"{self._label}: its output projection reads something else than what its heads put out"
                )

    @property
    def _label(self) -> str:
        return f"{self.spec.name} ({type(self.projections.module).__name__})"

    def attend(
        self,
        original: Callable[..., Any],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor | None]:
        """What the module's attention function returns: (B, N, H, K), and weights where it gives them.

        q (B, H, N, K), k and v (B, G, S, K); mask and options as the model has them.

        Raises:
            DataError: the module runs attention more than once, or heads are recorded with a mask of an unknown form.
        """
        if self.spec.name in self.inputs.passes:
            raise DataError(f"{self._label}: its attention runs more than once in a forward pass of the module")
        module = self.projections.module
        self.inputs.note(self.spec, mask, q, k, is_causal(module, options))
        if self.kept is not None and options.get("position_bias") is not None:
            options["position_bias"] = options["position_bias"][:, self.kept]
        if self.key_heads is not None:
            k, v = k[:, self.key_heads], v[:, self.key_heads]
        outputs, weights = original(module, q, k, v, mask, **options)
        if self.recorders:
            self.inputs.refuse_recomputation()
            if weights is None or (module.training and options.get("dropout")):
                weights = attention_weights(module, q, k, v, mask, options) if self.needs_weights else None
            self._record(weights if self.needs_weights else None, repeated(v, self.spec.heads), outputs)
        if self.edits:
            outputs = self._edited(outputs)
        outputs = self.masked(outputs)
        if not self.checked and not torch.compiler.is_compiling():
            self.expected = outputs.detach()
        return outputs, weights

    def _edited(self, outputs: Tensor) -> Tensor:
        self.inputs.refuse_recomputation()
        B, N, H, K = outputs.shape
        queries, rows = self.query_rows(), outputs.reshape(B * N, H, K)
        return rows.index_copy(0, queries.slots, self.edited(rows[queries.slots], queries)).view(B, N, H, K)

    def _record(self, weights: Tensor | None, v: Tensor, outputs: Tensor) -> None:
        B, N, H, K = outputs.shape
        S = v.shape[2]
        queries, keys = self.inputs.rows_of(self.spec.name)
        values = v.transpose(1, 2).reshape(B * S, H, K)[keys.slots]
        rows = outputs.reshape(B * N, H, K)[queries.slots]
        layout = AttentionLayout(queries, keys, None)
        self.keep_record(HeadRecord(self.slot_spec, layout, weights, values, rows))


def repeated(x: Tensor, heads: int) -> Tensor:
    """Grouped keys or values (B, G, S, K), each repeated for its heads: (B, H, S, K)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def is_causal(module: nn.Module, options: dict[str, Any]) -> bool:
    """Whether attention without a mask is causal."""
    causal = options.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    return bool(causal)


def attention_weights(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """The weights (B, H, N, S) without dropout, from the model's own function: fused attention returns none."""
    N, S = q.shape[2], k.shape[2]
    if mask is None and N > 1 and is_causal(module, options):
        mask = torch.ones(1, 1, N, S, dtype=torch.bool, device=q.device).tril()
    visible = 1.0
    if mask is not None and mask.dtype == torch.bool:  # finite, so that a query that sees nothing has no NaN
        visible = mask.any(-1, keepdim=True)
        mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, torch.finfo(q.dtype).min)
    _, weights = eager_attention(module)(module, q, k, v[..., :1], mask, **{**options, "dropout": 0.0})  # for any v
    return weights * visible


def eager_attention(module: nn.Module) -> Callable[..., Any]:
    """The plain attention function in the file that defines the module's class."""
    return sys.modules[type(module).__module__].eager_attention_forward


# ---- attaching


@dataclass
class Attachment:
    """What `attach` changed in a model.

    Attributes:
        heads: of every attention module, in the order of a forward pass.
        inputs: of the current forward pass.
        configs: the ones that name the attention implementation; the first is the model's.
        hooks: on the model.
    """

    heads: list[AttachedHeads]
    inputs: Inputs
    configs: list[Any]
    hooks: list[RemovableHandle]

    @property
    def config(self) -> Any:
        """The model's configuration, which is saved with it."""
        return self.configs[0]

    def record(self, key: str, value: Any) -> None:
        """Keep a change in the configuration, where `headdiv.pretrained.load` reads it; None: keep none."""
        others = {name: x for name, x in changes(self.config).items() if name != key}
        self.config.headdiv = others if value is None else {**others, key: value}

    def record_removed(self) -> None:
        """Keep the numbers of removed heads in the configuration."""
        removed = {
            attached.spec.name: [head + 1 for head in range(attached.original) if head not in attached.kept]
            for attached in self.heads
            if attached.kept is not None
        }
        self.record("removed", removed)

    def must_be_recorded(self) -> None:
        """Raise a DataError for a stack of T5: its configuration is a copy of the one that is saved."""
        owner = type(self.inputs.models[0].module).__name__
        if owner.endswith("Stack") and any(attached.projections.naming.shared_bias for attached in self.heads):
            raise DataError(
                f"{owner}: a change of this part alone would not be in the saved model's config.json, without which "
                "its weights cannot be loaded; expected the whole model, attached after this part was detached"
            )


def changes(config: Any) -> dict[str, Any]:
    """``removed``: by attention module, numbers of heads (from 1, among all original ones); ``method``: its options."""
    return getattr(config, "headdiv", None) or {}


def attachment_of(model: nn.Module) -> Attachment | None:
    """The attachment of an attached model, also where something wraps it: peft, DDP, a module of the user's."""
    pretrained = transformers_model(model)
    return None if pretrained is None else pretrained.__dict__.get("headdiv_attachment")


def attach_heads(model: nn.Module) -> Attachment:
    """Give every attention module of a transformers model an `AttachedHeads`; an attached one keeps its own.

    ``model.set_attn_implementation`` may change the implementation later. A module's first forward pass checks that its
    output projection reads its heads' outputs and nothing else, and raises a DataError where it does not.

    Raises:
        DataError: there is no attention of a known form, or it runs in an implementation that cannot be recorded; or
            a module holds several models.
        ConfigError: transformers is not installed.
    """
    attachment = attachment_of(model)
    if attachment is not None:
        for config in attachment.configs:
            redirect(config)
        return attachment
    library, owner = transformers(), type(model).__name__
    models = [m for m in model.modules() if isinstance(m, library.PreTrainedModel)]
    if any(str(m.config._attn_implementation).startswith(PREFIX) for m in models):
        raise DataError(
            f"{owner}: a part of it, or a model with the same config, is attached already; expected "
            "that to be detached, or a config of its own (copy.deepcopy(config) before the model is made)"
        )
    inputs = Inputs(models=[Holder(m) for m in models])
    heads = [AttachedHeads(spec, projections, inputs) for spec, projections in attention_of(model)]
    if not heads or not all(hasattr(attached.projections.module, "config") for attached in heads):
        names = ", ".join("/".join((*naming.inputs, naming.output)) for naming in NAMINGS)
        raise DataError(
            f"{owner}: no attention that is known here; expected a model of transformers "
            f"whose attention modules have projections named {names}. With headdiv.MultiheadAttention, which "
            "headdiv.insert(model, 'baseline') puts in the place of torch's, headdiv.ModelHeads(model) has the heads"
        )
    if not models or not {*models} <= {*models[0].modules()}:
        problem = "several models of transformers" if models else "only a part of a model of transformers"
        raise DataError(f"{owner}: is {problem}; expected one whole model (a PreTrainedModel)")
    pretrained = models[0]
    module_configs = [attached.projections.module.config for attached in heads]
    configs = {id(config): config for config in (*(m.config for m in models), *module_configs)}
    for config in configs.values():
        _must_be_supported(config, owner)
    for config in configs.values():
        redirect(config)
    for attached in heads:
        attached.projections.module.add_module(NAME, attached)
        attached.watch()
    hooks = [pretrained.register_forward_pre_hook(inputs.read, with_kwargs=True)]
    for m in models:
        hooks.append(m.register_forward_pre_hook(partial(_begin, inputs)))
        hooks.append(m.register_forward_hook(inputs.end, always_call=True))
    hooks.append(pretrained.register_forward_hook(inputs.forget, always_call=True))
    attachment = Attachment(heads, inputs, list(configs.values()), hooks)
    pretrained.__dict__["headdiv_attachment"] = attachment
    return attachment


def _begin(inputs: Inputs, model: nn.Module, _: Any) -> None:
    inputs.begin()
    if model.training:
        watch_checkpointing(model, inputs)


def _must_be_supported(config: Any, owner: str) -> None:
    name = config._attn_implementation
    if name not in SUPPORTED:
        raise DataError(
            f"{owner}: its attention runs as {name!r}; expected 'sdpa' or 'eager': "
            "model.set_attn_implementation('sdpa') changes it"
        )


def redirect(config: Any) -> None:
    """Route attention through our function, whichever implementation the configuration names.

    Raises:
        DataError: one that cannot be recorded.
    """
    name = config._attn_implementation
    if not str(name).startswith(PREFIX):
        _must_be_supported(config, type(config).__name__)
        _register(name)
        config._attn_implementation_internal = f"{PREFIX}{name}"


def detach_heads(model: nn.Module) -> None:
    """Undo `attach_heads`.

    Heads that were removed stay removed. A model that could not run without it keeps it: where groups of heads have
    become uneven, a position bias has more heads than a module, or an output stage needs to know what is padding.
    """
    attachment = attachment_of(model)
    if attachment is None:
        return
    # Not `attachment.heads`: peft copies layers with their heads.
    heads = [x for x in model.modules() if isinstance(x, AttachedHeads) and x.inputs is attachment.inputs]
    if any(attached.needed for attached in heads):
        return
    for attached in heads:
        attached.unwatch()
        delattr(attached.projections.module, NAME)
        if attached.kept is not None:
            setattr(attached.projections.module, REMOVED, (attached.original, attached.kept))
    for config in (*attachment.configs, *(attached.projections.module.config for attached in heads)):
        config._attn_implementation_internal = config._attn_implementation.removeprefix(PREFIX)
    for hook in attachment.hooks:
        hook.remove()
    leave_checkpointing(model)
    del transformers_model(model).__dict__["headdiv_attachment"]


def _register(name: str) -> None:
    """Enter our function, and the masks that go with the implementation, in transformers' tables."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def forward(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None = None, **options: Any
    ) -> Any:
        original = eager_attention(module) if name == "eager" else ALL_ATTENTION_FUNCTIONS[name]
        attached = module._modules.get(NAME)
        if attached is None:
            return original(module, q, k, v, attention_mask, **options)
        return attached.attend(original, q, k, v, attention_mask, options)

    ALL_ATTENTION_FUNCTIONS.register(f"{PREFIX}{name}", forward)
    ALL_MASK_ATTENTION_FUNCTIONS.register(f"{PREFIX}{name}", ALL_MASK_ATTENTION_FUNCTIONS[name])
