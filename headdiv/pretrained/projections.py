"""Where attention projections are in transformers models: a table with a row for each way of naming them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from headdiv.nn.sizes import AttentionSpec, Kind

WIDTHS = ("attention_head_size", "head_dim", "head_size", "key_value_proj_dim")  # attributes that hold K
PLAIN = ("Linear of torch.nn.modules.linear", "Conv1D of transformers.pytorch_utils")
Fused = Literal["no", "blocks", "heads"]


@dataclass(frozen=True)
class Naming:
    """An architecture's names for its projections: attributes of the attention module, ``^`` of its parent module."""

    inputs: tuple[str, ...]
    output: str
    fused: Fused = "no"  # one projection for queries, keys and values: in blocks, or head by head
    split_size: str | None = None  # attribute that holds the width of a block
    shared_bias: bool = False  # whether modules pass on a position bias of all heads


NAMINGS = (
    Naming(("query", "key", "value"), "^output.dense"),  # BERT, RoBERTa and their kin
    Naming(("q_proj", "k_proj", "v_proj"), "o_proj"),  # Llama, Mistral, Qwen
    Naming(("q_proj", "k_proj", "v_proj"), "out_proj"),  # BART, Marian
    Naming(("q", "k", "v"), "o", shared_bias=True),  # T5
    Naming(("q_lin", "k_lin", "v_lin"), "out_lin"),  # DistilBERT
    Naming(("q_attn", "c_attn"), "c_proj", "blocks", "split_size"),  # GPT-2 across
    Naming(("c_attn",), "c_proj", "blocks", "split_size"),  # GPT-2
    Naming(("query_key_value",), "dense", "heads"),  # GPT-NeoX, Pythia
    Naming(("query", "key", "value"), "dense"),  # ALBERT
    Naming(("q_proj", "k_proj", "v_proj"), "dense"),  # Phi
    Naming(("Wqkv",), "Wo", "blocks"),  # ModernBERT
    Naming(("qkv_proj",), "o_proj", "blocks"),  # Phi-3
)


@dataclass(frozen=True)
class Projections:
    """The projections of one attention module."""

    module: nn.Module  # the attention module
    owner: nn.Module  # holds the output projection, as ``name``
    name: str
    naming: Naming

    @property
    def inputs(self) -> tuple[nn.Module, ...]:
        """The projections of queries, keys and values, or what has replaced them."""
        return tuple(self.module.get_submodule(name) for name in self.naming.inputs)

    @property
    def output(self) -> nn.Module:
        """The output projection, or what has replaced it."""
        return getattr(self.owner, self.name)


def attention_of(model: nn.Module) -> Iterator[tuple[AttentionSpec, Projections]]:
    """The attention modules of a transformers model whose projections have known names, in the order of a pass."""
    layers: Counter[Kind] = Counter()
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if not runs_by_table(module):
            continue
        parent = modules[name.rpartition(".")[0]]
        for naming in NAMINGS:
            owner, _, attribute = naming.output.removeprefix("^").rpartition(".")
            try:
                holder = (parent if naming.output.startswith("^") else module).get_submodule(owner)
                output = holder.get_submodule(attribute)
                inputs = tuple(module.get_submodule(path) for path in naming.inputs)
                D, width = sizes(output)
            except AttributeError:
                continue
            K = next((getattr(module, known) for known in WIDTHS if hasattr(module, known)), None)
            if K is None:
                continue
            kind = _kind(module, name)
            spec = AttentionSpec(kind, layers[kind], D, width // K, inputs[0].bias is not None, K)
            layers[kind] += 1
            yield spec, Projections(module, holder, attribute, naming)
            break


def transformers_model(model: nn.Module) -> nn.Module | None:
    """The outermost model of transformers that this is or holds; None where there is none."""
    if (library := sys.modules.get("transformers")) is None:
        return None
    return next((part for part in model.modules() if isinstance(part, library.PreTrainedModel)), None)


def runs_by_table(module: nn.Module) -> bool:
    """Whether an attention module finds its function in transformers' table, as all but some older ones do."""
    return hasattr(sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS")


def _kind(module: nn.Module, name: str) -> Kind:
    names = ".".join([*name.split(".")[-2:], type(module).__name__])
    if getattr(module, "is_cross_attention", False) or re.search("cross|encoder_attn|EncDec", names, re.IGNORECASE):
        return "cross"
    return "decoder" if getattr(module, "is_causal", False) else "encoder"


def kind_of(module: nn.Module) -> str:
    """Its class and where the class comes from."""
    return f"{type(module).__qualname__} of {type(module).__module__}"


def is_plain(projection: nn.Module) -> bool:
    """Whether a projection is only its weight and bias: not quantised, adapted, offloaded or a method's."""
    return kind_of(projection) in PLAIN and "forward" not in vars(projection)


def sizes(projection: nn.Module) -> tuple[int, int]:
    """Outputs and inputs of a linear layer, or of transformers' ``Conv1D``."""
    if hasattr(projection, "nf"):
        return projection.nf, projection.nx
    return projection.out_features, projection.in_features
