"""The ledger of claims for the report: how numbers are shown, and the pages of the runs that measured them."""

from __future__ import annotations

from headdiv.experiments.claims.files import RELATION
from headdiv.experiments.claims.ledger import Judgement, readable
from headdiv.report.formats import NONE
from headdiv.report.provenance_pages import RunPage


def run_pages(judgement: Judgement) -> list[RunPage]:
    """The pages of the runs that a claim was measured by; [] where it was not."""
    return [RunPage(judgement.profile, run) for run in judgement.runs] if judgement.profile else []


def shown(value: float | bool | None, unit: str) -> str:
    """A claim's number with its unit, or whether a relation holds."""
    if value is None:
        return NONE
    if unit == RELATION or isinstance(value, bool):
        return "holds" if value else "does not hold"
    return f"{readable(value)} {unit}".rstrip()
