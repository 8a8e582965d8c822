"""A profile's section ``tune``: the settings that are tried for each arm, and how an arm's choice is kept.

An arm is a variant of the experiment. Its settings are trained with seeds of their own and fall out by successive
halving (Jamieson & Talwalkar 2016): after each rung those with the lowest validation loss go on, in the same training.
The experiment's runs then have the arm's choice. `headdiv.companion.experiments.halving` trains and chooses.

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

What was chosen may also be written into the profile, under ``settings``, and ``tune`` be removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from headdiv.companion import paths
from headdiv.companion.commands import headdiv_command
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import read_json, short_hash
from headdiv.core.settings import Distinct, Place, Settings, check

Setting = dict[str, Any]  # by dotted key: "model.dropout", "train.learning_rate", "method.weight"


class Tune(Settings):
    """The section ``tune`` of an experiment."""

    seeds: Distinct[Annotated[int, Field(ge=0, lt=2**63)]] = Field(min_length=1, description="others than the runs'")
    rungs: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="epochs after which settings fall out")
    keep: list[Annotated[int, Field(ge=1)]] = Field(description="how many survive each rung; the last one: 1")
    seeds_per_rung: list[Annotated[int, Field(ge=1)]] | None = Field(
        None, description="how many of the seeds, the first ones, each rung trains; all where left out"
    )
    settings: list[Setting] = Field(default_factory=list, description="tried for every arm")
    arms: dict[str, list[Setting]] = Field(min_length=1, description="variants, each with settings of its own")

    @model_validator(mode="after")
    def _fewer_at_every_rung(self) -> Tune:
        if any(later <= earlier for earlier, later in pairwise(self.rungs)):
            raise ValueError(f"rungs: expected epochs that rise from rung to rung, found {self.rungs}")
        if len(self.keep) != len(self.rungs) or self.keep[-1] != 1 or sorted(self.keep, reverse=True) != self.keep:
            expected = "a number for each rung that does not rise, the last of them 1"
            raise ValueError(f"keep: expected {expected}, found {self.keep}")
        seeds = self.seeds_per_rung
        if seeds and (len(seeds) != len(self.rungs) or seeds[-1] != len(self.seeds) or sorted(seeds) != seeds):
            expected = f"a number for each rung that does not fall, the last of them the {len(self.seeds)} seeds"
            raise ValueError(f"seeds_per_rung: expected {expected}, found {seeds}")
        for arm, own in self.arms.items():
            if (count := len(self.settings) + len(own)) < self.keep[0]:
                raise ValueError(f"keep: {self.keep[0]} settings are to survive, and {arm} has {count}")
        return self

    def of_arm(self, arm: str) -> Iterator[tuple[Place, Setting]]:
        """The settings of an arm, shared ones first, each with the keys that lead to it in this section."""
        yield from ((("settings", number), setting) for number, setting in enumerate(self.settings))
        yield from ((("arms", arm, number), setting) for number, setting in enumerate(self.arms[arm]))

    @property
    def keys(self) -> set[str]:
        """Every key that is tuned, dotted."""
        return {key for arm in self.arms for _, setting in self.of_arm(arm) for key in setting}

    @property
    def rung_seeds(self) -> list[list[int]]:
        """The seeds that each rung trains."""
        return [self.seeds[:count] for count in self.seeds_per_rung or [len(self.seeds)] * len(self.rungs)]


class Origin(Settings):
    """Where a training was done: two of them may round differently."""

    commit: str | None
    processor: str


class Tried(Settings):
    """What came out for one setting of an arm.

    Attributes:
        setting: by dotted key.
        curves: validation loss after each epoch, by seed.
        losses: by rung, as far as it got: the lowest of a curve up to there, mean over seeds; None: it diverged.
        fell_out: epochs of the rung after which it was not trained further; None: it is the choice.
    """

    setting: Setting
    curves: dict[int, list[float]]
    losses: list[float | None]
    fell_out: int | None


class Choice(Settings):
    """The content of ``choice.json``: what was tried for an arm, and what was chosen.

    Attributes:
        key: that of the arm (`Arm.key`) it was made for.
        content: of the data it was made with, and of a method of one's own (`content_of`), which a plan of stored
            results need not have; None for choices that were made before it was kept.
        seconds: of training, in all.
        origins: of the trainings, each once; `provenance` is that of the last step.
    """

    format: int = 1
    experiment: str
    arm: str
    key: str
    content: str | None = None
    seeds: list[int]
    rungs: list[int]
    keep: list[int]
    tried: list[Tried]
    seconds: float
    origins: list[Origin]
    provenance: dict[str, Any]

    @property
    def chosen(self) -> Tried:
        """The setting that survived."""
        return next(tried for tried in self.tried if tried.fell_out is None)


@dataclass(frozen=True)
class Arm:
    """A variant that is tuned.

    Attributes:
        profile: its name or path, as commands take it.
        tune: the section of the profile.
        settings: that are tried, in order.
        configs: a run with each, of any seed.
    """

    profile: str
    tune: Tune
    settings: list[Setting]
    configs: list[RunConfig]

    @property
    def experiment(self) -> str:
        """``<paper>/<task>``."""
        return self.configs[0].experiment

    @property
    def variant(self) -> str:
        """Its name."""
        return self.configs[0].variant

    @property
    def choice_file(self) -> Path:
        """``results/<profile>/<paper>/<task>/tune/<variant>/choice.json``, beside its trainings."""
        return paths.results(self.profile) / self.experiment / "tune" / self.variant / "choice.json"

    def config(self, number: int, seed: int) -> RunConfig:
        """The run with a setting, counted from 0, and a seed."""
        return self.configs[number].model_copy(update={"seed": seed})

    @cached_property
    def key(self) -> str:
        """Changes with all settings that decide the choice."""
        hashes = [self.config(number, seed).hash for number in range(len(self.configs)) for seed in self.tune.seeds]
        per_rung = self.tune.seeds_per_rung
        return short_hash([self.tune.rungs, self.tune.keep, hashes] + ([per_rung] if per_rung else []))

    @property
    def choice(self) -> Choice | None:
        """What was chosen; None where it has not been tuned, or with other settings, rungs or seeds.

        Raises:
            DataError: its file is damaged.
        """
        if not self.choice_file.is_file():
            return None
        content = read_json(self.choice_file)
        if isinstance(content, dict) and content.get("key") != self.key:
            return None
        try:
            return check(Choice, content)
        except ConfigError as error:
            raise DataError(f"{self.choice_file}: {error}; remove it, and `{self.command}` makes it anew") from None

    @property
    def command(self) -> str:
        """What tunes it."""
        return headdiv_command("tune", self.experiment, "--profile", self.profile, "--arm", self.variant)

    @property
    def untuned(self) -> str:
        """The sentence about an arm without a choice."""
        why = "was made for other settings" if self.choice_file.is_file() else "is not there"
        return f"{self.experiment} {self.variant}: not tuned yet, {self.choice_file} {why}; `{self.command}` tunes it"

    def tuned(self, seed: int) -> RunConfig | None:
        """Its run with the setting that was chosen; None where there is none yet."""
        if (choice := self.choice) is None:
            return None
        return self.config([tried.fell_out for tried in choice.tried].index(None), seed)
