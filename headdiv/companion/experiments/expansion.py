"""A profile, expanded: the configuration of every run, with the profile's own settings, and every arm that is tuned.

A number stands on one of four levels: default < paper < profile < variant, see `merge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headdiv.companion.experiments.papers import VARIANT, VARIANT_IS, task_of
from headdiv.companion.experiments.profile_file import Experiment, Profile, read_profile
from headdiv.companion.experiments.tuning import Arm, Setting, Tune
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


class Expansion(NamedTuple):
    """The runs of a profile in its order, those that failed too, and its arms by experiment and variant."""

    runs: list[RunConfig]
    arms: dict[str, dict[str, Arm]]


def merge(name: str, paper: Level, profile: Level, variant: Level, source: Source) -> Level:
    """The three levels above the defaults as one: paper < profile < variant.

    Raises:
        ConfigError: for all variants the profile has another value than the paper's row ``name``, which would no longer
            be what its label says; where that is meant, the variant's own settings have to say so.
    """
    for key, given in profile.items():
        if key in paper and key not in variant and given.value != paper[key].value:
            what = f"found {given.value!r} for all variants, but {name!r} has {paper[key].value!r} in the paper's file"
            meant = f"expected the one that is meant in settings: {{{name}: {{{key}: …}}}}"
            raise config_error(given.place, f"{what}; {meant}", source)
    return paper | profile | variant


@lru_cache(maxsize=64)
def expanded(requested: str, path: Path, content: bytes | None, methods: tuple[type, ...]) -> Expansion:
    """The runs and arms of a profile.

    Args:
        requested: the profile, as commands take it.
        path: its file.
        content: what the file holds, since one that has changed is another one.
        methods: those there are, to which plugins add.

    Raises:
        ConfigError: the first mistake, with file, line and key.
    """
    profile, source = read_profile(path, content)
    expansion = Expansion([], {})
    for name, own in profile.experiments.items():
        experiment = _Experiment(name, own, profile, source)
        expansion.runs.extend(experiment.runs())
        if own.tune:
            expansion.arms[name] = experiment.arms(own.tune, requested)
    return expansion


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
        self.known = [*self.rows, *own.define]
        self.variants = own.variants or self.known
        self._check_names()

    def runs(self) -> Iterable[RunConfig]:
        """Every run, with the profile's own settings."""
        for variant in self.variants:
            config = self._config(variant, {})
            yield from (config.model_copy(update={"seed": seed}) for seed in self.profile.seeds)

    def arms(self, tune: Tune, requested: str) -> dict[str, Arm]:
        """Every variant that is tuned."""
        at = (*self.at, "tune")
        for position, seed in enumerate(tune.seeds):
            if seed in self.profile.seeds:
                what = f"{seed} is a seed of the runs too; expected others, since a choice flatters its own seeds"
                raise config_error((*at, "seeds", position), what, self.source)
        self._refuse_others(tune.arms, "tune", "arms")
        return {arm: self._arm(arm, tune, requested) for arm in tune.arms}

    def _arm(self, variant: str, tune: Tune, requested: str) -> Arm:
        settings, configs = [], []
        for place, setting in tune.of_arm(variant):
            at = (*self.at, "tune", *place)
            if "train.epochs" in setting:
                what = "cannot be tuned: every setting is judged within the same training, and rungs say how much of it"
                raise config_error((*at, "train.epochs"), what, self.source)
            settings.append(setting)
            configs.append(self._config(variant, self._settings(setting, at)))
        if (rung := tune.rungs[-1]) > (epochs := configs[0].train.epochs):
            what = f"{rung} is longer than the training of {variant}; expected at most train.epochs = {epochs}"
            raise config_error((*self.at, "tune", "rungs", len(tune.rungs) - 1), what, self.source)
        return Arm(requested, tune, settings, configs)

    def _config(self, variant: str, tried: Level) -> RunConfig:
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
        profile = level("model", own.model, (*at, "model")) | level("train", own.train, (*at, "train"))
        settings = self._settings(own.settings.get(variant, {}), (*at, "settings", variant)) | tried
        if row is None:
            place = (*at, "define", variant)
            method = self._with_shared_parts(variant, own.define[variant], place)
            return {}, profile | self._shared(method), level("method", method, place) | settings
        place = (*at, "variants", variant)
        method = self._with_shared_parts(variant, row.method, place)
        paper = level("model", row.model, place) | level("train", row.train, place) | level("method", method, place)
        return paper, profile | self._shared(method), settings

    def _shared(self, method: Mapping[str, Any]) -> Level:
        """What the profile says of all variants with this method."""
        name = str(method.get("name"))
        return level("method", self.own.methods.get(name, {}), (*self.at, "methods", name))

    def _with_shared_parts(self, variant: str, method: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
        """A combination's methods with what the profile says of each; any other method as it is."""
        if method.get("name") != "combined" or not isinstance(method.get("methods"), list):
            return method
        parts = []
        for part in method["methods"]:
            if isinstance(part, dict):
                own = level("method", part, place)
                levels = ({}, self._shared(part), own) if variant in self.own.define else (own, self._shared(part), {})
                merged = merge(variant, *levels, self.source)
                parts.append({key.removeprefix("method."): given.value for key, given in merged.items()})
            else:
                parts.append(part)
        return {**method, "methods": parts}

    def _settings(self, setting: Setting, at: Place) -> Level:
        """A variant's own settings, to which ``at`` leads."""
        for key in setting:
            section, _, name = str(key).partition(".")
            if section not in SECTIONS or not name:
                what = f"unknown key; expected one of {', '.join(SECTIONS)}, a dot, and a key of this section"
                raise config_error((*at, key), what, self.source)
            if key == "method.name":
                raise config_error((*at, key), "another method is another variant", self.source)
        return {key: Placed(value, (*at, key)) for key, value in setting.items()}

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

    def _check_names(self) -> None:
        """Raise where the profile names a variant, a method, an option or a seed that there is not."""
        own = self.own
        for variant in own.define:
            if not VARIANT.fullmatch(variant):
                raise config_error((*self.at, "define", variant), VARIANT_IS, self.source)
            if variant in self.rows:
                what = "is a variant of the paper's, whose options can be set under 'settings'; expected another name"
                raise config_error((*self.at, "define", variant), what, self.source)
        for position, variant in enumerate(self.variants):
            if variant not in self.known:
                what = f"unknown variant {variant!r}{nearest(variant, self.known)}"
                raise config_error((*self.at, "variants", position), what, self.source)
        for method, options in own.methods.items():
            if method not in METHODS:
                what = f"unknown method{nearest(method, list(METHODS))}"
                raise config_error((*self.at, "methods", method), what, self.source)
            for option in options:
                if option not in (fields := METHODS[method].Options.model_fields):
                    what = f"unknown key{nearest(option, list(fields))}"
                    raise config_error((*self.at, "methods", method, option), what, self.source)
        self._refuse_others(own.settings, "settings")
        self._refuse_others(own.failed, "failed")
        for variant, seeds in own.failed.items():
            if others := set(seeds) - set(self.profile.seeds):
                expected = f"expected one of {', '.join(map(str, self.profile.seeds))}"
                what = f"{min(others)} is no seed of the profile, {expected}"
                raise config_error((*self.at, "failed", variant), what, self.source)

    def _refuse_others(self, named: Iterable[str], *keys: str) -> None:
        """Raise where one of these, to which ``keys`` lead, is no variant of the experiment."""
        for variant in named:
            if variant not in self.variants:
                what = f"is no variant of the experiment{nearest(variant, self.variants)}"
                raise config_error((*self.at, *keys, variant), what, self.source)


def level(section: str, keys: Mapping[str, Any], at: Place) -> Level:
    """The keys of a section, to which ``at`` leads."""
    return {f"{section}.{key}": Placed(value, (*at, key)) for key, value in keys.items()}
