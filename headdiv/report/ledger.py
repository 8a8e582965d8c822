"""The ledger of claims for the report: each claim with the runs that it was measured by."""

from __future__ import annotations

from typing import Any

from headdiv.experiments.claims import ledger as claims
from headdiv.experiments.claims.arithmetic import show
from headdiv.experiments.claims.evidence import Results
from headdiv.experiments.claims.files import RELATION, Claim, claims_of, identifier
from headdiv.experiments.papers import load_paper
from headdiv.report.formats import NONE
from headdiv.report.provenance_pages import RunPage

MEASURED = (claims.REPRODUCED, claims.NOT_REPRODUCED, claims.NOT_RUN)  # the last where more seeds would have to decide
RELATIONS = {True: "holds", False: "does not hold"}


def ledger_rows() -> list[dict[str, Any]]:
    """The ledger of all papers, with ``runs``: those that a claim was measured by; [] where it was not."""
    rows = claims.ledger()
    told = []
    for paper in dict.fromkeys(row["paper"] for row in rows):
        results, own = Results(paper), [row for row in rows if row["paper"] == paper]
        for row, claim in zip(own, claims_of(paper), strict=True):
            measured = row["verdict"] in MEASURED and row["ours"] is not None
            told.append(row | {"runs": _measured_by(results, claim) if measured else []})
    return told


def _measured_by(results: Results, claim: Claim) -> list[RunPage]:
    """The runs of the rows that the claim's working names."""
    known = load_paper(results.paper).tasks
    names = [name.split(".") for name in (claim.working.names if claim.working else ()) if name.startswith("ours.")]
    rows = [
        (task, next(variant for variant in known[task].variants if identifier(variant) == row))
        for _, task, row, *_ in names
    ]
    cost = claim.kind == "cost"
    deciding = results.deciding(rows, cost, absolute=cost and claim.unit not in (RELATION, "times"))
    if deciding is None:
        return []
    return [RunPage(deciding.profile, run) for row in sorted(set(rows)) for run in deciding.runs[row]]


def shown(value: float | bool | None, unit: str) -> str:
    """A claim's number with its unit, or what is to be said of a relation."""
    if value is None:
        return NONE
    if unit == RELATION or isinstance(value, bool):
        return RELATIONS[bool(value)]
    number = f"{value:,}" if isinstance(value, int) else show(value)
    return f"{number} {unit}".rstrip()
