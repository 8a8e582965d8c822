"""The outcome of a profile's runs, in words: of each experiment the variants against their baseline."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from tabulate import tabulate

from headdiv.companion.analysis.comparison import Difference, differences
from headdiv.companion.analysis.statistics import interval
from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.claims.ledger import ledger, verdict_counts
from headdiv.companion.experiments.outdated import outdated_among
from headdiv.companion.experiments.papers import BASELINE, task_of
from headdiv.companion.experiments.results import with_results
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.contrasts import scores_of
from headdiv.companion.report.families import beside, design_of
from headdiv.companion.report.formats import NONE, as_printed, enough, plural, signed, with_unit
from headdiv.companion.report.groups import Groups, judged_with, not_judged_yet
from headdiv.companion.report.scale import data_title, scale, toy
from headdiv.companion.report.verdicts import (
    BETTER,
    MARGINS,
    NO_DIFFERENCE,
    NOT_JUDGED,
    NOT_YET,
    UNDECIDED,
    WORSE,
    verdict,
)
from headdiv.companion.tasks import TASKS


@dataclass(frozen=True)
class Scored:
    """A variant with its scores."""

    label: str
    by_seed: dict[int, float]
    paper: float | None  # what the paper reports
    difference: Difference  # to what it is compared with, with its simultaneous interval; NaN for the baseline itself

    @property
    def value(self) -> float:
        """Mean over its runs."""
        return mean(self.by_seed.values())

    @property
    def half(self) -> float | None:
        """Half the width of the 95 % interval of the mean over seeds; None where there is one."""
        return interval(list(self.by_seed.values())).half if len(self.by_seed) > 1 else None


@dataclass(frozen=True)
class Outcome:
    """An experiment's outcome, by its main score, or the one that decides by the rules that it has (docs/contest.md).

    Attributes:
        measure: the score's name, as the paper's column has it.
        unit: of the score, as its signature has it; "" for none.
        lower: whether less is better.
        digits: decimals to show it with.
        variants: the best first; without the baseline.
        baseline: None where no run of it is stored.
        seeds: of the runs.
        runs: how many are stored.
        data_name: of the text.
        scale: what they are of, in a sentence, with that about toys.
        toy: that about toys; "" where the text is none.
        rules: what is said by its rules; () for an experiment without.
        judged: whether it may be judged: all runs are there that its rules ask for.
        margin: of equivalence, where its rules name one.
        same: what a variant and the Transformer beside it have in common; "" where that is always the baseline.
    """

    experiment: str
    title: str
    measure: str
    unit: str
    lower: bool
    digits: int
    variants: tuple[Scored, ...]
    baseline: Scored | None
    seeds: tuple[int, ...]
    runs: int
    data_name: str
    scale: str
    toy: str
    rules: tuple[str, ...]
    judged: bool
    margin: float | None
    same: str

    @property
    def best(self) -> Scored | None:
        """The variant with the best mean difference from the baseline; None where none has several seeds in common.

        Nor is there one before the experiment may be judged.
        """
        return next((one for one in self.variants if one.difference.count > 1 and self.judged), None)

    @property
    def papers_difference(self) -> float | None:
        """The best variant's difference from the baseline by the paper's own numbers."""
        if not self.best or not self.baseline or self.best.paper is None or self.baseline.paper is None:
            return None
        return self.best.paper - self.baseline.paper

    def count(self, verdict: str) -> int:
        """How many variants have this verdict."""
        return sum(self.verdict(one) == verdict for one in self.variants)

    def verdict(self, scored: Scored) -> str:
        """Which side of the baseline a variant is on."""
        return verdict(scored.difference, not self.lower, self.margin) if self.judged else NOT_JUDGED

    def shown(self, scored: Scored | None) -> str:
        """A score as it is printed, with half the width of its interval over seeds."""
        return as_printed(scored and scored.value, self.digits, scored and scored.half)

    def shown_baseline(self) -> str:
        """The baseline's score, as far as all variants are compared with it."""
        return NONE if self.same else self.shown(self.baseline)

    def versus_baseline(self) -> str:
        """The best variant's difference to what it is compared with, its interval, and what that decides."""
        if self.best is None:
            return NONE
        found = self.best.difference
        plain = f" against the Transformer with the same {self.same}" if self.same else ""
        shown = signed(found.mean, self.digits, found.half) if found.mean else "equal"
        return f"{shown}{plain}, {self.verdict(self.best)}"

    def finding(self) -> str:
        """What the variants' differences from the baseline say by their simultaneous intervals, in a sentence."""
        if self.rules:
            return " ".join(self.rules)
        found = [one for one in self.variants if self.verdict(one) != NOT_JUDGED]
        if not found and len(self.seeds) == 1:
            return "One run of each model: whether methods differ, or only seeds, is not known."
        if not found:
            return "Too few runs share a seed with the baseline for intervals."
        better, worse, undecided = map(self.count, (BETTER, WORSE, UNDECIDED))
        seeds, alone = sorted({one.difference.count for one in found}), len(self.variants) - len(found)
        return (
            f"{better or 'None'} of {plural(len(found), 'variant')} {'is' if better < 2 else 'are'} better than the "
            f"baseline, {worse or 'none'} worse, {undecided or 'none'} undecided, by simultaneous 95 % intervals of "
            f"differences in {self.measure} over {' or '.join(map(str, seeds))} seeds"
            f"{f'; {alone} of one seed, not judged' if alone else ''}."
        )

    def sentences(self) -> str:
        """The outcome in words; of an experiment with rules what its finding leaves to be said."""
        if self.rules:
            return ""
        if self.baseline is None:
            return "No run of the baseline is stored, so there is nothing to compare with."
        if not self.variants:
            return f"The baseline alone has been run: {self.measure} {self.shown(self.baseline)}."
        best, less = self.best, " (less is better)" if self.lower else ""
        if best is None:
            ends = " to ".join(dict.fromkeys(map(self.shown, (self.variants[-1], self.variants[0]))))
            return (
                f"No variant shares several seeds with the baseline, so none is ranked: {self.measure}{less} {ends}, "
                f"the baseline {self.shown(self.baseline)}."
            )
        ours = f"{self.measure}{less} {self.shown(best)} against {self.shown(self.baseline)}"
        ours += f", difference {self.versus_baseline()}"
        if best.by_seed.keys() != self.baseline.by_seed.keys():
            ours += f" ({plural(best.difference.count, 'common seed')})"
        if self.papers_difference is not None:
            ours += f" (the paper's: {signed(self.papers_difference, self.digits)})"
        several = " of several seeds" if best is not self.variants[0] else ""
        end = "lowest" if self.lower else "highest"
        if self.verdict(best) == BETTER:
            return f"{best.label} is better than the baseline and has the {end} mean{several}: {ours}."
        if not self.count(BETTER):
            start = f"No variant is shown to be better than the baseline; the {end} mean{several}"
        else:
            start = f"The {end} mean of the variants{several}"
        return f"{start} has {best.label}: {ours}."


def outcomes(profile: str, stored: dict[str, list[RunResult]]) -> list[Outcome]:
    """The outcome of each experiment of a profile, from the runs that `with_results` finds."""
    return [_outcome(profile, experiment, runs) for experiment, runs in stored.items()]


def _outcome(profile: str, experiment: str, runs: list[RunResult]) -> Outcome:
    task, main = task_of(experiment), TASKS[runs[0].kind].main_score
    name, design = task.primary or main.name, design_of(task)
    column = task.columns.get(name) or main
    lower = column.better == "lower"
    groups: Groups = {}
    for run in runs:
        groups.setdefault(run.variant, []).append(run)
    values, reported = scores_of(groups, name), task.numbers()
    others = beside(task, values)
    if design:  # the Transformer's own rows at other levels are no methods
        others = {variant: plain for variant, plain in others.items() if variant not in design.plain.values()}
    model = scores_of(judged_with(profile, experiment), name)
    of_the_model = {variant: BASELINE for variant in model if variant not in values} | others
    apart = differences(model, [pair for pair in of_the_model.items() if pair[1] in values])
    scored = {
        variant: Scored(
            task.label(variant),
            by_seed,
            reported.get(variant, {}).get(name),
            apart.get((variant, others.get(variant, "")), NO_DIFFERENCE),
        )
        for variant, by_seed in values.items()
    }
    order = sorted(others, key=lambda one: _apart(scored[one], scored.get(others[one])), reverse=not lower)
    waiting = not_judged_yet(profile, experiment, groups)
    return Outcome(
        experiment=experiment,
        title=task.title,
        measure=column.label,
        unit=runs[0].scores[name].unit if name in runs[0].scores else column.unit,
        lower=lower,
        digits=enough((one.value for one in scored.values()), column.digits),
        variants=tuple(scored[variant] for variant in order),
        baseline=scored.get(BASELINE),
        seeds=tuple(sorted({run.seed for run in runs})),
        runs=len(runs),
        data_name=data_title(runs[0].data_name),
        scale=scale(runs, profile),
        toy=" ".join(toy(runs[0])),
        rules=(waiting,) * bool(waiting),
        judged=not waiting,
        margin=MARGINS.get(task.primary),
        same=design.factor.same if design else "",
    )


def _apart(one: Scored, baseline: Scored | None) -> float:
    """The difference to what it is compared with; of the means where they share no seed."""
    if one.difference.count:
        return one.difference.mean
    return one.value - (baseline.value if baseline else 0.0)


# ---- for a terminal


def summary_text(profile: str, brief: bool = False) -> str:
    """A line an experiment (the baseline's score, the best mean of several seeds, runs), then counts of verdicts.

    ``brief``: of a paper's experiments with one kind of task the first alone.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored at all, or metrics of another format.
    """
    stored = with_results(profile)
    shown = stored
    if brief:
        kinds = {name: (name.partition("/")[0], runs[0].kind) for name, runs in stored.items()}
        first = {kind: name for name, kind in reversed(kinds.items())}
        shown = {name: runs for name, runs in stored.items() if name in first.values()}
    found = outcomes(profile, shown)
    rows = [["experiment", "score", "baseline", "best mean of several seeds", "", "runs"], *map(_line, found)]
    lines = [line.rstrip() for line in tabulate(rows, tablefmt="plain", disable_numparse=True).splitlines()]
    if left_out := len(stored) - len(shown):
        lines.append(f"and {plural(left_out, 'experiment')} more: {headdiv_command('summary', '--profile', profile)}")
    lines.append(
        "↑ more is better, ↓ less is better; ±: 95 % interval over seeds, of differences simultaneous over all variants"
    )
    counts = verdict_counts(ledger())
    lines.append("the papers' claims: " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count))
    runs = (run for runs in stored.values() for run in runs)
    lines += [f"no longer the profile's settings: {sentence}" for sentence in outdated_among(profile, runs).values()]
    lines += dict.fromkeys(outcome.toy.strip("*") for outcome in found if outcome.toy)
    return "\n".join(lines)


def _line(outcome: Outcome) -> list[str]:
    score = with_unit(f"{outcome.measure} {'↓' if outcome.lower else '↑'}", outcome.unit)
    unranked = "one seed, " * (len(outcome.seeds) == 1) + "none is ranked"
    alone = unranked if outcome.variants else "nothing but the baseline"
    alone = alone if outcome.judged else NOT_YET
    best = outcome.best.label if outcome.best else alone
    shown = f"{outcome.shown(outcome.best)} ({outcome.versus_baseline()})" if outcome.best else ""
    runs = f"{plural(outcome.runs, 'run')}, {plural(len(outcome.seeds), 'seed')}"
    return [outcome.experiment, score, outcome.shown_baseline(), best, shown, runs]
