"""What the Snakefile asks about a profile: files, and what decides whether a run is still valid."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterable
from itertools import chain
from types import FrameType

from pydantic import Field

from headdiv.companion import paths
from headdiv.companion.experiments.papers import load_paper, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import IMPORTANCE, OUTPUTS
from headdiv.companion.report.figures import figures_of
from headdiv.companion.report.tables import tables_of
from headdiv.companion.tasks.run_config import run_name
from headdiv.core.errors import DataError
from headdiv.core.files import checksum, read_json, short_hash
from headdiv.core.settings import Settings

EXPLORER = "explore"  # the companion that is of no paper


class PipelineConfig(Settings):
    """Keys of Snakemake's ``--config``."""

    profile: str = Field("quick", description="its name, or the path of its file")
    gpu: int | None = Field(None, ge=0, description="GPUs for each run, in place of the profile's")


class Plan:
    """A checked profile, seen from the pipeline. Paths are relative to the project's folder.

    Attributes:
        profile: as it was asked for, a name or a path; ``name``: that of its results.
        threads: CPU threads of each run; ``gpu``: its GPUs.
        runs: by experiment, by variant and seed, what changes when a run's result must be made anew: a hash of its
            training, its search and its further test sets.
        tuned: by experiment, by variant that is tuned: what changes when its choice must be made anew.
        pruned: by experiment whose runs' heads are masked, the steps of the curve.
        tables: the files' names without their endings; so are `figures`.
        papers: by name, what changes with a paper's file, the profile's plugins and its caution.
        notebooks: the companions that are of no paper.

    Raises:
        ConfigError: the profile is wrong, or its results would lie among another profile's.
        DataError: files of one's own are not there.
    """

    def __init__(self, profile: str) -> None:
        paths.results(profile)
        runs = Runs(profile)
        self.profile, self.name, self.pruned = profile, runs.name, runs.pruned()
        self.threads, self.gpu = runs.profile.threads, runs.profile.gpu
        self.tables = [table.replace("/", "_") for table in tables_of(runs)]
        self.figures = list(figures_of(runs))
        self.notebooks = [EXPLORER, *runs.profile.notebooks]
        # What decides a choice decides the runs that have it, so that a plan is the same before and after tuning.
        self.tuned = {
            experiment: {
                name: short_hash([arm.key, *(run_name(config) for config in arm.configs)]) for name, arm in arms.items()
            }
            for experiment, arms in runs.arms.items()
        }
        self.runs: dict[str, dict[tuple[str, int], str]] = {name: {} for name in runs.experiments()}
        for config in runs.planned():
            arm = self.tuned.get(config.experiment, {}).get(config.variant)
            training = f"{arm} {config.seed}" if arm else run_name(config)
            content = [training, config.decode.model_dump(mode="json")]
            if further_tests := config.data.scored_besides():
                content.append(further_tests)
            self.runs[config.experiment][config.variant, config.seed] = short_hash(content)
        # What tables and figures show besides their paper's file and runs: plugins, and what caution leaves out.
        besides = [checksum(paths.home() / plugin) for plugin in runs.profile.plugins]
        if runs.profile.cautious:
            besides.append("cautious")
        self.papers = {}
        for name in runs.papers():
            content = load_paper(name).model_dump(mode="json")
            self.papers[name] = short_hash([content, *besides] if besides else content)

    def results(self, experiments: Iterable[str], *files: str) -> list[str]:
        """These files of every run of these experiments; metrics where none is named."""
        return [
            f"results/{self.name}/{experiment}/{variant}/seed{seed}/{file}"
            for experiment in experiments
            for variant, seed in self.runs[experiment]
            for file in files or ["metrics.json"]
        ]

    def choices(self, experiments: Iterable[str], variant: str | None = None) -> list[str]:
        """The choices of the arms of these experiments, or of the one of this variant, if it is tuned."""
        return [
            f"results/{self.name}/{experiment}/tune/{arm}/choice.json"
            for experiment in experiments
            for arm in self.tuned.get(experiment, {})
            if variant in (None, arm)
        ]

    def drawn_from(self, paper: str) -> list[str]:
        """The files of runs and of tuning that its tables and figures are made from."""
        files = []
        for experiment in self.runs:
            if experiment.startswith(f"{paper}/"):
                reads = ["metrics.json"]
                reads += [OUTPUTS] if task_of(experiment).compares_outputs else []
                reads += [IMPORTANCE] if experiment in self.pruned else []
                files += self.choices([experiment]) + self.results([experiment], *reads)
        return files

    def drawn(self, paper: str, table_endings: tuple[str, ...] = ("csv", "md")) -> list[str]:
        """The files of its tables and figures, whose names begin with the paper's."""
        folder = f"results/{self.name}"
        files = [f"{folder}/tables/{table}.{ending}" for ending in table_endings for table in self.tables]
        files += [f"{folder}/figures/{figure}.svg" for figure in self.figures]
        return [file for file in files if file.split("/")[-1].startswith(f"{paper}_")]

    def companion(self, name: str) -> list[str]:
        """What a companion shows: the explorer all runs, a paper's its tables and figures, any other those of all."""
        if name == EXPLORER:
            return self.results(self.runs)
        papers = [name] if name in self.papers else self.papers
        return list(chain.from_iterable(self.drawn(paper, ("md",)) for paper in papers))

    def parameters(self, **extra: str | int) -> str:
        """Parameters of a notebook, as JSON."""
        return json.dumps({"profile": self.profile, **extra})


def run_notebook(experiment: str) -> str:
    """The notebook that makes an experiment's runs: one for each kind of task of a paper."""
    paper, _, task = experiment.partition("/")
    return f"notebooks/runs/{paper}_{task_of(experiment).kind or task}.ipynb"


def notebook_code(notebook: str) -> str:
    """Hash of a notebook's code; its prose does not enter. Raises DataError: there is no such notebook."""
    path = paths.home() / notebook
    if not path.is_file():
        raise DataError(f"{notebook}: no such notebook; every experiment of a profile needs one")
    cells = read_json(path)["cells"]
    return short_hash(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"])


def end_jobs_with_snakemake() -> None:
    """Let what ends Snakemake, by Ctrl-C or SIGTERM, end the jobs that it has started, and their kernels.

    Snakemake would let them finish after SIGTERM, and would wait for them after a SIGINT that does not come from a
    terminal. What a run has learnt is in its checkpoints.
    """
    import psutil

    def end(number: int, frame: FrameType | None) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
