"""The outcome of a profile's runs, in words: of each experiment the best variant against its baseline."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from tabulate import tabulate

from headdiv.analysis.statistics import Interval, interval
from headdiv.experiments.claims.ledger import ledger, verdict_counts
from headdiv.experiments.outdated import outdated_among
from headdiv.experiments.papers import BASELINE, task_of
from headdiv.experiments.results import with_results
from headdiv.experiments.run_result import RunResult
from headdiv.report.formats import NONE, as_printed, enough, plural
from headdiv.report.scale import TOY, data_title, scale, toy
from headdiv.tasks import TASKS


@dataclass(frozen=True)
class Scored:
    """A variant with its scores."""

    label: str
    by_seed: dict[int, float]
    paper: float | None  # what the paper reports

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
    """An experiment's outcome, by its main score.

    Attributes:
        measure: the score's name, as the paper's column has it.
        unit: of the score, as its signature has it; "" for none.
        lower: whether less is better.
        digits: decimals to show it with.
        variants: the best first; without the baseline.
        baseline: None where no run of it is stored.
        seeds: of the runs.
        runs: how many are stored.
        steps: the most updates that one of them was trained for.
        data_name: of the text.
        scale: what they are of, in a sentence, with that about toys.
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
    steps: int
    data_name: str
    scale: str
    toy: bool

    @property
    def best(self) -> Scored | None:
        """The best variant beside the baseline."""
        return self.variants[0] if self.variants else None

    @property
    def shared(self) -> list[int]:
        """The seeds that both the best variant and the baseline have: those that are compared."""
        return sorted(self._differences(self.best)) if self.best else []

    @property
    def difference(self) -> float | None:
        """The best variant's score minus the baseline's of the same seed, mean over the seeds that both have."""
        return self._gain.mean if self._gain.count else None

    @property
    def _gain(self) -> Interval:
        return interval(list(self._differences(self.best).values()) if self.best else [])

    def _differences(self, scored: Scored) -> dict[int, float]:
        return _differences(scored, self.baseline)

    @property
    def papers_difference(self) -> float | None:
        """The same of the paper's own numbers, for the same variant."""
        if not self.best or not self.baseline or self.best.paper is None or self.baseline.paper is None:
            return None
        return self.best.paper - self.baseline.paper

    @property
    def better(self) -> int:
        """How many variants score better than the baseline."""
        sign = -1 if self.lower else 1
        return sum(sign * sum(self._differences(one).values()) > 0 for one in self.variants)

    def shown(self, scored: Scored | None) -> str:
        """A score as it is printed, with half the width of its interval over seeds."""
        return as_printed(scored and scored.value, self.digits, scored and scored.half)

    def versus_baseline(self) -> str:
        """`difference` in words, with half the width of its interval over seeds."""
        return self.versus(self.difference, self._gain.half)

    def versus(self, difference: float | None, half: float | None = None) -> str:
        """A difference in words, which say whether it is a gain: of a perplexity a lower one is."""
        if difference is None:
            return NONE
        sign = -1 if self.lower else 1
        size = as_printed(abs(difference), self.digits, half)
        return f"{size} {'better' if sign * difference > 0 else 'worse'}" if difference else "equal"

    def finding(self) -> str:
        """What the variants' differences from the baseline say by their intervals over seeds, in a sentence."""
        sign = -1 if self.lower else 1
        found = [interval([sign * d for d in self._differences(one).values()]) for one in self.variants]
        found = [one for one in found if one.count > 1]
        seeds, alone = sorted({one.count for one in found}), len(self.variants) - len(found)
        if not found and len(self.seeds) == 1:
            return "One training of each model: whether methods differ or only trainings do is not known."
        if not found:
            return "No variant has two seeds in common with the baseline, so that there are no intervals."
        better, worse = (sum(holds) for holds in ([i.low > 0 for i in found], [i.high < 0 for i in found]))
        return (
            f"{better or 'None'} of {plural(len(self.variants), 'variant')} {'is' if better < 2 else 'are'} better "
            f"than the baseline, {worse or 'none'} worse, {len(found) - better - worse or 'none'} undecided, by 95 % "
            f"intervals of the difference in {self.measure} over {' or '.join(map(str, seeds))} seeds"
            f"{f'; {alone} without an interval' if alone else ''}."
        )

    def sentences(self) -> str:
        """The outcome in words."""
        if self.baseline is None:
            return "No run of the baseline is stored, so there is nothing to compare with."
        if self.best is None:
            return f"The baseline alone has been run: {self.measure} {self.shown(self.baseline)}."
        count, less = len(self.variants), " (less is better)" if self.lower else ""
        ours = f"{self.measure}{less} {self.shown(self.best)} against {self.shown(self.baseline)}"
        if self.best.half is not None or self.baseline.half is not None:
            ours += " (±: 95 % interval over seeds)"
        if self.difference is None:
            return f"{self.best.label} and the baseline have no seed in common: {ours}."
        ours += f", {self.versus_baseline()}"
        if self.best.by_seed.keys() != self.baseline.by_seed.keys():
            ours += f" over {plural(len(self.shared), 'seed')} that both have"
        if count == 1:
            said = f"{self.best.label} scores {'better' if self.better else 'no better'} than the baseline: {ours}"
        elif self.better:
            said = f"{self.best.label} is the best: {ours}"
        else:
            said = f"None of {count} variants scores better than the baseline; the nearest is {self.best.label}: {ours}"
        if self.papers_difference is not None:
            said += f" (the paper's for the same variant: {self.versus(self.papers_difference)})"
        if self.better and count > 1:
            scores = "scores" if self.better == 1 else "score"
            said += f". {self.better} of {count} variants {scores} better than the baseline"
        if len(self.shared) == 1:
            said += ". With one seed nothing says how much of this is chance"
        elif self.better and count > 1:
            said += ". Of several variants the best is better by chance alone more often than not"
        return f"{said}."


def outcomes(profile: str, stored: dict[str, list[RunResult]]) -> list[Outcome]:
    """The outcome of each experiment of a profile, from the runs that `with_results` finds."""
    return [_outcome(profile, experiment, runs) for experiment, runs in stored.items()]


def _outcome(profile: str, experiment: str, runs: list[RunResult]) -> Outcome:
    task, main = task_of(experiment), TASKS[runs[0].kind].main_score
    column = task.columns.get(main.name) or main
    lower = column.better == "lower"
    scored: dict[str, Scored] = {}
    for variant in dict.fromkeys(run.variant for run in runs):
        values = {run.seed: run.scores[main.name].value for run in runs if run.variant == variant}
        scored[variant] = Scored(task.label(variant), values, task.numbers().get(variant, {}).get(main.name))
    others = [one for variant, one in scored.items() if variant != BASELINE]
    return Outcome(
        experiment=experiment,
        title=task.title,
        measure=column.label,
        unit=runs[0].scores[main.name].unit,
        lower=lower,
        digits=enough((one.value for one in scored.values()), column.digits),
        variants=tuple(sorted(others, key=lambda one: _apart(one, scored.get(BASELINE)), reverse=not lower)),
        baseline=scored.get(BASELINE),
        seeds=tuple(sorted({run.seed for run in runs})),
        runs=len(runs),
        steps=max(run.curve[-1].steps for run in runs),
        data_name=data_title(runs[0].data_name),
        scale=scale(runs, profile),
        toy=bool(toy(runs[0])),
    )


def _apart(one: Scored, baseline: Scored | None) -> float:
    """The mean difference to the baseline of the same seeds; of all seeds where they share none."""
    if baseline is None:
        return one.value
    differences = _differences(one, baseline)
    return mean(differences.values()) if differences else one.value - baseline.value


def _differences(one: Scored, baseline: Scored | None) -> dict[int, float]:
    """To the baseline, by the seeds that both have."""
    base = baseline.by_seed if baseline else {}
    return {seed: value - base[seed] for seed, value in one.by_seed.items() if seed in base}


# ---- for a terminal


def summary_text(profile: str) -> str:
    """A line an experiment (best variant, its score and the baseline's with unit, runs), then counts of verdicts.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored at all, or metrics of another format.
    """
    stored = with_results(profile)
    found = outcomes(profile, stored)
    rows = [["experiment", "score", "baseline", "best variant", "", "runs"], *map(_line, found)]
    lines = [line.rstrip() for line in tabulate(rows, tablefmt="plain", disable_numparse=True).splitlines()]
    lines.append("↑ more is better, ↓ less is better; ±: 95 % interval of the mean over seeds")
    counts = verdict_counts(ledger())
    lines.append("the papers' claims: " + ", ".join(f"{verdict} {count}" for verdict, count in counts.items() if count))
    runs = (run for runs in stored.values() for run in runs)
    lines += [f"no longer the profile's settings: {sentence}" for sentence in outdated_among(profile, runs).values()]
    if any(outcome.toy for outcome in found):
        lines.append(TOY.strip("*"))
    return "\n".join(lines)


def _line(outcome: Outcome) -> list[str]:
    unit = f" {'↓' if outcome.lower else '↑'}" + (f" ({outcome.unit})" if outcome.unit else "")
    best = outcome.best.label if outcome.best else "nothing but the baseline"
    score = f"{outcome.shown(outcome.best)} ({outcome.versus_baseline()})" if outcome.best else ""
    runs = f"{plural(outcome.runs, 'run')}, {plural(len(outcome.seeds), 'seed')}"
    return [outcome.experiment, f"{outcome.measure}{unit}", outcome.shown(outcome.baseline), best, score, runs]
