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
from headdiv.companion.report.formats import with_intervals, with_unit
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
    waiting = not_judged_yet(profile, experiment, groups)
    apart_by = {one.label: uneven(scores_of(groups, name)) for name, one in scores.items()}
    said = [waiting, *set_apart_by_score(task, apart_by), *failed_trainings(profile, experiment)]
    if not waiting:
        for table, ones, words in ((against, apart, SAID), (two, parts, {})):
            verdicts = verdicts_by(task.primary, task, ones[task.primary])
            table["Verdict"] = [words.get(one, one) for one in verdicts]
            table["By BLEU"] = verdicts_by("bleu", task, ones["bleu"])
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
        [line for line in said if line],
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
