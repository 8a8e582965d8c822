"""headdiv: methods that make the heads of multi-head attention less redundant, and the papers they come from.

import headdiv

config = headdiv.run_config("quick", "deacon/translation", "direct-8", seed=1)
run = headdiv.train(config)
headdiv.apply(run, "The old dog sees a small cat.")
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# Looked up when first used, so that importing headdiv does not import torch.
_PUBLIC = {
    "run_config": "headdiv.experiments.profiles",
    "train": "headdiv.experiments.running",
    "Trainer": "headdiv.training.trainer",
    "register": "headdiv.tasks.registry",
    "make_method": "headdiv.methods",
    "record_heads": "headdiv.nn.attention",
    "fold": "headdiv.nn.folding",
    "MultiheadAttention": "headdiv.nn.drop_in",
    "insert": "headdiv.methods.insertion",
    "inserted_modules": "headdiv.methods.insertion",
    "remove_method": "headdiv.methods.insertion",
    "load_run": "headdiv.experiments.running",
    "evaluate": "headdiv.experiments.evaluation",
    "examples": "headdiv.experiments.evaluation",
    "apply": "headdiv.experiments.evaluation",
    "head_measures": "headdiv.experiments.evaluation",
    "masked_heads": "headdiv.analysis.masking",
    "head_importance": "headdiv.experiments.importance",
    "pruning_curve": "headdiv.experiments.importance",
    "attention_maps": "headdiv.experiments.attention_maps",
    "record": "headdiv.experiments.results",
    "score_table": "headdiv.experiments.results",
    "runs_frame": "headdiv.experiments.results",
    "parameter_table": "headdiv.report.tables",
    "results_table": "headdiv.report.tables",
    "show_table": "headdiv.report.show",
    "show_parameters": "headdiv.report.show",
    "show_figure": "headdiv.report.show",
    "show_diagram": "headdiv.report.diagrams",
    "show_scores": "headdiv.report.show",
    "show_examples": "headdiv.report.show",
    "show_data": "headdiv.report.run_views",
    "show_lengths": "headdiv.report.run_views",
    "show_architecture": "headdiv.report.run_views",
    "show_training": "headdiv.report.run_views",
    "show_heads": "headdiv.report.run_views",
    "show_method": "headdiv.report.run_views",
    "look_at": "headdiv.report.explorer_panels",
    "show_maps": "headdiv.report.explorer_panels",
    "show_attention": "headdiv.report.explorer_panels",
    "show_likeness": "headdiv.report.explorer_panels",
    "show_masking": "headdiv.report.explorer_panels",
    "show_components": "headdiv.report.explorer_panels",
    "explore": "headdiv.report.widgets",
    "router_words": "headdiv.report.moa",
    "gha_convergence": "headdiv.report.illustrations",
    "deacon_geometry": "headdiv.report.illustrations",
    "inhibition_readings": "headdiv.report.illustrations",
}
# The module headdiv.pretrained: models of Hugging Face, with the extra `hf`.
_PRETRAINED = {
    "attach": "headdiv.analysis.pretrained",
    "mean_loss": "headdiv.analysis.pretrained",
    "least_important_first": "headdiv.analysis.masking",
    "copied": "headdiv.analysis.pretrained",
    "load": "headdiv.methods.saved",
    "inserted_method": "headdiv.methods.insertion",
    "HeadTraining": "headdiv.training.huggingface",
    "Trainer": "headdiv.training.huggingface",
    "Seq2SeqTrainer": "headdiv.training.huggingface",
    "small_model": "headdiv.data.pretrained",
    "small_tokenizer": "headdiv.data.pretrained",
    "text_batches": "headdiv.data.pretrained",
    "text_examples": "headdiv.data.pretrained",
    "generated_texts": "headdiv.data.pretrained",
}
__all__ = sorted([*_PUBLIC, "pretrained"])


def _found(module: str, public: dict[str, str], name: str) -> Any:
    if name in public:
        try:
            return getattr(import_module(public[name]), name)
        except ModuleNotFoundError as error:
            extra = "hf" if error.name in ("accelerate", "transformers") else "pipeline"
            raise ImportError(f"{module}.{name} needs {error.name}: pip install 'headdiv[{extra}]'") from error
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    return _found(__name__, _PUBLIC, name)


def __dir__() -> list[str]:  # so that notebooks complete the names
    return sorted([*globals(), *__all__])


def _module(name: str, public: dict[str, str]) -> ModuleType:
    """A module of names that are looked up when first used."""
    module = ModuleType(f"{__name__}.{name}", "Names from elsewhere: " + ", ".join(public))
    module.__getattr__ = lambda attribute: _found(module.__name__, public, attribute)
    module.__all__ = sorted(public)
    sys.modules[module.__name__] = module
    return module


pretrained = _module("pretrained", _PRETRAINED)
