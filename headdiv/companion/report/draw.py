"""All tables and figures of a paper, which the pipeline draws in one process."""

from __future__ import annotations

from headdiv.companion import paths
from headdiv.companion.experiments.outdated import refuse_outdated
from headdiv.companion.experiments.pipeline import make_plan
from headdiv.companion.report.figures import write_figure
from headdiv.companion.report.tables import write_tables
from headdiv.core.errors import DataError
from headdiv.core.settings import nearest


def draw_paper(profile: str, paper: str) -> None:
    """Write all tables and figures of a paper from a profile's stored results into ``results/<profile>``.

    Raises:
        DataError: the profile has no such paper, no stored results, or some that were made with other settings.
    """
    plan, folder = make_plan(profile), paths.results(profile)
    if paper not in plan.papers:
        raise DataError(f"{paper}: profile {profile} has no such paper{nearest(paper, list(plan.papers))}")
    for experiment in plan.runs:
        if experiment.startswith(f"{paper}/"):
            refuse_outdated(profile, experiment)
    for name in plan.tables_of(paper):
        wanted = name.replace("_", "/", 1)  # after the paper, whose name has none
        write_tables(profile, wanted, *(folder / "tables" / f"{name}.{end}" for end in ("csv", "md")))
    for name in plan.figures_of(paper):
        write_figure(name, profile, *(folder / "figures" / f"{name}.{end}" for end in ("png", "svg")))
