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

``tune`` says which settings are tried for which variants, the arms, before the experiment's runs. They fall out by
successive halving (Jamieson & Talwalkar 2016): after each rung those with the lowest validation loss go on, in the same
training. The runs then have their arm's choice; it may also be written under ``settings``, and ``tune`` be removed.

        tune:
          seeds: [101, 102]
          rungs: [5, 12, 30]                     # epochs
          keep: [3, 2, 1]                        # settings that survive each rung
          settings:                              # of every arm
            - {model.dropout: 0.2}
            - {model.dropout: 0.3, train.learning_rate: 2.0e-3}
          arms:
            baseline: [{model.dropout: 0.1}]     # and one arm's own
            dis-o: [{model.dropout: 0.2, method.weight: 3.0}]

``plugins`` lists Python files that add methods of one's own (`headdiv.register`) or figures
(`headdiv.companion.add_figure`), relative to the project's folder; every command, notebook and pipeline step that reads
the profile then knows them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from headdiv.core.settings import Distinct, Settings, Source, check

Setting = dict[str, Any]  # by dotted key: "model.dropout", "train.learning_rate", "method.weight"
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1)]


class Tune(Settings):
    """The section ``tune`` of an experiment."""

    seeds: Distinct[Seed] = Field(min_length=1, description="others than the runs'")
    rungs: list[Count] = Field(min_length=1, description="epochs after which settings fall out")
    keep: list[Count] = Field(description="how many survive each rung; the last one: 1")
    seeds_per_rung: list[Count] | None = Field(
        None, description="how many of the seeds, the first ones, each rung trains; all where left out"
    )
    settings: list[Setting] = Field(default_factory=list, description="tried for every arm")
    arms: dict[str, list[Setting]] = Field(min_length=1, description="variants, each with settings of its own")

    @model_validator(mode="after")
    def _fewer_at_every_rung(self) -> Tune:
        seeds = self.seeds_per_rung
        if seeds and (len(seeds) != len(self.rungs) or seeds[-1] != len(self.seeds) or sorted(seeds) != seeds):
            expected = f"a number for each rung that does not fall, the last of them the {len(self.seeds)} seeds"
            raise ValueError(f"seeds_per_rung: expected {expected}, found {seeds}")
        rungs = list(zip(self.rungs, map(len, self.rung_seeds), strict=True))
        if self.rungs != sorted(self.rungs) or any(later == earlier for earlier, later in pairwise(rungs)):
            expected = "epochs that rise from rung to rung, or stay where seeds are added"
            raise ValueError(f"rungs: expected {expected}, found {self.rungs}")
        if len(self.keep) != len(self.rungs) or self.keep[-1] != 1 or sorted(self.keep, reverse=True) != self.keep:
            expected = "a number for each rung that does not rise, the last of them 1"
            raise ValueError(f"keep: expected {expected}, found {self.keep}")
        for arm, settings in self.arms.items():
            if (count := len(self.settings) + len(settings)) < self.keep[0]:
                raise ValueError(f"keep: {self.keep[0]} settings are to survive, and {arm} has {count}")
        return self

    @property
    def keys(self) -> set[str]:
        """Every key that is tuned, dotted."""
        return {key for settings in (self.settings, *self.arms.values()) for setting in settings for key in setting}

    @property
    def rung_seeds(self) -> list[list[int]]:
        """The seeds that each rung trains."""
        return [self.seeds[:count] for count in self.seeds_per_rung or [len(self.seeds)] * len(self.rungs)]


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
    unlearned: Distinct[str] = Field(
        default_factory=list, description="variants known to learn nothing, as the results say; `check` passes them"
    )
    tune: Tune | None = Field(None, description="settings that are tried for variants, and chosen, before their runs")
    pruning: int | None = Field(
        None, ge=1, description="mask each run's heads, the curve in so many steps, by the validation loss alone"
    )


class Profile(Settings):
    """A whole profile."""

    title: str
    seeds: Distinct[Seed] = Field(min_length=1)
    threads: int = Field(1, ge=1, description="CPU threads of each run")
    plugins: list[str] = Field(default_factory=list, description="Python files that add methods and figures")
    notebooks: Distinct[Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]] = Field(
        default_factory=list, description="further companions: notebooks/<name>.ipynb, with the parameter profile"
    )
    gpu: int = Field(0, ge=0, description="GPUs that the pipeline asks a cluster for, for each run")
    cautious: bool = Field(False, description="no verdict before all runs of an experiment are stored")
    experiments: dict[str, Experiment] = Field(min_length=1, description="by <paper>/<task>")


@lru_cache(maxsize=64)
def read_profile(path: Path, content: bytes | None) -> tuple[Profile, Source]:
    """A profile's file; ``content``: what it holds, since a file that has changed is another one."""
    source = Source(path)
    return check(Profile, source.data, source=source), source
