"""The tables and figures of a paper, drawn at once, as the pipeline does."""

from __future__ import annotations

from functools import partial

from headdiv.companion import paths
from headdiv.companion.experiments.checking import refuse_outdated
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report.figures import figures_of, write_figure
from headdiv.companion.report.tables import tables_of, write_table
from headdiv.core.errors import DataError, NotStoredError
from headdiv.core.settings import nearest


def draw_paper(profile: str, paper: str) -> None:
    """Write all tables and figures of a paper from a profile's stored results into ``results/<profile>``.

    Raises:
        DataError: the profile has no such paper, or stored results that were made with other settings.
        NotStoredError: some are made of results that are not stored; all others are written.
    """
    runs, folder = Runs(profile), paths.results(profile)
    papers = runs.papers()
    if paper not in papers:
        raise DataError(f"{paper}: profile {profile} has no such paper{nearest(paper, papers)}")
    for experiment in runs.experiments():
        if experiment.startswith(f"{paper}/"):
            refuse_outdated(profile, experiment)
    writers = []
    for table in tables_of(runs):
        if table.startswith(f"{paper}/"):
            files = (folder / "tables" / f"{table.replace('/', '_')}.{suffix}" for suffix in ("csv", "md"))
            writers.append(partial(write_table, profile, table, *files))
    for name, entry in figures_of(runs).items():
        if entry.paper == paper:
            writers.append(partial(write_figure, name, profile, folder / "figures" / f"{name}.svg"))
    errors = []
    for write in writers:
        try:
            write()
        except NotStoredError as error:
            errors.append(str(error))
    if errors:
        raise NotStoredError(f"{len(errors)} of {len(writers)} not drawn: {'; '.join(dict.fromkeys(errors))}")
