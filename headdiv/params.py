"""The parameter audit: every count a paper reports beside the count of the model built here."""

from __future__ import annotations

from typing import Any

from headdiv.config import RunConfig
from headdiv.experiments import Runs
from headdiv.model import count_parameters
from headdiv.papers import task_of
from headdiv.tasks import TASKS
from headdiv.training import build_model

BASE = "baseline"
EXACT, DIFFERENCE, NO = "yes", "difference to the baseline only", "no"


def audit(profile: str, experiment: str) -> dict[str, dict[str, Any]]:
    """Parameters of each variant, ours and the paper's, and whether the paper's follow from the architecture.

    Models are built on the meta device: nothing is allocated and nothing trained. The data is read where
    its vocabularies decide the size of the embeddings. A count that differs because of the vocabulary
    alone still has the right difference to the baseline; ``follows`` tells the two apart, for the sizes of
    this profile.

    Args:
        profile: name or path.
        experiment: <paper>/<task>.

    Returns:
        By variant: parameters, paper (None where it reports none), follows (None likewise).

    Raises:
        ConfigError: there is no such profile, paper or task.
        DataError: the data cannot be had.
    """
    configs = {config.variant: config for config in Runs(profile).of(experiment)}
    rows = task_of(experiment).variants
    first = next(iter(configs.values()))
    vocabulary = TASKS[first.task].vocabulary(first.data)
    ours = {
        variant: count_parameters(build_model(config, vocabulary, device="meta")[0])
        for variant, config in configs.items()
    }
    base = count_parameters(build_model(_with_baseline(first), vocabulary, device="meta")[0])
    base_reported = rows[BASE].reported.get("parameters") if BASE in rows else None
    paper = {variant: rows[variant].reported.get("parameters") if variant in rows else None for variant in configs}
    told: dict[str, dict[str, Any]] = {}
    for variant, count in ours.items():
        reported = None if paper[variant] is None else int(paper[variant])
        follows = None
        if reported is not None:
            follows = EXACT if count == reported else NO
            if follows == NO and variant != BASE and base_reported and count - base == reported - base_reported:
                follows = DIFFERENCE
        told[variant] = {"parameters": count, "paper": reported, "follows": follows}
    return told


def _with_baseline(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"method": {"name": BASE}})
