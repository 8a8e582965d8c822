"""The tables and figures of a profile, and those of a paper drawn at once, as the pipeline does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from headdiv.companion import paths
from headdiv.companion.experiments.checking import refuse_outdated
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import IMPORTANCE, OUTPUTS
from headdiv.companion.report.figures import figures_of, write_figure
from headdiv.companion.report.table_data import OF_PRUNING
from headdiv.companion.report.tables import tables_of, write_table
from headdiv.core.errors import DataError, NotStoredError
from headdiv.core.settings import nearest


@dataclass(frozen=True)
class Product:
    """A table or a figure, and what it needs."""

    paper: str
    experiments: list[str]  # whose runs
    reads: tuple[str, ...] = ()  # files of each run besides its metrics: the test set's outputs, importance of heads
    caption: str = ""  # of a figure


def products(runs: Runs) -> tuple[dict[str, Product], dict[str, Product]]:
    """The tables and the figures of a profile, by the files' name; its data need not be there."""
    tables, figures = {}, {}
    for table, experiment in tables_of(runs).items():
        reads = (OUTPUTS,) if table == experiment and task_of(experiment).compares_outputs else ()
        reads += (IMPORTANCE,) if table.endswith(OF_PRUNING) else ()
        paper = experiment.partition("/")[0]
        tables[table.replace("/", "_")] = Product(paper, runs.of_one_model(experiment), reads)
    for name, entry in figures_of(runs).items():
        experiments: dict[str, None] = {}  # each once, in order
        for experiment in entry.experiments_in(runs):
            experiments |= dict.fromkeys(runs.of_one_model(experiment))
        figures[name] = Product(entry.paper, list(experiments), entry.reads, entry.caption)
    return tables, figures


def of_paper(by_name: Mapping[str, Product], paper: str) -> dict[str, Product]:
    """The tables or figures of a paper, by name."""
    return {name: product for name, product in by_name.items() if product.paper == paper}


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
    tables, figures = (of_paper(by_name, paper) for by_name in products(runs))
    for name in tables:
        files = (folder / "tables" / f"{name}.{suffix}" for suffix in ("csv", "md"))
        writers.append(partial(write_table, profile, name.replace("_", "/", 1), *files))  # a paper's name has no _
    for name in figures:
        writers.append(partial(write_figure, name, profile, folder / "figures" / f"{name}.svg"))
    errors = []
    for write in writers:
        try:
            write()
        except NotStoredError as error:
            errors.append(str(error))
    if errors:
        raise NotStoredError(f"{len(errors)} of {len(writers)} not drawn: {'; '.join(dict.fromkeys(errors))}")
