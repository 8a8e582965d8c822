"""The tuning of an experiment's arms in a table: what was tried, eliminated when, and chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profile_file import Setting
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.tuning import Choice, Tried
from headdiv.companion.models.sizes import ModelConfig
from headdiv.companion.report.formats import NONE, as_printed, plural, seeds_named
from headdiv.companion.report.groups import labels_of
from headdiv.companion.report.scale import TOY, data_title
from headdiv.companion.report.table_data import TableData
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import NotStoredError

DIGITS = 4  # of a loss


def choices_of(profile: str, experiment: str) -> dict[str, Choice]:
    """The choices of the arms that are tuned, in the profile's order.

    Raises:
        ConfigError: no such profile.
        DataError: none of the experiment's arms is tuned.
    """
    arms = Runs(profile).arms.get(experiment, {})
    choices = {variant: choice for variant, arm in arms.items() if (choice := arm.choice)}
    if not choices:
        command = headdiv_command("tune", experiment, "--profile", profile)
        remedy = f"`{command}` does it" if arms else "it has no section 'tune'"
        raise NotStoredError(f"profile {profile}: no arm of {experiment} is tuned; {remedy}")
    return choices


def tuning_data(profile: str, experiment: str) -> TableData:
    """One line a setting of an arm, in the order in which they were tried.

    Columns of the numbers: variant, label, setting (counted from 1), every key that is tuned (NaN: the profile's own),
    loss_<epochs> for each rung (NaN: not trained so far, or diverged), fell_out (epochs of the rung), chosen.
    """
    choices, runs = choices_of(profile, experiment), Runs(profile)
    labels, choice = labels_of(experiment, choices), next(iter(choices.values()))
    planned = {config.variant: config for config in runs.planned(experiment)}
    config = next(iter(planned.values()))
    task = task_of(experiment).shown_on(config.data.model_dump())
    keys = dict.fromkeys(key for choice in choices.values() for tried in choice.tried for key in tried.setting)
    numbers, shown = [], []
    for variant, of_arm in choices.items():
        for number, tried in enumerate(of_arm.tried, start=1):
            losses = dict(zip(of_arm.rungs, tried.losses, strict=False))
            numbers.append(
                {"variant": variant, "label": labels[variant], "setting": number}
                | {key: tried.setting.get(key, np.nan) for key in keys}
                | {f"loss_{rung}": np.nan if losses.get(rung) is None else losses[rung] for rung in of_arm.rungs}
                | {"fell_out": tried.fell_out or np.nan, "chosen": tried.fell_out is None}
            )
            shown.append(
                {"Architecture": labels[variant], "No.": str(number), "Setting": setting_text(tried.setting)}
                | {plural(rung, "epoch"): as_printed(numbers[-1][f"loss_{rung}"], DIGITS) for rung in choice.rungs}
                | {"Outcome": _outcome(tried)}
            )
    toy = f" {TOY}" if config.data.name == "toy" else ""
    scale = (
        f"Profile {runs.name}: {data_title(config.data.name)}, training runs of "
        f"{plural(config.train.epochs, 'epoch')} that stop after a rung, {seeds_named(choice.seeds)}; settings kept "
        f"after each rung: {', '.join(map(str, choice.keep))}. Nothing was computed on the test set.{toy}"
    )
    over = ", mean over the tuning's seeds" if len(choice.seeds) > 1 else ""
    measure = f"the lowest validation loss up to there, in {TASKS[config.kind].unit}{over}"
    notes = [f"Epoch columns: {measure}; {NONE}: not trained so far, or diverged."]
    unnamed = {labels[name]: _unnamed(of_arm, planned[name]) for name, of_arm in choices.items()}
    if parts := [f"{label}: {setting_text(setting)}" for label, setting in unnamed.items() if setting]:
        notes.append(f"Values that a setting does not name: {'; '.join(parts)}.")
    processors = dict.fromkeys(origin.processor for of_arm in choices.values() for origin in of_arm.origins)
    notes.append(f"Trained on {', '.join(processors)}.")
    tables = {"what was tried": pd.DataFrame(shown)}
    return TableData(f"{task.table}, tuning", task.title, scale, pd.DataFrame(numbers), tables, notes=notes)


def _unnamed(choice: Choice, config: RunConfig) -> Setting:
    """What an arm's runs have where a setting leaves out a key that another of its settings names."""
    settings, values = [tried.setting for tried in choice.tried], config.model_dump()
    keys = dict.fromkeys(key for setting in settings for key in setting)
    left_out = [key.partition(".") for key in keys if any(key not in setting for setting in settings)]
    return {f"{section}.{name}": values[section][name] for section, _, name in left_out}


def setting_text(setting: Setting) -> str:
    """ "dropout 0.2, learning rate 0.002"; "as in the profile" where nothing is changed.

    Where a method has a key of the model's name: "dropout 0.2, method's dropout 0.1".
    """
    keys = [key.partition(".") for key in setting]
    parts = (
        ("method's " if section == "method" and name in ModelConfig.model_fields else "")
        + f"{name.replace('_', ' ')} {_value(value)}"
        for (section, _, name), value in zip(keys, setting.values(), strict=True)
    )
    return ", ".join(parts) or "as in the profile"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _outcome(tried: Tried) -> str:
    if tried.fell_out is None:
        return "chosen"
    return f"{'diverged, ' if tried.losses[-1] is None else ''}eliminated after {plural(tried.fell_out, 'epoch')}"
