"""What the Snakefile asks about a profile: files, parameters, and what decides whether a run is still valid."""

from __future__ import annotations

import json
from pathlib import Path

from headdiv.core import paths
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, short_hash
from headdiv.data.cache import prepared_folder
from headdiv.experiments.catalogue import figure_entry, figures_of, tables_of
from headdiv.experiments.profiles import Runs
from headdiv.experiments.results import metrics_path
from headdiv.experiments.running import run_name
from headdiv.tasks.config import RunConfig


class Plan:
    """A checked profile, seen from the pipeline. Paths are relative to the project's folder.

    Raises:
        ConfigError: the profile is wrong.
        DataError: an experiment has no notebook.
    """

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.runs = Runs(profile)
        self.name = self.runs.name
        self.threads = self.runs.profile.threads
        # Of files without their endings, each with the experiment whose runs it needs.
        self.tables = {table.replace("/", "_"): e for table, e in tables_of(self.runs.experiments()).items()}
        runs = ((f"{config.paper}/{config.task}", config.variant) for config in self.runs.all())
        self.figures = {name: drawing.experiment for name, drawing in figures_of(runs).items()}
        self.papers = sorted({config.paper for config in self.runs.all()})
        for experiment in self.runs.experiments():
            self.notebook_code(f"notebooks/runs/{experiment.replace('/', '_')}.ipynb")

    def metrics(self, experiment: str) -> list[str]:
        """Metrics files of all runs of an experiment."""
        files = (metrics_path(self.profile, experiment, c.variant, c.seed) for c in self.runs.of(experiment))
        return [str(file.relative_to(paths.home())) for file in files]

    def figure_metrics(self, figure: str) -> list[str]:
        """Metrics files of all runs that a figure shows: of its experiment, and of those beside it that there are."""
        told = figure_entry(figure)
        there = [name for name in (told.experiment, *told.beside) if name in self.runs.experiments()]
        return [path for experiment in there for path in self.metrics(experiment)]

    def corpus(self, experiment: str) -> str:
        """The file that says that an experiment's corpus is prepared."""
        folder = prepared_folder(self.runs.of(experiment)[0].data)
        return f"{folder.relative_to(paths.home())}/corpus.json"

    def experiment_of_corpus(self, corpus: str) -> str:
        """An experiment that uses the prepared corpus of this folder name."""
        return next(e for e in self.runs.experiments() if Path(self.corpus(e)).parent.name == corpus)

    def parameters(self, **more: str | int) -> str:
        """Parameters of a notebook, as JSON."""
        return json.dumps({"profile": self.profile, **more})

    def decisive(self, experiment: str, variant: str, seed: int) -> str:
        """Changes when a run's result must be made anew: hash of training and of the search."""
        config: RunConfig = self.runs.one(experiment, variant, seed)
        return short_hash([run_name(config), config.decode.model_dump(mode="json")])

    def notebook_code(self, notebook: str) -> str:
        """Hash of a notebook's code; its prose does not enter."""
        path = paths.home() / notebook
        if not path.is_file():
            raise DataError(f"{notebook}: no such notebook; every experiment of a profile needs one")
        cells = read_json(path)["cells"]
        return short_hash(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"])
