"""Profiles: the configuration of every run of the experiments that a YAML file lists.

`headdiv.companion.experiments.profile_file` says what such a file holds. A number stands on one of four levels,
default < paper < profile < variant: see `merge`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from headdiv.companion import paths
from headdiv.companion.experiments.papers import BASELINE, VARIANT, VARIANT_IS, task_of
from headdiv.companion.experiments.plugins import load_plugin
from headdiv.companion.experiments.profile_file import Experiment, Profile, Setting, read_profile
from headdiv.companion.experiments.run_result import RunIdentity
from headdiv.companion.experiments.tuning import Arm
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import Place, Source, check, config_error, nearest, refuse_unread
from headdiv.methods import METHODS, check_method

SECTIONS = ("model", "train", "method")  # of a run's configuration: those whose keys have levels


class Placed(NamedTuple):
    """A value, and the keys that lead to it in the profile's file."""

    value: Any
    place: Place


Level = dict[str, Placed]  # by dotted key: "model.dropout", "train.epochs", "method.m"


def level(section: str, keys: Mapping[str, Any], at: Place) -> Level:
    """The keys of a section, to which ``at`` leads."""
    return {f"{section}.{key}": Placed(value, (*at, key)) for key, value in keys.items()}


def merge(variant: str, paper: Level, profile: Level, own: Level, source: Source) -> Level:
    """The three levels above the defaults as one: paper < profile < variant.

    Raises:
        ConfigError: for all variants the profile has another value than the paper's row of this variant, which would no
            longer be what its label says; where that is meant, the variant's own settings have to say so.
    """
    for key, given in profile.items():
        if key in paper and key not in own and given.value != paper[key].value:
            what = (
                f"found {given.value!r} for all variants, but {variant!r} has {paper[key].value!r} in the paper's file"
            )
            meant = f"expected the one that is meant in settings: {{{variant}: {{{key}: …}}}}"
            raise config_error(given.place, f"{what}; {meant}", source)
    return paper | profile | own


@lru_cache(maxsize=64)
def _expanded(
    requested: str, path: Path, content: bytes | None, methods: tuple[type, ...]
) -> tuple[list[RunConfig], dict[str, dict[str, Arm]]]:
    """The runs of a profile in its order, those that failed too, and its arms by experiment and variant.

    Args:
        requested: the profile, as commands take it.
        path: its file.
        content: what the file holds, since one that has changed is another one.
        methods: those there are, to which plugins add.

    Raises:
        ConfigError: the first mistake, with file, line and key.
    """
    profile, source = read_profile(path, content)
    runs: list[RunConfig] = []
    arms: dict[str, dict[str, Arm]] = {}
    for name, own in profile.experiments.items():
        experiment = _Experiment(name, own, profile, source)
        for variant in experiment.variants:
            config = experiment.config(variant, {})
            runs += [config.model_copy(update={"seed": seed}) for seed in profile.seeds]
        if own.tune:
            arms[name] = {variant: experiment.arm(variant, requested) for variant in own.tune.arms}
    return runs, arms


class _Experiment:
    """One experiment of a profile; what all of its runs share is checked when it is made."""

    def __init__(self, name: str, own: Experiment, profile: Profile, source: Source) -> None:
        self.name, self.own, self.profile, self.source = name, own, profile, source
        self.at: Place = ("experiments", name)
        try:
            listed = task_of(name)
        except ConfigError as error:
            raise config_error(self.at, str(error), source) from None
        self.rows, self.kind = listed.variants, listed.kind or name.partition("/")[2]
        self.task = TASKS[self.kind]
        self.data = check(self.task.Data, own.data, (*self.at, "data"), source)
        self.decode = check(self.task.Decode, own.decode, (*self.at, "decode"), source)
        self.task.check_data(self.data, (*self.at, "data"), source)
        self.variants = own.variants or [*self.rows, *own.define]
        self._check_names()

    def _check_names(self) -> None:
        """Raise where the profile names a variant, a method or a seed that there is not."""
        own, known = self.own, [*self.rows, *self.own.define]
        for variant in own.define:
            if not VARIANT.fullmatch(variant):
                raise self._error(VARIANT_IS, "define", variant)
            if variant in self.rows:
                what = "is a variant of the paper's, whose options can be set under 'settings'; expected another name"
                raise self._error(what, "define", variant)
        for position, variant in enumerate(self.variants):
            if variant not in known:
                raise self._error(f"unknown variant {variant!r}{nearest(variant, known)}", "variants", position)
        for method in own.methods:
            if method not in METHODS:
                raise self._error(f"unknown method{nearest(method, list(METHODS))}", "methods", method)
        places = [("settings", variant) for variant in own.settings] + [("failed", variant) for variant in own.failed]
        places += [("tune", "arms", variant) for variant in own.tune.arms] if own.tune else []
        for place in places:
            if place[-1] not in self.variants:
                raise self._error(f"is no variant of the experiment{nearest(place[-1], self.variants)}", *place)
        for position, seed in enumerate(own.tune.seeds if own.tune else ()):
            if seed in self.profile.seeds:
                what = f"{seed} is a seed of the runs too; expected others, since a choice flatters its own seeds"
                raise self._error(what, "tune", "seeds", position)

    def arm(self, variant: str, requested: str) -> Arm:
        """A variant that is tuned, with the run of each of its settings."""
        tune = self.own.tune
        settings = [(("settings", number), setting) for number, setting in enumerate(tune.settings)]
        settings += [(("arms", variant, number), setting) for number, setting in enumerate(tune.arms[variant])]
        configs = []
        for place, setting in settings:
            if "train.epochs" in setting:
                what = "cannot be tuned: every setting is judged within the same training, and rungs say how much of it"
                raise self._error(what, "tune", *place, "train.epochs")
            configs.append(self.config(variant, self._settings(setting, "tune", *place)))
        if (rung := tune.rungs[-1]) > (epochs := configs[0].train.epochs):
            what = f"{rung} is longer than the training of {variant}; expected at most train.epochs = {epochs}"
            raise self._error(what, "tune", "rungs", len(tune.rungs) - 1)
        return Arm(requested, tune, [setting for _, setting in settings], configs)

    def config(self, variant: str, tried: Level) -> RunConfig:
        """A variant's run of the first seed; a setting that is ``tried`` wins over the variant's own."""
        merged = merge(variant, *self._levels(variant, tried), self.source)
        sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for dotted, given in merged.items():
            section, _, key = dotted.partition(".")
            sections[section][key] = given.value
        try:
            model = check(self.task.Model, sections["model"], ("model",))
            self.task.check_model(model, self.data, ("model",))
            train = check(TrainConfig, sections["train"], ("train",))
            refuse_unread(train, self.task.ignores, f"it has no effect on the task {self.kind!r}", ("train",), None)
            method = check_method(sections["method"], model, ("method",))
        except ConfigError as error:
            raise config_error(self._place(variant, merged, error.at), error.what, self.source) from None
        paper, _, task = self.name.partition("/")
        return RunConfig(
            paper=paper,
            task=task,
            kind=self.kind,
            variant=variant,
            data=self.data,
            model=model,
            method=method,
            train=train,
            decode=self.decode,
            threads=self.profile.threads,
            seed=self.profile.seeds[0],
        )

    def _levels(self, variant: str, tried: Level) -> tuple[Level, Level, Level]:
        """What the paper, the profile and the variant say, in this order; ``tried`` wins over the variant's own."""
        own, at, row = self.own, self.at, self.rows.get(variant)
        place = (*at, "variants" if row else "define", variant)
        method = dict(row.method if row else own.define[variant])
        if method.get("name") == "combined" and isinstance(parts := method.get("methods"), list):
            method["methods"] = [self._with_shared(variant, p, place) if isinstance(p, dict) else p for p in parts]
        profile = level("model", own.model, (*at, "model")) | level("train", own.train, (*at, "train"))
        profile |= self._shared(method)
        settings = self._settings(own.settings.get(variant, {}), "settings", variant) | tried
        if row is None:
            return {}, profile, level("method", method, place) | settings
        return (
            level("model", row.model, place) | level("train", row.train, place) | level("method", method, place),
            profile,
            settings,
        )

    def _shared(self, method: Mapping[str, Any]) -> Level:
        """What the profile says of all variants with this method."""
        name = str(method.get("name"))
        return level("method", self.own.methods.get(name, {}), (*self.at, "methods", name))

    def _with_shared(self, variant: str, part: Mapping[str, Any], place: Place) -> dict[str, Any]:
        """A part of a combination with what the profile says of its method."""
        own = level("method", part, place)
        levels = ({}, self._shared(part), own) if variant in self.own.define else (own, self._shared(part), {})
        merged = merge(variant, *levels, self.source)
        return {key.removeprefix("method."): given.value for key, given in merged.items()}

    def _settings(self, setting: Setting, *keys: str | int) -> Level:
        """A variant's own settings, to which ``keys`` lead."""
        for key in setting:
            section, _, name = str(key).partition(".")
            if section not in SECTIONS or not name:
                what = f"unknown key; expected one of {', '.join(SECTIONS)}, a dot, and a key of this section"
                raise self._error(what, *keys, key)
        return {key: Placed(value, (*self.at, *keys, key)) for key, value in setting.items()}

    def _place(self, variant: str, merged: Level, at: Place) -> Place:
        """The keys that lead to a mistake at ``at`` in a run's configuration: to where its value is given, if it is."""
        if len(at) < 2:
            return self.at
        section, key, *rest = at
        if given := merged.get(f"{section}.{key}"):
            return (*given.place, *rest)
        if section == "method":
            return (*self.at, "define" if variant in self.own.define else "variants", variant, key, *rest)
        return (*self.at, *at)

    def _error(self, what: str, *keys: str | int) -> ConfigError:
        return config_error((*self.at, *keys), what, self.source)


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
        path, content = paths.profile_file(profile), None
        with contextlib.suppress(OSError):  # of which `Source` makes a sentence
            content = path.read_bytes()
        self.name = path.stem
        self.profile, source = read_profile(path, content)
        for position, plugin in enumerate(self.profile.plugins):
            try:
                load_plugin(paths.home() / plugin)
            except ConfigError as error:
                raise config_error(("plugins", position), str(error), source) from None
        self._every, self.arms = _expanded(profile, path, content, tuple(METHODS.values()))

    def planned(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """The runs with these names in the profile's order, with its own settings even where their arm is tuned.

        Raises:
            ConfigError: the profile has no such run, or all of them failed.
        """
        named = self._named(experiment, variant, seed)
        planned = [
            config for config in named if config.seed not in self.failed(config.experiment).get(config.variant, ())
        ]
        if not planned:
            which = ", ".join(dict.fromkeys(f"{config.experiment} {config.variant}" for config in named))
            raise ConfigError(f"profile {self.name}: 'failed' lists every run of {which} that is asked for")
        return planned

    def _named(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """The same with those that failed."""
        configs = self._every
        for key, value in (("experiment", experiment), ("variant", variant), ("seed", seed)):
            if value is not None:
                known = list(dict.fromkeys(str(getattr(config, key)) for config in configs))
                if str(value) not in known:
                    raise ConfigError(f"profile {self.name}: no {key} {str(value)!r}{nearest(str(value), known)}")
                configs = [config for config in configs if getattr(config, key) == value]
        return configs

    def of(self, experiment: str | None = None, variant: str | None = None, seed: int | None = None) -> list[RunConfig]:
        """The runs with these names, any where one is left out; arms have their choice.

        Raises:
            ConfigError: the profile has no such run, or all of them failed, or are of arms that are not tuned yet.
        """
        return self._tuned(self.planned(experiment, variant, seed))

    def _tuned(self, configs: list[RunConfig]) -> list[RunConfig]:
        tuned = [run for config in configs if (run := self._with_choice(config))]
        if not tuned:
            raise ConfigError(self.arm_of(configs[0]).untuned)
        return tuned

    def _with_choice(self, config: RunConfig) -> RunConfig | None:
        arm = self.arm_of(config)
        return arm.tuned(config.seed) if arm else config

    def all(self) -> list[RunConfig]:
        """Every run that there is, in the profile's order: arms with their choice; those not tuned yet have none."""
        return [run for config in self.planned() if (run := self._with_choice(config))]

    def one(self, experiment: str, variant: str, seed: int) -> RunConfig:
        """One run, with any seed, one that failed too; the profile's tables and figures show its own seeds alone.

        Raises:
            ConfigError: the profile has no such experiment or variant, its arm is not tuned yet, or the seed is none.
        """
        config = self._tuned(self._named(experiment, variant))[0]
        if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
            raise ConfigError(f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}")
        return config.model_copy(update={"seed": int(seed)})

    def arm_of(self, run: RunConfig | RunIdentity) -> Arm | None:
        """The arm that a run is of; None where its variant is not tuned."""
        return self.arms.get(run.experiment, {}).get(run.variant)

    def arms_of(self, experiment: str, variant: str | None = None) -> list[Arm]:
        """An experiment's arms, or the one of this variant.

        Raises:
            ConfigError: the profile has no such experiment, or it tunes nothing, or not this variant.
        """
        self._named(experiment)
        arms = self.arms.get(experiment, {})
        if not arms:
            raise ConfigError(
                f"profile {self.name}: {experiment} has no section 'tune', expected one where arms are tuned"
            )
        if variant not in (None, *arms):
            raise ConfigError(f"profile {self.name}: {experiment} has no arm {variant!r}{nearest(variant, list(arms))}")
        return [arm for name, arm in arms.items() if variant in (None, name)]

    def free_keys(self, experiment: str) -> set[str]:
        """The dotted keys in which variants of an experiment may differ: settings of their own, and what is tuned."""
        own = self.profile.experiments[experiment]
        keys = {key for setting in own.settings.values() for key in setting} | (own.tune.keys if own.tune else set())
        return keys | {f"train.{key}" for row in task_of(experiment).variants.values() for key in row.train}

    def pruned(self) -> dict[str, int]:
        """The experiments whose runs' heads are masked, with the steps of the curve."""
        return {name: own.pruning for name, own in self.profile.experiments.items() if own.pruning}

    def failed(self, experiment: str) -> dict[str, list[int]]:
        """The seeds of an experiment's variants whose training failed."""
        return self.profile.experiments[experiment].failed

    def experiments(self) -> list[str]:
        """<paper>/<task> of each experiment."""
        return list(self.profile.experiments)

    def papers(self) -> list[str]:
        """The papers that the runs are of, by name."""
        return sorted({experiment.partition("/")[0] for experiment in self.profile.experiments})

    def of_one_model(self, experiment: str) -> list[str]:
        """The experiments of the same paper that have the same runs of the baseline: their rows are judged together.

        One with rules of its own (`PaperTask.primary`) stands alone, and so does one that is tuned.
        """
        paper = experiment.partition("/")[0]
        baselines: dict[str, list[str]] = {}
        for config in self._every:
            if config.variant == BASELINE and config.paper == paper and config.experiment not in self.arms:
                baselines.setdefault(config.experiment, []).append(config.hash)
        alike = [
            name
            for name, hashes in baselines.items()
            if hashes == baselines.get(experiment) and not task_of(name).primary
        ]
        return alike if experiment in alike else [experiment]


def run_config(profile: str, experiment: str, variant: str, seed: int) -> RunConfig:
    """The configuration of one run of a profile, e.g. ("quick", "deacon/translation", "direct-8", 1).

    Raises:
        ConfigError: the profile has no such run, or its results would lie among another profile's.
    """
    paths.results(profile)
    return Runs(profile).one(experiment, variant, seed)
