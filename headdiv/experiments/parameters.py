"""The parameter audit: every count a paper reports beside the count of the model built here."""

from __future__ import annotations

from typing import Any

from headdiv.experiments.papers import PaperTask, task_of
from headdiv.experiments.profiles import Runs
from headdiv.experiments.running import build_model
from headdiv.methods import check_method
from headdiv.nn.transformer import count_parameters
from headdiv.tasks import TASKS
from headdiv.tasks.config import RunConfig

BASE = "baseline"
EXACT, DIFFERENCE, NO = "yes", "difference to the baseline only", "no"


def audit(profile: str, experiment: str) -> dict[str, dict[str, Any]]:
    """Parameters of each variant, ours and the paper's, and whether the paper's follow from the architecture.

    Models are built on the meta device: nothing is allocated and nothing trained. The data is read where
    its vocabularies decide the size of the embeddings. Where the paper's file says which sizes its counts
    belong to, those sizes decide whether they follow; otherwise this profile's do. A count that differs
    because of the vocabulary alone still has the right difference to the baseline; ``follows`` tells the two apart.

    Args:
        profile: name or path.
        experiment: <paper>/<task>.

    Returns:
        By variant: parameters (of this profile's sizes), at_paper_sizes (None where these are not known),
        paper (None where it reports none), follows (None likewise).

    Raises:
        ConfigError: there is no such profile, paper or task.
        DataError: the data cannot be had.
    """
    configs = {config.variant: config for config in Runs(profile).of(experiment)}
    task = task_of(experiment)
    rows, first = task.variants, next(iter(configs.values()))
    vocabulary = TASKS[first.kind].vocabulary(first.data)
    here = _counts(configs, vocabulary)
    there = None
    if task.sizes:
        as_paper = {name: _at_sizes(config, task) for name, config in configs.items()}
        there = _counts(as_paper, tuple(task.sizes.vocabulary))
    judged = there or here
    base_reported = rows[BASE].reported.get("parameters") if BASE in rows else None
    told: dict[str, dict[str, Any]] = {}
    for variant in configs:
        reported = rows[variant].reported.get("parameters") if variant in rows else None
        count, follows = judged[variant], None
        if reported is not None:
            printed_to = task.sizes.printed_to if task.sizes else 1
            follows = EXACT if round(count / printed_to) * printed_to == reported else NO
            same_difference = base_reported and count - judged[BASE] == reported - base_reported
            if follows == NO and variant != BASE and same_difference:
                follows = DIFFERENCE
        told[variant] = {
            "parameters": here[variant],
            "at_paper_sizes": there and there[variant],
            "paper": None if reported is None else int(reported),
            "follows": follows,
        }
    return told


def _counts(configs: dict[str, RunConfig], vocabulary: tuple[int, ...]) -> dict[str, int]:
    """Parameters by variant, and those of the first one's baseline."""
    base = next(iter(configs.values())).model_copy(update={"method": {"name": BASE}})
    models = {BASE: base, **configs}
    return {
        name: count_parameters(build_model(config, vocabulary, device="meta")[0]) for name, config in models.items()
    }


def _at_sizes(config: RunConfig, task: PaperTask) -> RunConfig:
    """The same with the sizes that the paper's counts belong to; methods may need these to be valid."""
    own = task.variants[config.variant].model if config.variant in task.variants else {}
    model = TASKS[config.kind].Model(**(task.sizes.model | own))
    row = task.variants.get(config.variant)
    method = check_method(row.method, model) if row else config.method
    data = config.data.model_copy(update=task.sizes.data)
    return config.model_copy(update={"model": model, "method": method, "data": data})
