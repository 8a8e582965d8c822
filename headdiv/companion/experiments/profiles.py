"""Profiles: the configuration of every run of the experiments that a YAML file lists.

`headdiv.companion.experiments.profile_file` says what such a file holds.
"""

from __future__ import annotations

import contextlib
from numbers import Integral

from headdiv.companion import paths
from headdiv.companion.experiments.expansion import expanded
from headdiv.companion.experiments.papers import BASELINE, task_of
from headdiv.companion.experiments.plugins import load_plugin
from headdiv.companion.experiments.profile_file import read_profile
from headdiv.companion.experiments.run_result import RunIdentity
from headdiv.companion.experiments.tuning import Arm
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import config_error, nearest
from headdiv.methods import METHODS


class Runs:
    """The checked runs of a profile: a name (``quick``: config/quick.yaml) or the path of a YAML file.

    A process reads a profile's file once, and again when its content has changed.

    Attributes:
        name: of the profile's results.
        profile: the file's content.
        arms: by experiment, by variant: those that are tuned.

    Raises:
        ConfigError: the first mistake, with file, line and key.
    """

    def __init__(self, profile: str) -> None:
        path = paths.profile_file(profile)
        content = None
        with contextlib.suppress(OSError):  # of which `Source` makes a sentence
            content = path.read_bytes()
        self.name = path.stem
        self.profile, source = read_profile(path, content)
        for position, plugin in enumerate(self.profile.plugins):
            try:
                load_plugin(paths.home() / plugin)
            except ConfigError as error:
                raise config_error(("plugins", position), str(error), source) from None
        self._every, self.arms = expanded(profile, path, content, tuple(METHODS.values()))

    def planned(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """The runs with these names in the profile's order, with its own settings even where their arm is tuned.

        Raises:
            ConfigError: the profile has no such run, or all of them failed.
        """
        found = self._named(experiment, variant, seed)
        if left := [config for config in found if not self._has_failed(config)]:
            return left
        which = ", ".join(dict.fromkeys(f"{config.experiment} {config.variant}" for config in found))
        raise ConfigError(f"profile {self.name}: 'failed' lists every run of {which} that is asked for")

    def _named(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """The same with those that failed."""
        found = list(self._every)
        for key, value in (("experiment", experiment), ("variant", variant), ("seed", seed)):
            known = [str(one) for one in dict.fromkeys(getattr(config, key) for config in found)]
            if value is not None and str(value) not in known:
                raise ConfigError(f"profile {self.name}: no {key} {str(value)!r}{nearest(str(value), known)}")
            found = [config for config in found if value is None or getattr(config, key) == value]
        return found

    def _has_failed(self, config: RunConfig) -> bool:
        return config.seed in self.failed(config.experiment).get(config.variant, ())

    def all(self) -> list[RunConfig]:
        """Every run that there is, in the profile's order: arms with their choice; those not tuned yet have none."""
        left = (config for config in self._every if not self._has_failed(config))
        return [found for config in left if (found := self._tuned(config))]

    def _tuned(self, config: RunConfig) -> RunConfig | None:
        arm = self.arm_of(config)
        return arm.tuned(config.seed) if arm else config

    def arm_of(self, run: RunConfig | RunIdentity) -> Arm | None:
        """The arm that a run is of; None where its variant is not tuned."""
        return self.arms.get(run.experiment, {}).get(run.variant)

    def free_keys(self, experiment: str) -> set[str]:
        """The dotted keys in which variants of an experiment may differ: settings of their own, and what is tuned."""
        own = self.profile.experiments[experiment]
        keys = {key for setting in own.settings.values() for key in setting} | (own.tune.keys if own.tune else set())
        return keys | {f"train.{key}" for row in task_of(experiment).variants.values() for key in row.train}

    def pruned(self) -> dict[str, int]:
        """The experiments whose runs' heads are masked, with the steps of the curve."""
        return {name: one.pruning for name, one in self.profile.experiments.items() if one.pruning}

    def failed(self, experiment: str) -> dict[str, list[int]]:
        """The seeds of an experiment's variants whose training failed."""
        return self.profile.experiments[experiment].failed

    def experiments(self) -> list[str]:
        """<paper>/<task> of each experiment."""
        return list(self.profile.experiments)

    def of_one_model(self, experiment: str) -> list[str]:
        """The experiments of the same paper that have the same runs of the baseline: their rows are judged together.

        One with rules of its own (`PaperTask.primary`) stands alone.
        """
        paper, base = experiment.partition("/")[0], dict[str, list[str]]()
        for one in self._every:
            if one.variant == BASELINE and one.paper == paper and one.experiment not in self.arms:
                base.setdefault(one.experiment, []).append(one.hash)
        alike = [name for name, of in base.items() if of == base.get(experiment) and not task_of(name).primary]
        return alike if experiment in alike else [experiment]

    def papers(self) -> list[str]:
        """The papers that the runs are of, by name."""
        return sorted({config.paper for config in self.planned()})

    def of(self, experiment: str | None = None, variant: str | None = None, seed: int | None = None) -> list[RunConfig]:
        """The runs with these names, any where one is left out.

        Raises:
            ConfigError: the profile has no such run, or all of them failed, or are of arms that are not tuned yet.
        """
        return self._of_tuned(self.planned(experiment, variant, seed))

    def _of_tuned(self, found: list[RunConfig]) -> list[RunConfig]:
        tuned = [config for one in found if (config := self._tuned(one))]
        if not tuned and (arm := self.arm_of(found[0])):
            raise ConfigError(arm.untuned)
        return tuned

    def one(self, experiment: str, variant: str, seed: int) -> RunConfig:
        """One run, with any seed, one that failed too; the profile's tables and figures show its own seeds alone.

        Raises:
            ConfigError: the profile has no such experiment or variant, its arm is not tuned yet, or the seed is none.
        """
        config = self._of_tuned(self._named(experiment, variant))[0]
        if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
            raise ConfigError(f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}")
        return config.model_copy(update={"seed": int(seed)})


def run_config(profile: str, experiment: str, variant: str, seed: int) -> RunConfig:
    """The configuration of one run of a profile, e.g. ("quick", "deacon/translation", "direct-8", 1).

    Raises:
        ConfigError: the profile has no such run, or its results would lie among another profile's.
    """
    paths.results(profile)
    return Runs(profile).one(experiment, variant, seed)
