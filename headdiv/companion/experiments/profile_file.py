"""The content of a profile's file: which experiments to run, and how.

A profile is a YAML file in ``config/`` (or anywhere). For each experiment ``<paper>/<task>`` it says data,
model, training and decoding; the variants come from the paper's own file, and more can be defined:

    experiments:
      deacon/translation:
        data: {name: toy}
        variants: [baseline, direct-8, direct-5]       # all of the paper's, where left out
        define:
          direct-5: {name: deacon, architecture: direct, m: 5}
        methods:
          deacon: {delta_p: 0.05}                      # options for every variant of that method

The section ``tune`` of an experiment says which settings are tried for which variants before its runs
(`headdiv.companion.experiments.tuning`).

``plugins`` lists Python files that add methods of one's own (`headdiv.register`) or figures
(`headdiv.companion.add_figure`), relative to the project's folder; every command, notebook and pipeline step that reads
the profile then knows them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from headdiv.companion.experiments.tuning import Setting, Tune
from headdiv.companion.tasks.run_config import MOST_THREADS
from headdiv.core.settings import Distinct, Settings, Source, check


class Experiment(Settings):
    """One paper's task in a profile; data, model, train and decode have the keys of the task's settings."""

    data: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    decode: dict[str, Any] = Field(default_factory=dict)
    variants: Annotated[Distinct[str], Field(min_length=1)] | None = Field(
        None, description="names; all of the paper's where left out"
    )
    define: dict[str, dict[str, Any]] = Field(default_factory=dict, description="further variants: their method")
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options by method, for all variants")
    settings: dict[str, Setting] = Field(
        default_factory=dict, description="by variant: dotted keys of model, train and method that it has of its own"
    )
    failed: dict[str, Distinct[int]] = Field(
        default_factory=dict, description="by variant: seeds whose training failed; they are no longer asked for"
    )
    tune: Tune | None = Field(None, description="settings that are tried for variants, and chosen, before their runs")
    pruning: int | None = Field(
        None, ge=1, description="mask each run's heads, the curve in so many steps, by the validation loss alone"
    )


class Profile(Settings):
    """A whole profile."""

    title: str
    seeds: Distinct[Annotated[int, Field(ge=0, lt=2**63)]] = Field(min_length=1)
    threads: int = Field(1, ge=1, le=MOST_THREADS, description="CPU threads of each run")
    plugins: list[str] = Field(default_factory=list, description="Python files that add methods and figures")
    notebooks: Distinct[Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]] = Field(
        default_factory=list, description="further companions: notebooks/<name>.ipynb, with the parameter profile"
    )
    gpu: int = Field(0, ge=0, description="GPUs that the pipeline asks a cluster for, for each run")
    ranks: int = Field(1, ge=1, le=64, description="processes by which the pipeline trains each run, on one machine")
    cautious: bool = Field(False, description="no verdict before all runs of an experiment are stored")
    experiments: dict[str, Experiment] = Field(min_length=1, description="by <paper>/<task>")

    @model_validator(mode="after")
    def _a_gpu_for_each_rank(self) -> Profile:
        if self.gpu and self.ranks > self.gpu:
            raise ValueError(f"ranks: {self.ranks} of them need a GPU each, and gpu is {self.gpu}")
        return self


@lru_cache(maxsize=64)
def read_profile(path: Path, content: bytes | None) -> tuple[Profile, Source]:
    """A profile's file; ``content``: what it holds, since a file that has changed is another one."""
    source = Source(path)
    return check(Profile, source.data, source=source), source
