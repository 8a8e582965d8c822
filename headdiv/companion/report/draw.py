"""All tables and figures of a paper, which the pipeline draws in one process."""

from __future__ import annotations

from functools import partial

from headdiv.companion import paths
from headdiv.companion.experiments.outdated import refuse_outdated
from headdiv.companion.experiments.pipeline import of_paper, products
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report.figures import write_figure
from headdiv.companion.report.table_files import write_table
from headdiv.core.errors import DataError, NotStoredError
from headdiv.core.settings import nearest


def draw_paper(profile: str, paper: str) -> None:
    """Write all tables and figures of a paper from a profile's stored results into ``results/<profile>``.

    Raises:
        DataError: the profile has no such paper, or stored results that were made with other settings.
        NotStoredError: some are made of results that are not stored; all others are written.
    """
    known, folder = Runs(profile), paths.results(profile)
    if paper not in (papers := known.papers()):
        raise DataError(f"{paper}: profile {profile} has no such paper{nearest(paper, papers)}")
    for experiment in known.experiments():
        if experiment.startswith(f"{paper}/"):
            refuse_outdated(profile, experiment)
    writers = []
    tables, figures = (of_paper(made, paper) for made in products(known))
    for name in tables:
        files = (folder / "tables" / f"{name}.{end}" for end in ("csv", "md"))
        writers.append(partial(write_table, profile, name.replace("_", "/", 1), *files))  # a paper's name has no _
    for name in figures:
        writers.append(partial(write_figure, name, profile, folder / "figures" / f"{name}.svg"))
    lacking = []
    for write in writers:
        try:
            write()
        except NotStoredError as error:
            lacking.append(str(error))
    if lacking:
        raise NotStoredError(f"{len(lacking)} of {len(writers)} not drawn: {'; '.join(dict.fromkeys(lacking))}")
