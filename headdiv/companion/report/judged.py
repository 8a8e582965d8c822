"""Tables of what is judged by rules that are older than its runs (docs/contest.md): arms against the Transformer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from headdiv.companion.analysis.comparison import Difference, uneven
from headdiv.companion.experiments.papers import BASELINE, Column, PaperTask, task_of
from headdiv.companion.report.contrasts import (
    asked_differences,
    compared_scores,
    differences_of,
    means_of,
    scores_of,
    set_apart_by_score,
)
from headdiv.companion.report.formats import as_printed, plural, signed, with_intervals, with_unit
from headdiv.companion.report.groups import Groups, chosen, failed_trainings, measured, not_judged_yet
from headdiv.companion.report.scale import scale
from headdiv.companion.report.table_data import PLUS_MINUS, SIMULTANEOUS, TableData, ends
from headdiv.companion.report.verdicts import (
    AS_GOOD,
    BETTER,
    MARGINS,
    NO_DIFFERENCE,
    NOT_JUDGED,
    UNDECIDED,
    WORSE,
    verdict,
)

SAID = {
    BETTER: "helps",
    WORSE: "hurts",
    AS_GOOD: "makes no difference that matters",
    UNDECIDED: "undecided",
    NOT_JUDGED: "not judged",
}


def means_table(task: PaperTask, groups: Groups, scores: Mapping[str, Column]) -> pd.DataFrame:
    """A line for each variant: seeds, and the mean of each score with Student's interval."""
    shown = pd.DataFrame({"Model": [task.label(variant) for variant in groups]}, index=list(groups))
    shown["Seeds"] = [str(len(of)) for of in groups.values()]
    for name, column in scores.items():
        shown[with_unit(column.label, column.unit)] = with_intervals(means_of(groups, name).values(), column.digits)
    return shown


def differences_table(
    heads: Sequence[str],
    names: Iterable[Sequence[str]],
    found: Mapping[str, Iterable[Difference]],
    scores: Mapping[str, Column],
) -> pd.DataFrame:
    """A line for each difference, by its names under ``heads``, and its number in each score."""
    shown = pd.DataFrame(list(names), columns=list(heads))
    for name, column in scores.items():
        shown[column.label] = with_intervals(found[name], column.digits)
    return shown


def verdicts_by(score: str, task: PaperTask, found: Iterable[Difference]) -> list[str]:
    """What each difference of a score decides, with the margin of docs/contest.md."""
    return [verdict(one, task.columns[score].better != "lower", MARGINS.get(score)) for one in found]


def conclusions(experiment: str, groups: Groups) -> list[str]:
    """How many arms help, and what is said of each, by the score that decides, once they may be judged."""
    task = task_of(experiment)
    found = differences_of(groups, task.primary)
    order = sorted(found, key=lambda variant: found[variant].mean)
    said = dict(zip(order, verdicts_by(task.primary, task, (found[variant] for variant in order)), strict=True))
    named = {
        one: [f"{task.label(variant)} ({_shown(task, found[variant])})" for variant in order if said[variant] == one]
        for one in SAID
    }
    lines = [f"{SAID[one][0].upper()}{SAID[one][1:]}: {', '.join(arms)}." for one, arms in named.items() if arms]
    judged, helping = len(found) - len(named[NOT_JUDGED]), len(named[BETTER])
    verb = "helps" if helping == 1 else "help" if helping else "is shown to help"
    count = f"{helping or 'None'} of {plural(judged, 'arm')} {verb} the {task.label(BASELINE)}."
    return [count, *lines] if judged else lines


def remarks(profile: str, experiment: str, groups: Groups) -> list[str]:
    """What is said besides: what the numbers are, what one part of a method adds, the gate, and what is no rule's."""
    task, scores = task_of(experiment), compared_scores(task_of(experiment))
    column, asked = task.columns[task.primary], asked_differences(task, groups, task.primary)
    lines = [f"In brackets: {in_words(column)} minus the Transformer's ({column.unit}, simultaneous 95 % intervals)."]
    for (one, apart), decided in zip(asked, verdicts_by(task.primary, task, (two for _, two in asked)), strict=True):
        lines.append(f"{one.what}: {decided} ({_shown(task, apart)}).")
    for name, least in task.gate.items() if BASELINE in groups else ():
        own = means_of(groups, name)[BASELINE]
        reached = "reached" if own.mean >= least else "not reached"
        text = as_printed(own.mean, 2, own.half)
        lines.append(f"{task.label(BASELINE)}: {scores[name].label} {text}; the gate of {least:g} is {reached}.")
    apart = set_apart_by_score(task, {one.label: uneven(scores_of(groups, name)) for name, one in scores.items()})
    return [*lines, *apart, *failed_trainings(profile, experiment)]


def _shown(task: PaperTask, one: Difference) -> str:
    return signed(one.mean, task.columns[task.primary].digits, one.half)


def in_words(column: Column) -> str:
    """A column's name within a sentence: "the lowest validation loss"."""
    return f"the {column.label[0].lower()}{column.label[1:]}"


def judged_data(profile: str, experiment: str) -> TableData:
    """Every arm's scores, what they are minus the Transformer's, and what one part of a method adds.

    Raises:
        DataError: no stored results, or results that contradict each other.
    """
    task, groups = task_of(experiment), chosen(profile, experiment, experiment)
    scores, runs = compared_scores(task), [run for of in groups.values() for run in of]
    arms = [variant for variant in groups if variant != BASELINE]
    found = {name: differences_of(groups, name) for name in scores}
    apart = {name: [of.get(variant, NO_DIFFERENCE) for variant in arms] for name, of in found.items()}
    asked = {name: asked_differences(task, groups, name) for name in scores}
    parts = {name: [one for _, one in of] for name, of in asked.items()}
    against = differences_table(["Method"], ([task.label(variant)] for variant in arms), apart, scores)
    two = differences_table(["Part"], ([one.what] for one, _ in asked[task.primary]), parts, scores)
    said = [waiting := not_judged_yet(profile, experiment, groups)]
    if not waiting:
        for table, ones, words in ((against, apart, SAID), (two, parts, {})):
            verdicts = verdicts_by(task.primary, task, ones[task.primary])
            table["Verdict"] = [words.get(one, one) for one in verdicts]
            table["By BLEU"] = verdicts_by("bleu", task, ones["bleu"])
        said = [*conclusions(experiment, groups), *remarks(profile, experiment, groups)]
    primary, margin = task.columns[task.primary], MARGINS[task.primary]
    notes = [
        f"Verdicts are by {in_words(primary)}: its simultaneous interval excludes 0, or else two one-sided t-tests "
        f"at 5 % show a difference within ±{margin} {primary.unit} (BLEU: ±{MARGINS['bleu']}).",
        SIMULTANEOUS,
        PLUS_MINUS,
        *task.notes,
    ]
    every = means_table(task, groups, scores)
    tables = {"every arm": every, "minus the Transformer": against, "what one part adds": two}
    return TableData(
        task.table,
        task.title,
        scale(runs, profile),
        _numbers(task, groups, found),
        {caption: table for caption, table in tables.items() if len(table)},
        measured(runs, scores),
        said,
        notes,
    )


def _numbers(task: PaperTask, groups: Groups, found: Mapping[str, Mapping[str, Difference]]) -> pd.DataFrame:
    """One line a stored variant: parameters, means of scores, and differences from the Transformer."""
    means, rows = {name: means_of(groups, name) for name in found}, []
    for variant, runs in groups.items():
        row: dict[str, Any] = {"variant": variant, "label": task.label(variant), "seeds": len(runs)}
        row |= {"parameters": runs[0].parameters}
        for name, of in found.items():
            apart = of.get(variant, NO_DIFFERENCE)
            row |= ends(name, means[name][variant]) | ends(f"{name}_difference", apart)
            row[f"{name}_equivalence_p"] = apart.equivalence(MARGINS[name]) if name in MARGINS else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)
