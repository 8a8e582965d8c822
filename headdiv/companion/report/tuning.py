"""The tuning of an experiment's arms in a table and a figure: what was tried, eliminated when, and chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.tuning import Choice, Setting, Tried
from headdiv.companion.report import plotting
from headdiv.companion.report.curves import common_epochs
from headdiv.companion.report.formats import NONE, as_printed, plural, seeds_named
from headdiv.companion.report.groups import labels_of
from headdiv.companion.report.looks import DASHES
from headdiv.companion.report.scale import TOY, data_title
from headdiv.companion.report.table_data import TableData
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import NotStoredError
from headdiv.nn.sizes import ModelConfig

COLUMNS = 3  # of panels
DIGITS = 4  # of a loss
FAR = 2  # times the range of the settings that went on after the first rung: what was eliminated above is cut off
LABEL_HEIGHT = 0.055  # of a panel


def choices_of(profile: str, experiment: str) -> dict[str, Choice]:
    """The choices of the arms that are tuned, in the profile's order.

    Raises:
        ConfigError: no such profile.
        DataError: none of the experiment's arms is tuned.
    """
    arms = Runs(profile).arms.get(experiment, {})
    choices = {variant: choice for variant, arm in arms.items() if (choice := arm.choice)}
    if not choices:
        does_it = (
            f"`{headdiv_command('tune', experiment, '--profile', profile)}` does it"
            if arms
            else "it has no section 'tune'"
        )
        raise NotStoredError(f"profile {profile}: no arm of {experiment} is tuned; {does_it}")
    return choices


def tuning_table(profile: str, experiment: str) -> pd.DataFrame:
    """One line a setting of an arm, in the order in which they were tried.

    Columns: variant, label, setting (counted from 1), every key that is tuned (NaN: the profile's own), loss_<epochs>
    for each rung (NaN: not trained so far, or diverged), fell_out (epochs of the rung), chosen.
    """
    choices = choices_of(profile, experiment)
    labels = labels_of(experiment, choices)
    keys = dict.fromkeys(key for choice in choices.values() for tried in choice.tried for key in tried.setting)
    return pd.DataFrame(
        {"variant": variant, "label": labels[variant], "setting": number}
        | {key: tried.setting.get(key, np.nan) for key in keys}
        | {
            f"loss_{rung}": np.nan if loss is None else loss
            for rung, loss in zip(choice.rungs, [*tried.losses, *[None] * len(choice.rungs)], strict=False)
        }
        | {"fell_out": tried.fell_out or np.nan, "chosen": tried.fell_out is None}
        for variant, choice in choices.items()
        for number, tried in enumerate(choice.tried, start=1)
    )


def tuning_data(profile: str, experiment: str) -> TableData:
    """`tuning_table` for display."""
    numbers, choices = tuning_table(profile, experiment), choices_of(profile, experiment)
    choice, task = next(iter(choices.values())), task_of(experiment)
    labels = labels_of(experiment, choices)
    runs = Runs(profile)
    planned = {config.variant: config for config in runs.planned(experiment)}
    config = next(iter(planned.values()))
    shown = pd.DataFrame(
        {"Architecture": numbers["label"], "No.": numbers["setting"].astype(str)}
        | {"Setting": [setting_text(tried.setting) for choice in choices.values() for tried in choice.tried]}
        | {f"{plural(rung, 'epoch')}": [as_printed(loss, DIGITS) for loss in numbers[f"loss_{rung}"]]
           for rung in choice.rungs}
        | {"Outcome": [_outcome(tried) for choice in choices.values() for tried in choice.tried]}
    )  # fmt: skip
    survivors = ", ".join(map(str, choice.keep))
    toy = f" {TOY}" if config.data.name == "toy" else ""
    scale = (
        f"Profile {runs.name}: {data_title(config.data.name)}, training runs of "
        f"{plural(config.train.epochs, 'epoch')} that stop after a rung, {seeds_named(choice.seeds)}; "
        f"settings kept after each rung: {survivors}. Nothing was computed on the test set.{toy}"
    )
    over = ", mean over the tuning's seeds" * (len(choice.seeds) > 1)
    measure = f"the lowest validation loss up to there, in {TASKS[config.kind].unit}{over}"
    notes = [f"Epoch columns: {measure}; {NONE}: not trained so far, or diverged."]
    unnamed = {labels[one]: _unnamed(choice, planned[one]) for one, choice in choices.items()}
    parts = [f"{label}: {setting_text(setting)}" for label, setting in unnamed.items() if setting]
    notes += [f"Values that a setting does not name: {'; '.join(parts)}."] * bool(parts)
    processors = dict.fromkeys(origin.processor for choice in choices.values() for origin in choice.origins)
    notes.append(f"Trained on {', '.join(processors)}.")
    return TableData(f"{task.table}, tuning", task.title, scale, numbers, {"what was tried": shown}, notes=notes)


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


def draw_tuning(profile: str, figure: FigureEntry) -> Figure:
    """A panel for each arm: validation loss after each epoch of every setting, mean over seeds.

    Raises:
        DataError: no arm is tuned.
    """
    choices = choices_of(profile, figure.experiment)
    labels = labels_of(figure.experiment, choices)
    columns = min(COLUMNS, len(choices))
    rows = -(-len(choices) // columns)
    drawn, axes = plotting.new_figure(2.9 * columns + 0.4, 2.7 * rows + 0.8, rows, columns, sharex=True, sharey=True)
    axes.flat[0].set_ylim(*_limits(choices))  # of all panels
    for ax, (variant, choice) in zip(axes.flat, choices.items(), strict=False):
        _draw_arm(ax, choice)
        chosen = setting_text(choice.chosen.setting)
        ax.set_title(f"{labels[variant]}\n", fontsize=plotting.MEDIUM)
        ax.text(
            0.5, 1.02, chosen, color=plotting.BLUE, ha="center", transform=ax.transAxes, fontsize=plotting.SMALL - 1
        )
    for ax in axes.flat[len(choices) :]:
        ax.set_visible(False)
    for ax in axes.flat[max(len(choices) - columns, 0) : len(choices)]:
        ax.tick_params(labelbottom=True)
        ax.set_xlabel("epoch")
    config = Runs(profile).planned(figure.experiment)[0]
    for ax in axes[:, 0]:
        ax.set_ylabel(f"validation loss ({TASKS[config.kind].unit})", fontsize=plotting.SMALL)
    looks = [("chosen", {"color": plotting.BLUE, "lw": 2.2}), ("eliminated", {"color": plotting.GREY, "marker": "x"})]
    plotting.add_handles(drawn, [Line2D([], [], label=what, **look) for what, look in looks], 2, plotting.SMALL)
    count = len(next(iter(choices.values())).seeds)
    seeds = f"mean over {count} seeds" if count > 1 else "one seed"
    title = f"Tuning: {data_title(config.data.name)}, {seeds}; vertical lines: rungs; numbers: settings"
    plotting.add_title(drawn, title)
    return drawn


def _draw_arm(ax: Axes, choice: Choice) -> None:
    """Eliminated settings are grey and end in a cross with their number; the choice is blue and on top.

    A setting that ends above the panel has its number and last loss at the top, one that diverged its number there.
    """
    for rung in choice.rungs:
        ax.axvline(rung, color="0.8", lw=0.8, ls=":", zorder=0)
    low, high = ax.get_ylim()
    ends: dict[int, list[tuple[float, str, str]]] = {}  # by epoch: the last loss, the setting's number, its colour
    beyond = []
    for number, tried in enumerate(choice.tried, start=1):
        curve = _mean_curve(tried)
        chosen = tried.fell_out is None
        if tried.losses[-1] is None:
            beyond.append(f"{number}: diverged")
        elif curve[-1] > high:
            beyond.append(f"{number}: {as_printed(curve[-1], 2)}")
        colour = plotting.BLUE if chosen else plotting.GREY
        dashes = "-" if chosen else DASHES[number % len(DASHES)]
        epochs = np.arange(1, len(curve) + 1)
        ax.plot(epochs, curve, color=colour, lw=2.2 if chosen else 0.9, ls=dashes, zorder=3 if chosen else 2)
        if len(curve) and curve[-1] <= high:
            if not chosen:
                ax.plot(epochs[-1], curve[-1], "x", color=colour, ms=4, zorder=2)
            ends.setdefault(len(curve), []).append((float(curve[-1]), str(number), colour))
    beside = {"textcoords": "offset points", "va": "center", "fontsize": plotting.SMALL - 1}
    for epoch, labels in ends.items():
        labels.sort()
        heights = spread([loss for loss, *_ in labels], LABEL_HEIGHT * (high - low))
        for (_, name, colour), y in zip(labels, heights, strict=True):
            ax.annotate(name, (epoch, y), (4, 0), color=colour, **beside)
    at_top = {"transform": ax.transAxes, "ha": "right", "va": "top", "fontsize": plotting.SMALL - 1}
    ax.text(0.98, 0.97, "\n".join(beyond), color=plotting.GREY, **at_top)
    plotting.whole_ticks(ax, 6)
    plotting.add_grid(ax, "y")


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in rising order, moved so that neighbours are a gap apart at least; groups stay around their middle."""
    groups: list[list[float]] = []  # what is moved together
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _bottom(groups[-2], gap) + gap * len(groups[-2]):
            last = groups.pop()
            groups[-1] += last
    return [_bottom(group, gap) + gap * number for group in groups for number in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    """Where the lowest of a group is put."""
    return mean(group) - gap * (len(group) - 1) / 2


def _mean_curve(tried: Tried) -> np.ndarray:
    """The mean over seeds after each epoch that all of them have: (epochs,)."""
    return common_epochs(list(tried.curves.values())).mean(axis=0)


def _limits(choices: Mapping[str, Choice]) -> tuple[float, float]:
    """Of the losses that are drawn.

    The first epochs are cut off, beside which all later ones would look alike; and settings eliminated far above
    those that went on, for one bad setting would make all others look alike.
    """
    curves = [(_mean_curve(tried), tried, choice) for choice in choices.values() for tried in choice.tried]
    curves = [found for found in curves if len(found[0]) and found[1].losses[-1] is not None]
    low = min(curve.min() for curve, *_ in curves)
    survived = [
        curve[min(choice.rungs[0], len(curve)) - 1 :].max()  # from the first rung on: a loss may rise again
        for curve, tried, choice in curves
        if tried.fell_out != choice.rungs[0]
    ]
    most = low + FAR * (max(survived) - low)
    high = max(curve[-1] for curve, *_ in curves if curve[-1] <= most)
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + 4 * margin
