"""Parameter counts of the models built here, and the audit that compares them with those that a paper reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headdiv.companion.experiments.papers import BASELINE, PaperTask, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import build_model
from headdiv.companion.models.transformer import count_parameters
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.settings import check
from headdiv.methods import check_method

EXACT, DIFFERENCE, NO = "yes", "difference from the baseline only", "no"


def count(
    kind: str,
    method: Mapping[str, Any],
    sizes: Mapping[str, Any],
    vocabulary: Sequence[int],
    data: Mapping[str, Any] | None = None,
) -> int:
    """Parameters of a model, built on the meta device: nothing is allocated and no data is read.

    ``vocabulary`` has sizes as `Task.vocabulary` gives them; ``data`` the keys of the data's configuration that the
    model's size depends on.
    """
    task = TASKS[kind]
    required = {"epoch_tokens": 1} if "epoch_tokens" in task.Data.model_fields else {}
    model = check(task.Model, sizes)
    config = RunConfig(
        paper="",
        task="",
        kind=kind,
        variant="",
        data=check(task.Data, {"name": "toy", **required, **(data or {})}),
        model=model,
        method=check_method(method, model),
        seed=0,
    )
    return parameters_of(config, tuple(vocabulary))


def parameters_of(config: RunConfig, vocabulary: tuple[int, ...]) -> int:
    """Parameters of a run's model with vocabularies of these sizes; nothing is allocated."""
    return count_parameters(build_model(config, vocabulary, device="meta")[0])


def audit(profile: str, experiment: str) -> dict[str, dict[str, Any]]:
    """Parameters of each variant, ours and the paper's, and whether the paper's follow from the architecture.

    Nothing is trained. The data is read where its vocabularies decide the size of the embeddings. Where the paper's
    file says which sizes its counts belong to, those sizes decide whether they follow; otherwise this profile's do. A
    count that differs because of the vocabulary alone still has the right difference from the baseline; ``follows``
    tells the two apart. An arm that is not tuned yet has the profile's own settings.

    Returns:
        By variant: parameters (of this profile's sizes), at_paper_sizes (None where these are not known),
        paper (None where it reports none, or for other data), follows (None likewise).

    Raises:
        ConfigError: there is no such profile, paper or task.
        DataError: the data cannot be had.
    """
    variants = {config.variant: config for config in Runs(profile).with_choices(experiment)}
    first = next(iter(variants.values()))
    task = task_of(experiment).shown_on(first.data.model_dump())
    vocabulary = TASKS[first.kind].vocabulary(first.data)
    configs = {BASELINE: first.model_copy(update={"variant": BASELINE, "method": {"name": BASELINE}}), **variants}
    counts = {variant: parameters_of(config, vocabulary) for variant, config in configs.items()}
    at_paper_sizes = {variant: _at_paper_sizes(config, task) for variant, config in configs.items()}
    deciding = at_paper_sizes if task.sizes else counts
    reported = {variant: row.reported.get("parameters") for variant, row in task.variants.items()}
    base, printed_to = reported.get(BASELINE), task.sizes.printed_to if task.sizes else 1
    audited = {}
    for variant in variants:
        paper, follows = reported.get(variant), None
        if paper is not None:
            same_difference = base is not None and deciding[variant] - deciding[BASELINE] == paper - base
            follows = DIFFERENCE if same_difference and variant != BASELINE else NO
            if round(deciding[variant] / printed_to) * printed_to == paper:
                follows = EXACT
        audited[variant] = {
            "parameters": counts[variant],
            "at_paper_sizes": at_paper_sizes[variant],
            "paper": None if paper is None else int(paper),
            "follows": follows,
        }
    return audited


def _at_paper_sizes(config: RunConfig, task: PaperTask) -> int | None:
    """A variant's parameters at the sizes to which the paper's counts belong, where these are known."""
    if task.sizes is None:
        return None
    row = task.variants.get(config.variant)
    sizes = task.sizes.model | (row.model if row else {})
    return count(config.kind, row.method if row else config.method, sizes, task.sizes.vocabulary, task.sizes.data)
