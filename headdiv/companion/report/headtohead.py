"""All methods on one task with one budget: scores with intervals over seeds, paired bootstrap, costs, heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from headdiv.companion.analysis.comparison import Difference, uneven
from headdiv.companion.analysis.statistics import interval
from headdiv.companion.experiments.papers import BASELINE, Column, PaperTask
from headdiv.companion.experiments.run_result import RunResult, SearchCost, metrics_path
from headdiv.companion.experiments.stored_outputs import read_outputs
from headdiv.companion.report.contrasts import (
    asked_differences,
    compared_scores,
    differences_of,
    means_of,
    scores_of,
    set_apart,
)
from headdiv.companion.report.diversity import DIVERSITY_NOTE, diversity_table
from headdiv.companion.report.formats import NONE, as_printed, enough, plural, signed, with_intervals, with_unit
from headdiv.companion.report.groups import Groups, chosen, judged_with, labels_of, measured, more_rows, task_shown
from headdiv.companion.report.measures import MEASURES, SCORE, mean_measure
from headdiv.companion.report.scale import scale
from headdiv.companion.report.table_data import TableData, ends
from headdiv.companion.report.verdicts import ALPHA, LOWEST_LOSS, MARGINS, NO_DIFFERENCE, verdict
from headdiv.companion.tasks.base import VALIDATION_LOSS
from headdiv.companion.tasks.bleu import paired_bootstrap
from headdiv.core.errors import DataError

COSTS: dict[str, Callable[[RunResult], float]] = {  # the time of a search is NaN where it was not kept
    "training_seconds": lambda run: run.cost.training_seconds,
    "sentences_per_second": lambda run: run.cost.search.sentences_per_second if run.cost.search else math.nan,
    "peak_memory_mib": lambda run: run.cost.peak_memory_mib,
}

# ---- against the baseline


@dataclass
class Comparison:
    """Every variant against the baseline of the same seed, on the same test set."""

    rows: Groups  # of the model
    differences: dict[str, Difference] = field(default_factory=dict)  # of BLEU, by variant
    p_values: dict[str, list[float]] = field(default_factory=dict)  # of the bootstrap, likewise
    signature: str | None = None  # of the bootstrap; None where there was none
    lacking: list[str] = field(default_factory=list)  # runs without counts, or outputs and corpus


def compare(profile: str, experiment: str, groups: Groups) -> Comparison:
    """Differences of BLEU, and the paired bootstrap on what is stored of each sentence beside the metrics.

    It needs no corpus. Runs from before the counts were stored need it, for the references of their stored outputs, and
    have no bootstrap without it.

    Args:
        profile: name or path.
        experiment: ``<paper>/<task>``.
        groups: its runs by variant.

    Raises:
        DataError: outputs or counts do not have the BLEU of their metrics.
    """
    rows = judged_with(profile, experiment)
    result = Comparison(rows, differences_of(rows, SCORE))
    for baseline in groups.get(BASELINE, []):
        seed = baseline.seed
        runs = {variant: run for variant, found in groups.items() for run in found if run.seed == seed}
        stored = {variant: _counts(profile, experiment, run) for variant, run in runs.items()}
        result.lacking.extend(f"{variant} (seed {seed})" for variant, counts in stored.items() if counts is None)
        systems = {variant: counts for variant, counts in stored.items() if counts is not None}
        if BASELINE not in systems or len(systems) == 1:
            continue
        found = paired_bootstrap(systems.pop(BASELINE), systems, baseline.config.data.get("lowercase", False))
        for variant, score in {BASELINE: found.baseline, **found.scores}.items():
            _must_agree(profile, experiment, runs[variant], score)
        for variant, p in found.p_values.items():
            result.p_values.setdefault(variant, []).append(p)
        result.signature = found.signature
    return result


def _counts(profile: str, experiment: str, run: RunResult) -> np.ndarray | None:
    """What BLEU needs of each sentence of the test set, where it is stored."""
    counts = read_outputs(metrics_path(profile, experiment, run.variant, run.seed), profile).counts
    return None if counts is None else np.array(counts)


def _must_agree(profile: str, experiment: str, run: RunResult, found: float) -> None:
    if abs(found - run.value(SCORE)) > 1e-6:
        path = metrics_path(profile, experiment, run.variant, run.seed)
        raise DataError(
            f"{path.parent}: BLEU {found:.4f} of the stored counts, expected the {run.value(SCORE):.4f} of "
            f"{path.name}; they are not of one run"
        )


# ---- the table for programs


def table_of(experiment: str, groups: Groups, compared: Comparison) -> pd.DataFrame:
    """One line a variant, in the order of the paper's file, of these runs by variant and their comparison.

    Columns: variant, label, seeds, epochs (a mean); of BLEU, training_seconds, sentences_per_second, peak_memory_mib
    and the head measures: mean over seeds, and ``<name>_low``, ``<name>_high``, the ends of Student's 95 % interval
    (empty for one seed); of BLEU's difference from the baseline the same, with Dunnett's simultaneous interval, the
    number of common_seeds, equivalence_p, the p-value of equivalence within `MARGINS`, and own_interval, whether the
    row is left out of the additive model (`analysis.comparison.uneven`); of the bootstrap p_lowest and
    p_highest over seeds, p_below_5_percent and p_seeds, how many seeds are below 0.05 of how many; parameters and
    parameters_of_base (%); front_parameters and front_training_seconds, whether no other variant has as much BLEU for
    less (by differences; by time empty where other work kept the machine busy).
    """
    labels = labels_of(experiment, groups)
    base = groups[BASELINE][0].parameters if BASELINE in groups else math.nan
    alone = uneven(scores_of(compared.rows, SCORE))
    rows = []
    for variant, runs in groups.items():
        p = compared.p_values.get(variant, [])
        row: dict[str, Any] = {"variant": variant, "label": labels[variant], "seeds": len(runs)}
        row |= {"epochs": mean(run.epochs for run in runs)} | ends(SCORE, interval([run.value(SCORE) for run in runs]))
        apart = compared.differences.get(variant, NO_DIFFERENCE)
        row |= ends(f"{SCORE}_difference", apart)
        row |= {"common_seeds": apart.count, "equivalence_p": apart.equivalence(MARGINS[SCORE])}
        row |= {"own_interval": variant in alone}
        row |= {"p_lowest": min(p, default=math.nan), "p_highest": max(p, default=math.nan)}
        row |= {"p_below_5_percent": sum(value < ALPHA for value in p), "p_seeds": len(p)}
        row |= {"parameters": runs[0].parameters, "parameters_of_base": 100 * runs[0].parameters / base}
        for name, cost in COSTS.items():
            row |= ends(name, interval([cost(run) for run in runs]))
        for name in MEASURES:
            row |= ends(name, interval([mean_measure(run, name) for run in runs]))
        rows.append(row)
    table = pd.DataFrame(rows)
    score = table[SCORE]
    if BASELINE in groups:  # rows may have other seeds
        base_score = table.loc[table["variant"] == BASELINE, SCORE].item()
        score = (base_score + table[f"{SCORE}_difference"]).fillna(score)
    table["front_parameters"] = pareto_front(table["parameters"], score)
    quiet = all_quiet(groups)  # else times are not compared
    table["front_training_seconds"] = pareto_front(table["training_seconds"], score) if quiet else None
    return table


def all_quiet(groups: Groups) -> bool:
    """Whether nothing else kept the machine busy in any run, so that their times may be compared."""
    return all(run.cost.quiet for runs in groups.values() for run in runs)


def pareto_front(costs: Sequence[float], scores: Sequence[float]) -> list[bool]:
    """Of each point, whether none has at least its score for at most its cost, and one of the two strictly better."""
    cost, score = np.asarray(costs, dtype=float), np.asarray(scores, dtype=float)
    as_good = (cost[None] <= cost[:, None]) & (score[None] >= score[:, None])  # (points, others)
    better = (cost[None] < cost[:, None]) | (score[None] > score[:, None])
    return (~(as_good & better).any(axis=1)).tolist()


# ---- the table for people


def comparison_data(profile: str, experiment: str) -> TableData:
    """The same for people: scores, costs, heads, each a table, and how every number came about."""
    groups = chosen(profile, experiment, experiment)
    task = task_shown(experiment, groups)
    compared, runs = compare(profile, experiment, groups), [run for group in groups.values() for run in group]
    table = table_of(experiment, groups, compared)
    signatures = {"BLEU": runs[0].scores[SCORE].signature}
    if compared.signature:
        what = "bootstrap over test sentences, one training each, paired with the baseline of the same seed"
        signatures["p"] = f"{what}, {compared.signature}"
    quiet = all_quiet(groups)
    searches = [run.cost.search for run in runs if run.cost.search and quiet]
    if searches:
        how = {_search(search) for search in searches}
        signatures["sentences/s"] = f"one pass over the test set, by the wall clock: {'; '.join(sorted(how))}"
    notes = [*task.notes, *_notes(table, compared, quiet, bool(searches)), *more_rows(compared.rows, groups)]
    scores, costs, heads = _display_tables(table, quiet)
    shown = {"score, and its difference from the baseline": scores}
    if learnt := {name: column for name, column in compared_scores(task).items() if name != SCORE}:
        signatures |= measured(runs, learnt)
        shown["training, and differences from the baseline"] = _learning(table, groups, learnt, compared.rows)
    changes = changes_table(task, groups, compared.rows)
    if len(changes):
        shown["single changes"] = changes
    shown |= {"cost": costs, "measures of the heads": heads}
    related = diversity_table(groups)
    if len(related):
        shown["diversity and score"] = related
        notes.append(DIVERSITY_NOTE)
    return TableData(task.table, task.title, scale(runs, profile), table, shown, signatures, notes=notes)


def changes_table(task: PaperTask, groups: Groups, rows: Groups) -> pd.DataFrame:
    """What each change does (the paper's file names them) to the validation loss, which decides, and the last score."""
    *_, last = scores = compared_scores(task)
    judge = LOWEST_LOSS if LOWEST_LOSS in scores else VALIDATION_LOSS.key
    asked = {name: asked_differences(task, groups, name, rows) for name in (judge, last)} if task.contrasts else {}
    if not asked:
        return pd.DataFrame()
    losses = [loss for _, loss in asked[judge]]
    shown = {"Change": [one.what for one, _ in asked[judge]], "Seeds": [str(loss.count) for loss in losses]}
    for name, found in asked.items():
        column = task.columns[name]
        shown[with_unit(column.label, column.unit)] = with_intervals((one for _, one in found), column.digits)
    return pd.DataFrame(shown | {"Verdict": [verdict(loss, higher=False) for loss in losses]})


def _learning(table: pd.DataFrame, groups: Groups, scores: dict[str, Column], rows: Groups) -> pd.DataFrame:
    """Losses and the like, and their differences from the baseline, seed by seed; their means enter ``table`` too."""
    shown = {"Method": list(table["label"])}
    for name, column in scores.items():
        own = means_of(groups, name).values()
        found = differences_of(rows, name)
        apart = [found.get(variant, NO_DIFFERENCE) for variant in groups]
        table[name] = [one.mean for one in own]
        columns = pd.DataFrame([ends(f"{name}_difference", one) for one in apart])
        table[list(columns)] = columns
        shown[with_unit(column.label, column.unit)] = with_intervals(own, column.digits)
        shown[f"{column.label}, difference"] = with_intervals(apart, column.digits)
    return pd.DataFrame(shown, index=list(groups))


def _search(cost: SearchCost) -> str:
    how = "greedy" if cost.beam == 1 else f"beam {cost.beam}"
    return f"{how}, {cost.batch_sentences} sentences at a time, {cost.device}, {plural(cost.threads, 'thread')}"


def _with_interval(table: pd.DataFrame, name: str, digits: int, printed: Callable[..., str] = as_printed) -> list[str]:
    rows = zip(table[name], table[f"{name}_high"] - table[name], strict=True)
    return [printed(mean, digits, half) for mean, half in rows]


def _display_tables(table: pd.DataFrame, quiet: bool) -> list[pd.DataFrame]:
    """Scores, costs and heads, each a table of text; times where nothing else kept the machine busy."""
    fronts = table[["front_parameters", "front_training_seconds"]].itertuples(index=False)
    scores = {
        "Seeds": list(map(str, table["seeds"])),
        "BLEU": _with_interval(table, SCORE, 2),
        "Against the baseline": _with_interval(table, f"{SCORE}_difference", 2, signed),
        "p": [_p_values(row) for _, row in table.iterrows()],
    }
    times = {
        "Training (s)": _with_interval(table, "training_seconds", enough(table["training_seconds"], 0)),
        "Translating (sentences/s)": _with_interval(table, "sentences_per_second", 1),
    }
    costs = {
        "Parameters": [f"{count:,}" for count in table["parameters"]],
        "Relative to the baseline (%)": [as_printed(share, 2) for share in table["parameters_of_base"]],
        **(times if quiet else {}),
        "Peak memory (MiB)": [as_printed(value, 0) for value in table["peak_memory_mib"]],
        "Pareto front": [", ".join(n for n, on in zip(("size", "time"), f, strict=True) if on) for f in fronts],
    }
    heads = {
        label[0].upper() + label[1:]: _with_interval(table, name, digits) for name, (label, digits) in MEASURES.items()
    }
    variants, methods = list(table["variant"]), list(table["label"])
    return [pd.DataFrame({"Method": methods, **columns}, index=variants) for columns in (scores, costs, heads)]


def _p_values(row: pd.Series) -> str:
    if not row["p_seeds"]:
        return NONE
    ends = dict.fromkeys(f"{row[name]:.3f}" for name in ("p_lowest", "p_highest"))
    if row["p_seeds"] == 1:
        return next(iter(ends))
    return f"{' to '.join(ends)} (below {ALPHA}: {row['p_below_5_percent']} of {row['p_seeds']})"


def _about_intervals(table: pd.DataFrame) -> str:
    judged = table[f"{SCORE}_difference_low"].notna()
    if not judged.any():
        if (table["seeds"] > 1).any():
            return "No row shares several seeds with the baseline: no difference has an interval."
        return "One seed each, so there are no intervals, and how much another seed would change is not known."
    said = (
        "The ± after a difference from the baseline is half the width of Dunnett's simultaneous 95 % interval, from "
        "one additive model of variant and seed for all rows with a pooled residual: all intervals of a column hold "
        "jointly with 95 %, and a row with fewer seeds has a wider one. The ± after a score is Student's interval for "
        "its mean over seeds and says nothing about differences."
    )
    return " ".join([said, *set_apart(table.loc[judged & table["own_interval"], "label"])])


def _notes(table: pd.DataFrame, compared: Comparison, quiet: bool, timed: bool) -> list[str]:
    notes = [_about_intervals(table)]
    if table["p_seeds"].any():
        notes.append(
            "p tells whether another test set could reverse the difference between two trained models, not whether "
            f"another training run could. If nothing differed, {ALPHA:.0%} of comparisons would come out below {ALPHA}."
        )
    if compared.lacking:
        notes.append(f"Without stored counts of n-grams, and so without p: {', '.join(compared.lacking)}.")
    if quiet:
        notes.append("Times are by the wall clock, measured once per run.")
        notes += ["These runs' searches were not timed."] * (not timed)
    notes.append("Peak memory is that of a GPU's allocator, or of the whole process on a CPU.")
    front = "Pareto front: no other method has as high a BLEU with fewer parameters (size)"
    busy = ". These runs are not known to have had the machine to themselves, so no times are shown."
    notes.append(front + (", or after less training (time)." if quiet else busy))
    notes.append(
        "Measures of heads are on the validation split, means over the attention modules and their heads or pairs of "
        "heads, before the output stage. In a mixture of heads, head 1 is each token's first choice."
    )
    return notes
