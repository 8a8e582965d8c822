"""The first page: what the stored runs of all profiles say, the strongest evidence first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from headdiv.companion import paths
from headdiv.companion.analysis import comparison
from headdiv.companion.experiments.catalogue import figures_of_paper
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.papers import BASELINE, load_paper, task_of
from headdiv.companion.experiments.results import with_results, work_of
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.contrasts import differences_of, scores_of
from headdiv.companion.report.formats import NONE, plural, signed
from headdiv.companion.report.groups import by_variant, judged_with
from headdiv.companion.report.outcomes import Outcome, outcomes
from headdiv.companion.report.site.markup import interactive, link, plain
from headdiv.companion.report.verdicts import BETTER, LOWEST_LOSS, NOT_JUDGED, verdict
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import HeaddivError

FOREST = "forest"  # the kind of a figure of many methods


@dataclass(frozen=True)
class Finding:
    """An experiment's outcome, and how much it says.

    Attributes:
        profile: name, or path of a YAML file, as it was given.
        work: parameters × tokens of the longest run.
    """

    profile: str
    outcome: Outcome
    work: float

    @property
    def name(self) -> str:
        """The profile's name."""
        return paths.profile_file(self.profile).stem

    @property
    def paper(self) -> str:
        """The paper that the experiment is of."""
        return self.outcome.experiment.partition("/")[0]

    @property
    def strength(self) -> tuple[bool, bool, bool, bool, float]:
        """Real text before toys, several seeds before one, a comparison of methods before others, then one by rules.

        Larger runs come first.
        """
        of_methods = self.outcome.judged and self.figure(self.forest).is_file()
        return not self.outcome.toy, len(self.outcome.seeds) > 1, of_methods, bool(self.outcome.rules), self.work

    def figure(self, name: str) -> Path:
        """A stored figure of the profile, which may not be there."""
        return paths.results(self.profile) / "figures" / f"{name}.svg"

    @property
    def forest(self) -> str:
        """The figure that shows every difference from the baseline with its interval."""
        forests = (
            name
            for name, figure in figures_of_paper(self.paper).items()
            if (figure.kind, figure.experiment) == (FOREST, self.outcome.experiment)
        )
        return next(forests, f"{self.paper}_{FOREST}")

    @property
    def lead(self) -> str | None:
        """The figure that shows the outcome best: the first of these that is stored."""
        of_experiment = slug(self.outcome.experiment)
        for name in (self.forest, of_experiment, f"{self.paper}_table3", f"{of_experiment}_curves"):
            if self.figure(name).is_file():
                return name
        return None

    def against_control(self) -> str:
        """Whether a method gains more than the experiment's control; "" where that is not stored or another does."""
        task, groups = task_of(self.outcome.experiment), by_variant(self.profile, self.outcome.experiment)
        if task.control not in groups:
            return ""
        others = [variant for variant in groups if variant not in (BASELINE, task.control)]
        pairs = [(variant, task.control) for variant in others]
        found = comparison.differences(scores_of(groups, LOWEST_LOSS), pairs).values()
        judged = {verdict(one, higher=False) for one in found} - {NOT_JUDGED}
        if not judged or BETTER in judged:
            return ""
        control = task.label(task.control)
        return f"No method is shown to gain more than {control[0].lower()}{control[1:]}, which changes no head."

    def by_loss(self) -> str:
        """Which variants reach a lower validation loss than the baseline, at any epoch; "" where none is judged."""
        task, groups = task_of(self.outcome.experiment), by_variant(self.profile, self.outcome.experiment)
        of_all = differences_of(judged_with(self.profile, self.outcome.experiment), LOWEST_LOSS)
        found = {variant: one for variant, one in of_all.items() if variant in groups}
        said = {variant: verdict(one, higher=False) for variant, one in found.items()}
        judged = sorted((one for one in said if said[one] != NOT_JUDGED), key=lambda one: found[one].mean)
        if not judged:
            return ""
        better = [one for one in judged if said[one] == BETTER]
        unit = TASKS[groups[BASELINE][0].kind].unit
        named = "; ".join(f"{task.label(one)} ({signed(found[one].mean, 3, found[one].half)})" for one in better)
        return (
            f"By the lowest validation loss of any epoch, in {unit}, {len(better) or 'none'} of "
            f"{plural(len(judged), 'variant')} {'is' if len(better) < 2 else 'are'} better than the baseline"
            f"{f': {named}' if named else ''}."
        )

    def answer(self) -> str:
        """What it says to the question whether a method is better than the baseline, in a word or two."""
        judged = [said for one in self.outcome.variants if (said := self.outcome.verdict(one)) != NOT_JUDGED]
        better = judged.count(BETTER)
        if not judged:
            return "Not known."
        return "Not shown." if not better else "Hardly." if 2 * better < len(judged) else "Yes."


def evidence_of(profile: str, stored: dict[str, list[RunResult]]) -> list[Finding]:
    """What a profile's stored runs say, by experiment."""
    work = {name: max(map(work_of, runs)) for name, runs in stored.items()}
    return [Finding(profile, outcome, work[outcome.experiment]) for outcome in outcomes(profile, stored)]


def all_evidence(own: list[Finding], profile: str) -> list[Finding]:
    """The outcomes of all profiles, the strongest first.

    A profile whose results cannot be read is left out: its own report says why.
    """
    found = list(own)
    for name in sorted(folder.name for folder in (paths.home() / "results").glob("*/")):
        if name != paths.profile_file(profile).stem:
            with contextlib.suppress(HeaddivError):
                found += evidence_of(name, with_results(name))
    return sorted(found, key=lambda one: one.strength, reverse=True)


def outcome_table(name: str, found: Iterable[Finding], own: bool) -> Markup:
    """A line an experiment. Variants are ranked where there are intervals; of single trainings only the range is shown.

    Args:
        name: the table's id.
        found: what is shown.
        own: whether the experiments have pages here, and the profile needs no name.
    """
    rows = []
    for one in found:
        outcome, at = one.outcome, f"papers/{one.paper}.html#{slug(one.outcome.experiment).replace('_', '-')}"
        ranked = not outcome.toy and outcome.best is not None
        row = {"Experiment": link(at, outcome.experiment) if own else outcome.experiment}
        row |= {} if own else {"Profile": one.name}
        row["Score"] = f"{outcome.measure} {'↓' if outcome.lower else '↑'}"
        row["Baseline"] = outcome.shown_baseline()
        best = f"best of {len(outcome.variants)}: " * (len(outcome.variants) > 1) + outcome.best.label if ranked else ""
        row["Variants"] = best or _range(outcome)
        row["Against the baseline"] = outcome.versus_baseline() if ranked else NONE
        row["In the paper"] = signed(outcome.papers_difference, outcome.digits) if ranked else NONE
        rows.append(row | {"Seeds": len(outcome.seeds), "Text": _text(outcome)})
    return interactive(pd.DataFrame(rows), name)


def _text(outcome: Outcome) -> str:
    return f"{outcome.data_name}: a toy" if outcome.toy else outcome.data_name


def _range(outcome: Outcome) -> str:
    """The lowest and the highest score of the variants, which are not ranked."""
    values = sorted(one.value for one in outcome.variants)
    ends = dict.fromkeys(f"{value:,.{outcome.digits}f}" for value in (*values[:1], *values[-1:]))
    return f"{len(values)}: {' to '.join(ends)}" if values else NONE


def verdict_table(ledger: list[claims.Judgement], paper: str | None = None) -> Markup:
    """How many claims have each verdict, by paper; a number leads to these claims."""
    counts = {name: of for name, of in claims.summary(ledger).items() if paper in (None, name)}
    rows = []
    for one in claims.VERDICTS:
        cells = [
            link(f"{'../' if paper else ''}claims.html?{name}&{one}", of[one]) if of[one] else "0"
            for name, of in counts.items()
        ]
        if any(of[one] for of in counts.values()):
            rows.append([one, *cells])
    heads = [load_paper(name).short or name for name in counts]
    return plain(pd.DataFrame(rows, columns=["Verdict", *heads]))


def slug(table: str) -> str:
    """The anchor of a table: ``deacon/qa`` is ``deacon_qa``."""
    return table.replace("/", "_")
