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
from headdiv.companion.experiments.profile_file import Profile, Setting, read_profile
from headdiv.companion.experiments.tuning import Arm
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError, NotStoredError
from headdiv.core.settings import Place, Source, check, config_error, nearest, refuse_unread
from headdiv.methods import METHODS, check_method

SECTIONS = ("model", "train", "method")  # of a run's configuration: those whose keys have levels
ONE_METHOD = "cannot be set, since a variant is one method's; expected a variant of its own under 'define'"


class Placed(NamedTuple):
    """A value, and the keys that lead to it in the profile's file."""

    value: Any
    place: Place


Level = dict[str, Placed]  # by dotted key: "model.dropout", "train.epochs", "method.m"


def level(section: str, keys: Mapping[str, Any], place: Place) -> Level:
    """The keys of a section, to which ``place`` leads."""
    return {f"{section}.{key}": Placed(value, (*place, key)) for key, value in keys.items()}


def merge(variant: str, paper: Level, profile: Level, settings: Level, source: Source) -> Level:
    """The three levels above the defaults as one: paper < profile < the variant's own settings.

    Raises:
        ConfigError: for all variants the profile has another value than the paper's row of this variant, which would no
            longer be what its label says; where that is meant, the variant's own settings have to say so.
    """
    for key, placed in profile.items():
        if key in paper and key not in settings and placed.value != paper[key].value:
            problem = (
                f"found {placed.value!r} for all variants, but {variant!r} has {paper[key].value!r} in the paper's file"
            )
            remedy = f"expected the one that is meant in settings: {{{variant}: {{{key}: …}}}}"
            raise config_error(placed.place, f"{problem}; {remedy}", source)
    return paper | profile | settings


class _Experiment:
    """One experiment of a profile; what all of its runs share is checked when it is made."""

    def __init__(self, name: str, profile: Profile, source: Source) -> None:
        self.name, self.profile, self.source = name, profile, source
        self.section, self.place = profile.experiments[name], ("experiments", name)
        try:
            paper_task = task_of(name)
        except ConfigError as error:
            raise config_error(self.place, str(error), source) from None
        self.rows, self.kind = paper_task.variants, paper_task.kind or name.partition("/")[2]
        self.task = TASKS[self.kind]
        self.data = check(self.task.Data, self.section.data, (*self.place, "data"), source)
        self.decode = check(self.task.Decode, self.section.decode, (*self.place, "decode"), source)
        self.task.check_data(self.data, (*self.place, "data"), source)
        self.variants = self.section.variants or [*self.rows, *self.section.define]
        self._check_names()

    def _check_names(self) -> None:
        """Raise where a variant or method does not exist or is renamed, or tuning has a seed of the runs."""
        section, tune = self.section, self.section.tune
        for variant in section.define:
            if not VARIANT.fullmatch(variant):
                raise self._error(VARIANT_IS, "define", variant)
            if variant in self.rows:
                problem = (
                    "is a variant of the paper's, whose options can be set under 'settings'; expected another name"
                )
                raise self._error(problem, "define", variant)
            if variant not in self.variants:
                raise self._error("is not listed under 'variants', so it would never be trained", "define", variant)
        variants = [*self.rows, *section.define]
        names = [("variant", variant, variants, ("variants", number)) for number, variant in enumerate(self.variants)]
        names += [("method", method, list(METHODS), ("methods", method)) for method in section.methods]
        for key in ("settings", "failed"):
            names += [("variant", variant, self.variants, (key, variant)) for variant in getattr(section, key)]
        names += [("variant", name, self.variants, ("unlearned", n)) for n, name in enumerate(section.unlearned)]
        if tune:
            names += [("variant", variant, self.variants, ("tune", "arms", variant)) for variant in tune.arms]
        for noun, name, choices, keys in names:
            if name not in choices:
                raise self._error(f"unknown {noun} {name!r}{nearest(name, choices)}", *keys)
        for method, options in section.methods.items():
            if "name" in options:
                raise self._error(ONE_METHOD, "methods", method, "name")
        for number, seed in enumerate(tune.seeds if tune else ()):
            if seed in self.profile.seeds:
                problem = f"{seed} is a seed of the runs too; expected others, since a choice flatters its own seeds"
                raise self._error(problem, "tune", "seeds", number)

    def configs(self) -> list[RunConfig]:
        """The run of each variant, of the first seed. Raises ConfigError: no variant has a method of 'methods'."""
        configs = [self.config(variant, {}) for variant in self.variants]
        used = {part["name"] for config in configs for part in (config.method, *config.method.get("methods", ()))}
        for method in self.section.methods:
            if method not in used:
                raise self._error("no variant has this method, so that its options have no effect", "methods", method)
        return configs

    def arm(self, variant: str, requested: str) -> Arm:
        """A variant that is tuned, with the run of each of its settings."""
        tune = self.section.tune
        places = [("settings", number) for number in range(len(tune.settings))]
        places += [("arms", variant, number) for number in range(len(tune.arms[variant]))]
        settings = [*tune.settings, *tune.arms[variant]]
        configs = []
        for place, setting in zip(places, settings, strict=True):
            if "train.epochs" in setting:
                problem = (
                    "cannot be tuned: every setting is judged within the same training, and rungs say how much of it"
                )
                raise self._error(problem, "tune", *place, "train.epochs")
            configs.append(self.config(variant, self._settings_level(setting, "tune", *place)))
        rung, epochs = tune.rungs[-1], configs[0].train.epochs
        if rung > epochs:
            problem = f"{rung} is longer than the training of {variant}; expected at most train.epochs = {epochs}"
            raise self._error(problem, "tune", "rungs", len(tune.rungs) - 1)
        return Arm(requested, tune, settings, configs)

    def config(self, variant: str, tried: Level) -> RunConfig:
        """A variant's run of the first seed; a setting that is ``tried`` wins over the variant's own."""
        merged = self._merged(variant, tried)
        sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for dotted, placed in merged.items():
            section, _, key = dotted.partition(".")
            sections[section][key] = placed.value
        try:
            model = check(self.task.Model, sections["model"], ("model",))
            self.task.check_model(model, self.data)
            train = check(TrainConfig, sections["train"], ("train",))
            refuse_unread(train, self.task.ignores, f"it has no effect on the task {self.kind!r}", ("train",), None)
            method = check_method(sections["method"], model, ("method",))
        except ConfigError as error:
            raise config_error(self._place_of(variant, merged, error.keys), error.reason, self.source) from None
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

    def _merged(self, variant: str, tried: Level) -> Level:
        """The values of a variant above the defaults; those that are ``tried`` win over its own settings."""
        section, row = self.section, self.rows.get(variant)
        profile = level("model", section.model, (*self.place, "model"))
        profile |= level("train", section.train, (*self.place, "train"))
        settings = self._settings_level(section.settings.get(variant, {}), "settings", variant) | tried
        if row is None:
            return profile | self._method_level(variant, section.define[variant], settings)
        place = (*self.place, "variants", variant)
        paper = level("model", row.model, place) | level("train", row.train, place)
        return merge(variant, paper, profile, self._method_level(variant, row.method, settings), self.source)

    def _method_level(self, variant: str, method: Mapping[str, Any], settings: Level) -> Level:
        """A variant's method, or a part of its combination, with what the profile says of it, and the settings."""
        name, of_paper = str(method.get("name")), variant in self.rows
        parts = method.get("methods")
        if isinstance(parts, list):
            method = {**method, "methods": [self._merged_part(variant, part) for part in parts]}
        stated = level("method", method, (*self.place, "variants" if of_paper else "define", variant))
        profile = level("method", self.section.methods.get(name, {}), (*self.place, "methods", name))
        if of_paper:
            return merge(variant, stated, profile, settings, self.source)
        return profile | stated | settings

    def _merged_part(self, variant: str, part: Any) -> Any:
        """A part of a combination; what is not a mapping is left for the method's options to refuse."""
        if not isinstance(part, Mapping):
            return part
        merged = self._method_level(variant, part, {})
        return {key.removeprefix("method."): placed.value for key, placed in merged.items()}

    def _settings_level(self, setting: Setting, *keys: str | int) -> Level:
        """A variant's own settings, to which ``keys`` lead."""
        for key in setting:
            section, _, name = str(key).partition(".")
            if section not in SECTIONS or not name:
                problem = f"unknown key; expected one of {', '.join(SECTIONS)}, a dot, and a key of this section"
                raise self._error(problem, *keys, key)
            if key == "method.name":
                raise self._error(ONE_METHOD, *keys, key)
        return {key: Placed(value, (*self.place, *keys, key)) for key, value in setting.items()}

    def _place_of(self, variant: str, merged: Level, mistake: Place) -> Place:
        """The keys in the profile's file of a mistaken value, or of the section that it would belong to."""
        if len(mistake) < 2:
            return self.place
        section, key, *rest = mistake
        if placed := merged.get(f"{section}.{key}"):
            return (*placed.place, *rest)
        if section == "method":
            return (*self.place, "define" if variant in self.section.define else "variants", variant, key, *rest)
        return (*self.place, *mistake)

    def _error(self, problem: str, *keys: str | int) -> ConfigError:
        return config_error((*self.place, *keys), problem, self.source)


@lru_cache(maxsize=64)
def _expanded(
    requested: str, path: Path, content: bytes | None, methods: tuple[type, ...]
) -> tuple[list[RunConfig], dict[str, dict[str, Arm]]]:
    """The runs of a profile in its order, those that failed too, and its arms by experiment and variant.

    They change with the content of the profile's file, and with the methods that there are, to which plugins add.
    """
    profile, source = read_profile(path, content)
    runs: list[RunConfig] = []
    arms: dict[str, dict[str, Arm]] = {}
    for name, section in profile.experiments.items():
        experiment = _Experiment(name, profile, source)
        for config in experiment.configs():
            runs += [config.model_copy(update={"seed": seed}) for seed in profile.seeds]
        if section.tune:
            arms[name] = {variant: experiment.arm(variant, requested) for variant in section.tune.arms}
    return runs, arms


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
        for number, plugin in enumerate(self.profile.plugins):
            try:
                load_plugin(paths.home() / plugin)
            except ConfigError as error:
                raise config_error(("plugins", number), str(error), source) from None
        self._configs, self.arms = _expanded(profile, path, content, tuple(METHODS.values()))

    def planned(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """The runs with these names in the profile's order, with its own settings even where their arm is tuned.

        Raises:
            ConfigError: the profile has no such run, or all of them failed.
        """
        configs = self._named(experiment, variant, seed)
        planned = [c for c in configs if c.seed not in self.failed(c.experiment).get(c.variant, ())]
        if not planned:
            which = ", ".join(dict.fromkeys(f"{config.experiment} {config.variant}" for config in configs))
            raise ConfigError(f"profile {self.name}: 'failed' lists every run of {which} that is asked for")
        return planned

    def configs(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """Those that are `planned`, as they are trained: with their arm's choice, without arms that are not tuned yet.

        Raises:
            ConfigError: as of `planned`.
            NotStoredError: all of them are of arms that are not tuned yet.
        """
        planned = self.planned(experiment, variant, seed)
        with_choice = (self._with_choice(config) for config in planned)
        configs = [config for config in with_choice if config]
        if not configs:
            raise NotStoredError(self.arms[planned[0].experiment][planned[0].variant].untuned)
        return configs

    def with_choices(self, experiment: str) -> list[RunConfig]:
        """An experiment's runs that are `planned`, with their arm's choice where there is one. Errors are the same."""
        return [self._with_choice(config) or config for config in self.planned(experiment)]

    def config(self, experiment: str, variant: str, seed: int) -> RunConfig:
        """One run, with any seed, even one that failed; the profile's tables and figures show its own seeds alone.

        Raises:
            ConfigError: there is no such experiment or variant, or the seed is out of range.
            NotStoredError: its arm is not tuned yet.
        """
        config = self._with_choice(self._named(experiment, variant)[0])
        if config is None:
            raise NotStoredError(self.arms[experiment][variant].untuned)
        if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
            raise ConfigError(f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}")
        return config.model_copy(update={"seed": int(seed)})

    def _named(self, experiment: str | None, variant: str | None = None, seed: int | None = None) -> list[RunConfig]:
        """The runs with these names; one that is left out may be any. Raises ConfigError: the profile has none."""
        configs = self._configs
        for key, value in (("experiment", experiment), ("variant", variant), ("seed", seed)):
            if value is not None:
                names = list(dict.fromkeys(str(getattr(config, key)) for config in configs))
                if str(value) not in names:
                    raise ConfigError(f"profile {self.name}: no {key} {str(value)!r}{nearest(str(value), names)}")
                configs = [config for config in configs if str(getattr(config, key)) == str(value)]
        return configs

    def _with_choice(self, config: RunConfig) -> RunConfig | None:
        """A run with its arm's choice; None where that is not tuned yet, the run itself where it has no arm."""
        arm = self.arms.get(config.experiment, {}).get(config.variant)
        return arm.tuned(config.seed) if arm else config

    def arms_of(self, experiment: str, variant: str | None = None) -> list[Arm]:
        """An experiment's arms, or the one of this variant. Raises ConfigError: the profile has none of these names."""
        self._named(experiment, variant)
        arms = [arm for name, arm in self.arms.get(experiment, {}).items() if variant in (None, name)]
        if not arms:
            name = f"{experiment} {variant}" if variant else experiment
            raise ConfigError(f"profile {self.name}: {name} has no arm in a section 'tune', expected one")
        return arms

    def free_keys(self, experiment: str) -> set[str]:
        """The dotted keys in which variants of an experiment may differ: settings of their own, and what is tuned."""
        section = self.profile.experiments[experiment]
        keys = {key for setting in section.settings.values() for key in setting}
        if section.tune:
            keys |= section.tune.keys
        return keys | {f"train.{key}" for row in task_of(experiment).variants.values() for key in row.train}

    def pruned(self) -> dict[str, int]:
        """The experiments whose runs' heads are masked, with the steps of the curve."""
        return {name: section.pruning for name, section in self.profile.experiments.items() if section.pruning}

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
        for config in self._configs:
            if config.variant == BASELINE and config.paper == paper and config.experiment not in self.arms:
                baselines.setdefault(config.experiment, []).append(config.hash)
        hashes = baselines.get(experiment)
        experiments = [name for name in baselines if baselines[name] == hashes and not task_of(name).primary]
        return experiments if experiment in experiments else [experiment]


def run_config(profile: str, experiment: str, variant: str, seed: int) -> RunConfig:
    """The configuration of one run of a profile, e.g. ("quick", "deacon/translation", "direct-8", 1).

    Raises:
        ConfigError: the profile has no such run, or its results would lie among another profile's.
    """
    paths.results(profile)
    return Runs(profile).config(experiment, variant, seed)
