"""The tuning of an experiment's arms in a table: what was tried, eliminated when, and chosen."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profile_file import Setting, Tune
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.models.sizes import ModelConfig
from headdiv.companion.report.formats import NONE, as_printed, plural, seeds_named
from headdiv.companion.report.groups import labels_of
from headdiv.companion.report.scale import TOY, data_title
from headdiv.companion.report.table_data import TableData
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import NotStoredError
from headdiv.methods.registry import make_method

DIGITS = 4  # of a loss


def tuning_data(profile: str, experiment: str) -> TableData:
    """One line a setting of an arm, in the order in which they were tried.

    Columns of the numbers: variant, label, setting (counted from 1), every key that is tuned (NaN: the profile's own),
    loss_<epochs> for each rung (NaN: not trained so far, or diverged; loss_<epochs>_<seeds>_seeds where a rung has the
    epochs of the one before), fell_out (epochs of the rung), chosen.

    Raises:
        NotStoredError: none of the experiment's arms is tuned.
    """
    runs = Runs(profile)
    arms = runs.arms.get(experiment, {})
    choices = {variant: arm.choice for variant, arm in arms.items()}
    choices = {variant: choice for variant, choice in choices.items() if choice}
    if not choices:
        command = headdiv_command("tune", experiment, "--profile", profile)
        remedy = f"`{command}` does it" if arms else "it has no section 'tune'"
        raise NotStoredError(f"profile {profile}: no arm of {experiment} is tuned; {remedy}")
    labels, tune = labels_of(experiment, choices), next(iter(arms.values())).tune
    rungs = _rung_names(tune)
    planned = {config.variant: config for config in runs.planned(experiment)}
    config = next(iter(planned.values()))
    task = task_of(experiment).shown_on(config.data.model_dump())
    keys = dict.fromkeys(key for choice in choices.values() for tried in choice.tried for key in tried.setting)
    numbers, lines, defaults = [], [], []
    for variant, choice in choices.items():
        for number, tried in enumerate(choice.tried, start=1):
            losses = dict.fromkeys(rungs, np.nan) | dict(zip(rungs, tried.losses, strict=False))
            losses = {rung: np.nan if loss is None else loss for rung, loss in losses.items()}
            last = list(rungs)[len(tried.losses) - 1]
            outcome = "chosen" if tried.fell_out is None else f"eliminated after {last}"
            diverged = "diverged, " if tried.losses[-1] is None else ""
            numbers.append(
                {"variant": variant, "label": labels[variant], "setting": number}
                | {key: tried.setting.get(key, np.nan) for key in keys}
                | {rungs[rung]: loss for rung, loss in losses.items()}
                | {"fell_out": tried.fell_out or np.nan, "chosen": tried.fell_out is None}
            )
            lines.append(
                {"Architecture": labels[variant], "No.": str(number), "Setting": setting_text(tried.setting)}
                | {rung: as_printed(loss, DIGITS) for rung, loss in losses.items()}
                | {"Outcome": f"{diverged}{outcome}"}
            )
        # What the arm's runs have where a setting leaves out a key that another of its settings names.
        planned_config, settings = planned[variant], [tried.setting for tried in choice.tried]
        options = make_method(planned_config.method).options
        values = {"model": planned_config.model, "train": planned_config.train, "method": options}
        arm_keys = dict.fromkeys(key for setting in settings for key in setting)
        left_out = [key.partition(".") for key in arm_keys if any(key not in setting for setting in settings)]
        if left_out:
            unchanged = {f"{section}.{name}": getattr(values[section], name) for section, _, name in left_out}
            defaults.append(f"{labels[variant]}: {setting_text(unchanged)}")
    toy = f" {TOY}" if config.data.name == "toy" else ""
    scale = (
        f"Profile {runs.name}: {data_title(config.data.name)}, training runs of "
        f"{plural(config.train.epochs, 'epoch')} that stop after a rung, {seeds_named(tune.seeds)}; settings kept "
        f"after each rung: {', '.join(map(str, tune.keep))}. Nothing was computed on the test set.{toy}"
    )
    measure = f"the lowest validation loss up to there, in {TASKS[config.kind].unit}"
    if len(tune.seeds) > 1:
        measure += ", mean over " + ("the rung's seeds" if tune.seeds_per_rung else "the tuning's seeds")
    notes = [f"Epoch columns: {measure}; {NONE}: not trained so far, or diverged."]
    if defaults:
        notes.append(f"Values that a setting does not name: {'; '.join(defaults)}.")
    processors = dict.fromkeys(origin.processor for choice in choices.values() for origin in choice.origins)
    notes.append(f"Trained on {', '.join(processors)}.")
    tables = {"what was tried": pd.DataFrame(lines)}
    return TableData(f"{task.table}, tuning", task.title, scale, pd.DataFrame(numbers), tables, notes=notes)


def _rung_names(tune: Tune) -> dict[str, str]:
    """Each rung's heading, such as "40 epochs", and the name of its column of the numbers."""
    names, former = {}, 0
    for epochs, seeds in zip(tune.rungs, tune.rung_seeds, strict=True):
        repeated = epochs == former
        heading = plural(epochs, "epoch") + (f", {plural(len(seeds), 'seed')}" if repeated else "")
        names[heading] = f"loss_{epochs}" + (f"_{len(seeds)}_seeds" if repeated else "")
        former = epochs
    return names


def setting_text(setting: Setting) -> str:
    """ "dropout 0.2, learning rate 0.002"; "as in the profile" where nothing is changed.

    Where a method has a key of the model's name: "dropout 0.2, method's dropout 0.1".
    """
    parts = []
    for key, value in setting.items():
        section, _, name = key.partition(".")
        owner = "method's " if section == "method" and name in ModelConfig.model_fields else ""
        parts.append(f"{owner}{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}")
    return ", ".join(parts) or "as in the profile"
