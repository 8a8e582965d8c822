"""A profile, expanded: the configuration of every run, with the profile's own settings, and every arm that is tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headdiv.companion.experiments.papers import VARIANT, VARIANT_IS, task_of
from headdiv.companion.experiments.profile_file import Experiment, Profile, read_profile
from headdiv.companion.experiments.tuning import FIXED, Arm, Setting, Tune, by_section
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import Place, Source, check, config_error, nearest, refuse_unread
from headdiv.methods import METHODS, check_method
from headdiv.nn.sizes import Sizes
from headdiv.training.config import TrainConfig


class Expansion(NamedTuple):
    """The runs of a profile in its order, those that failed too, and its arms by experiment and variant."""

    runs: list[RunConfig]
    arms: dict[str, dict[str, Arm]]


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
    found = Expansion([], {})
    for name, own in profile.experiments.items():
        experiment = _Experiment(name, own, profile, source)
        found.runs.extend(experiment.runs())
        if own.tune:
            found.arms[name] = experiment.arms(own.tune, requested)
    return found


class _Experiment:
    """One experiment of a profile, checked as far as that is not done run by run."""

    def __init__(self, name: str, own: Experiment, profile: Profile, source: Source) -> None:
        self.own, self.profile, self.source = own, profile, source
        self.at: Place = ("experiments", name)
        self.paper, _, self.task = name.partition("/")
        try:
            listed = task_of(name)
        except ConfigError as error:
            raise config_error(self.at, str(error), source) from None
        self.rows, self.kind = listed.variants, listed.kind or self.task
        self.spec = TASKS[self.kind]
        self.data = check(self.spec.Data, own.data, (*self.at, "data"), source)
        self.sizes = check(self.spec.Model, own.model, (*self.at, "model"), source)
        self.decode = check(self.spec.Decode, own.decode, (*self.at, "decode"), source)
        self.spec.check_data(self.data, (*self.at, "data"), source)
        self._refuse_unread(own.train, self.at)
        self._check_methods()
        self._check_defined()
        self.known = {variant: row.method for variant, row in self.rows.items()} | own.define
        self.variants = own.variants or list(self.known)
        self._refuse_others(own.settings, "settings")
        self._refuse_others(own.failed, "failed")
        for variant, seeds in own.failed.items():
            for position, seed in enumerate(seeds):
                if seed not in profile.seeds:
                    expected = f"expected one of {', '.join(map(str, profile.seeds))}"
                    at = (*self.at, "failed", variant, position)
                    raise config_error(at, f"{seed} is no seed of the profile, {expected}", source)

    def runs(self) -> Iterable[RunConfig]:
        """Every run, with the profile's own settings."""
        for position, variant in enumerate(self.variants):
            if variant not in self.known:
                what = f"unknown variant {variant!r}{nearest(variant, list(self.known))}"
                raise config_error((*self.at, "variants", position), what, self.source)
            place = (*self.at, "settings", variant) if variant in self.own.settings else self.at
            config = self._config(variant, {}, place)
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
        settings, configs, hashes = [], [], []
        for place, setting in tune.of_arm(variant):
            at = (*self.at, "tune", *place)
            for key in FIXED.keys() & setting.keys():
                raise config_error((*at, key), f"cannot be tuned: {FIXED[key]}", self.source)
            config = self._config(variant, setting, at)
            if (rung := tune.rungs[-1]) > (epochs := config.train.epochs):
                what = f"{rung} is longer than the training of {variant}; expected at most train.epochs = {epochs}"
                raise config_error((*self.at, "tune", "rungs", len(tune.rungs) - 1), what, self.source)
            if config.hash in hashes:
                what = f"trains the same as setting {hashes.index(config.hash) + 1} of {variant}; expected each once"
                raise config_error(at, what, self.source)
            settings.append(setting)
            configs.append(config)
            hashes.append(config.hash)
        return Arm(requested, tune, settings, configs)

    def _config(self, variant: str, setting: Setting, place: Place) -> RunConfig:
        """A variant's run, with ``setting``, to which ``place`` leads, over the profile's own keys."""
        row = self.rows.get(variant)
        tuned = by_section(self.own.settings.get(variant, {}) | setting, place, self.source)
        model = self.own.model | (row.model if row else {}) | tuned["model"]
        sizes = check(self.spec.Model, model, (*place, "model"), self.source)
        train = self.own.train
        if keys := (row.train if row else {}) | tuned["train"]:
            keys = train.model_dump(exclude_unset=True) | keys
            train = check(TrainConfig, keys, (*place, "train"), self.source)
            self._refuse_unread(train, place)
        self.spec.check_model(sizes, self.data, (*place, "model"), self.source)
        method = self._method(variant, self.known[variant], sizes)
        if tuned["method"]:
            method = check_method(method | tuned["method"], sizes, (*place, "method"), self.source)
        return RunConfig(
            paper=self.paper,
            task=self.task,
            kind=self.kind,
            variant=variant,
            data=self.data,
            model=sizes,
            method=method,
            train=train,
            decode=self.decode,
            threads=self.profile.threads,
            seed=self.profile.seeds[0],
        )

    def _method(self, variant: str, own: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
        """A method with all options: what the profile defines wins over ``methods``, which wins over the paper."""
        defined = variant in self.own.define
        options = _with_shared(own, self.own.methods, own_first=defined)
        if defined:
            return check_method(options, sizes, (*self.at, "define", variant), self.source)
        keys = ("methods", own["name"]) if self.own.methods.get(own["name"]) else ("variants", variant)
        return check_method(options, sizes, (*self.at, *keys), self.source)

    def _check_methods(self) -> None:
        """Raise unless ``methods`` has methods, and options that they have."""
        for method, options in self.own.methods.items():
            at = (*self.at, "methods", method)
            if method not in METHODS:
                raise config_error(at, f"unknown method{nearest(method, list(METHODS))}", self.source)
            if "name" in options:
                what = "options of a method stand here; another method is a variant under 'define'"
                raise config_error((*at, "name"), what, self.source)
            fields = METHODS[method].Options.model_fields
            if unknown := [option for option in options if option not in fields]:
                what = f"unknown key{nearest(unknown[0], list(fields))}"
                raise config_error((*at, unknown[0]), what, self.source)

    def _check_defined(self) -> None:
        """Raise where a definition has no variant's name, or a paper's, or one that no run is made of is wrong."""
        for variant, own in self.own.define.items():
            if not VARIANT.fullmatch(variant):
                raise config_error((*self.at, "define", variant), VARIANT_IS, self.source)
            if variant in self.rows:
                what = "is a variant of the paper's, whose options can be set under 'methods' or 'settings'; "
                raise config_error((*self.at, "define", variant), f"{what}expected another name", self.source)
            if self.own.variants and variant not in self.own.variants:
                self._method(variant, own, self.sizes)

    def _refuse_unread(self, train: TrainConfig, place: Place) -> None:
        what = f"it has no effect on the task {self.kind!r}"
        refuse_unread(train, self.spec.ignores, what, (*place, "train"), self.source)

    def _refuse_others(self, named: Iterable[str], *keys: str) -> None:
        """Raise where one of these, to which ``keys`` lead, is no variant of the experiment."""
        for one in named:
            if one not in self.variants:
                what = f"is no variant of the experiment{nearest(one, self.variants)}"
                raise config_error((*self.at, *keys, one), what, self.source)


def _with_shared(own: Mapping[str, Any], methods: dict[str, dict[str, Any]], own_first: bool) -> dict[str, Any]:
    """A method with the options that ``methods`` gives every variant of it; of a combination each method with its own.

    Where both name an option, ``own`` wins if it comes first.
    """
    shared = methods.get(str(own.get("name")), {})
    options = {**shared, **own} if own_first else {**own, **shared}
    if options.get("name") == "combined" and isinstance(options.get("methods"), list):
        options["methods"] = [
            _with_shared(part, methods, own_first) if isinstance(part, dict) else part for part in options["methods"]
        ]
    return options
