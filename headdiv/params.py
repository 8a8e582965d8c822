"""The parameter audit: every count a paper reports beside the count of the model built here."""

from __future__ import annotations

import torch

from headdiv.data.corpus import load_corpus
from headdiv.experiments import Runs
from headdiv.model import count_parameters
from headdiv.papers import task_of
from headdiv.training import build_model


def audit(profile: str, experiment: str) -> dict[str, dict[str, int | None]]:
    """Parameters of each variant, ours and the paper's.

    Models are built on the meta device: nothing is allocated and nothing trained. The data is read, for
    vocabularies decide the size of the embeddings.

    Args:
        profile: name or path.
        experiment: <paper>/<task>.

    Raises:
        ConfigError: there is no such profile, paper or task.
        DataError: the data cannot be had.
    """
    configs = {config.variant: config for config in Runs(profile).of(experiment)}
    rows = task_of(experiment).variants
    told: dict[str, dict[str, int | None]] = {}
    for variant, config in configs.items():
        with torch.device("meta"):
            model, _ = build_model(config, load_corpus(config.data), device="meta")
        reported = rows[variant].reported.get("parameters") if variant in rows else None
        told[variant] = {
            "parameters": count_parameters(model),
            "paper": None if reported is None else int(reported),
        }
    return told
