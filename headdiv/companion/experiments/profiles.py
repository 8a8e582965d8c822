"""Profiles: which experiments to run and how, expanded into the configuration of every single run.

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

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from headdiv.companion import paths
from headdiv.companion.experiments.papers import VARIANT, VARIANT_IS, task_of
from headdiv.companion.experiments.run_result import RunIdentity
from headdiv.companion.experiments.tuning import FIXED, Arm, Setting, Tune, by_section
from headdiv.companion.tasks.run_config import MOST_THREADS, RunConfig
from headdiv.companion.tasks.specs import SPECS
from headdiv.core.errors import ConfigError
from headdiv.core.registry import load_plugin
from headdiv.core.settings import Distinct, Place, Settings, Source, check, config_error, nearest, refuse_unread
from headdiv.methods.options import OPTIONS, check_method
from headdiv.nn.sizes import Sizes
from headdiv.training.config import TrainConfig


class Experiment(Settings):
    """One paper's task in a profile; data, model and decode have the keys of the task."""

    data: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict)
    train: TrainConfig = TrainConfig()
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
    cautious: bool = Field(
        False, description="no verdict before all runs of an experiment are stored; no times of a busy machine"
    )
    experiments: dict[str, Experiment] = Field(min_length=1, description="by <paper>/<task>")

    @model_validator(mode="after")
    def _a_gpu_for_each_rank(self) -> Profile:
        if self.gpu and self.ranks > self.gpu:
            raise ValueError(f"ranks: {self.ranks} of them need a GPU each, and gpu is {self.gpu}")
        return self


@lru_cache(maxsize=64)
def _read(path: Path, content: bytes | None) -> tuple[Profile, Source]:
    """A profile's file; ``content``: what it holds, since a file that has changed is another one."""
    source = Source(path)
    return check(Profile, source.data, source=source), source


@lru_cache(maxsize=64)
def _expanded(requested: str, path: Path, content: bytes | None, methods: tuple[type[Settings], ...]) -> _Expansion:
    """The runs of a profile's file; ``methods``: the options there are, to which plugins add."""
    return _Expansion(requested, *_read(path, content))


class _Expansion:
    """Every run of a profile, with the profile's own settings, and every arm, by experiment and variant.

    Raises:
        ConfigError: the first mistake, with file, line and key.
    """

    def __init__(self, requested: str, profile: Profile, source: Source) -> None:
        self._requested, self.profile = requested, profile
        self.runs: list[RunConfig] = []
        self.arms: dict[str, dict[str, Arm]] = {}
        for name, experiment in profile.experiments.items():
            self._expand(name, experiment, source)

    def _expand(self, name: str, experiment: Experiment, source: Source) -> None:
        at = ("experiments", name)
        paper, _, task = name.partition("/")
        try:
            listed = task_of(name)
            rows, kind = listed.variants, listed.kind or task
        except ConfigError as error:
            raise config_error(at, str(error), source) from None
        if kind not in SPECS:
            raise config_error(at, f"unknown task {kind!r}{nearest(kind, list(SPECS))}", source)
        spec = SPECS[kind]
        data = check(spec.Data, experiment.data, (*at, "data"), source)
        sizes = check(spec.Model, experiment.model, (*at, "model"), source)
        decode = check(spec.Decode, experiment.decode, (*at, "decode"), source)
        spec.check_data(data, (*at, "data"), source)
        refuse_unread(experiment.train, spec.ignores, f"it has no effect on the task {kind!r}", (*at, "train"), source)
        for method, options in experiment.methods.items():
            if method not in OPTIONS:
                raise config_error((*at, "methods", method), f"unknown method{nearest(method, list(OPTIONS))}", source)
            if "name" in options:
                what = "options of a method stand here; another method is a variant under 'define'"
                raise config_error((*at, "methods", method, "name"), what, source)
            fields = OPTIONS[method].model_fields
            if unknown := [option for option in options if option not in fields]:
                what = f"unknown key{nearest(unknown[0], list(fields))}"
                raise config_error((*at, "methods", method, unknown[0]), what, source)
        for variant, own in experiment.define.items():
            if not VARIANT.fullmatch(variant):
                raise config_error((*at, "define", variant), VARIANT_IS, source)
            if experiment.variants and variant not in experiment.variants:
                self._method(variant, own, experiment, sizes, at, source)
        known = {variant: row.method for variant, row in rows.items()} | experiment.define

        def config_of(variant: str, setting: Mapping[str, Any], place: Place) -> RunConfig:
            """A variant's run, with ``setting``, to which ``place`` leads, over the profile's own keys."""
            row = rows[variant] if variant in rows and variant not in experiment.define else None
            setting = experiment.settings.get(variant, {}) | dict(setting)
            tuned, train = by_section(setting, place, source), experiment.train
            model = check(
                spec.Model, experiment.model | (row.model if row else {}) | tuned["model"], (*place, "model"), source
            )
            if own := (row.train if row else {}) | tuned["train"]:
                keys = train.model_dump(exclude_unset=True) | own
                train = check(TrainConfig, keys, (*place, "train"), source)
                refuse_unread(train, spec.ignores, f"it has no effect on {kind!r}", (*place, "train"), source)
            spec.check_model(model, data, (*place, "model"), source)
            method = self._method(variant, known[variant], experiment, model, at, source)
            if tuned["method"]:
                method = check_method(method | tuned["method"], model, (*place, "method"), source)
            given = {"paper": paper, "task": task, "kind": kind, "variant": variant, "data": data, "model": model}
            given |= {"method": method, "train": train, "decode": decode, "threads": self.profile.threads}
            return RunConfig(**given, seed=self.profile.seeds[0])

        variants = experiment.variants or list(known)

        def refuse_others(named: Iterable[str], place: Place) -> None:
            for one in named:
                if one not in variants:
                    raise config_error(
                        (*place, one), f"is no variant of the experiment{nearest(one, variants)}", source
                    )

        refuse_others(experiment.settings, (*at, "settings"))
        refuse_others(experiment.failed, (*at, "failed"))
        for variant, seeds in experiment.failed.items():
            for position, seed in enumerate(seeds):
                if seed not in self.profile.seeds:
                    what = (
                        f"{seed} is no seed of the profile, expected one of {', '.join(map(str, self.profile.seeds))}"
                    )
                    raise config_error((*at, "failed", variant, position), what, source)
        for position, variant in enumerate(variants):
            if variant not in known:
                what = f"unknown variant {variant!r}{nearest(variant, list(known))}"
                raise config_error((*at, "variants", position), what, source)
            config = config_of(variant, {}, (*at, "settings", variant) if variant in experiment.settings else at)
            seeds = [seed for seed in self.profile.seeds if seed not in experiment.failed.get(variant, ())]
            self.runs += [config.model_copy(update={"seed": seed}) for seed in seeds]
        if experiment.tune:
            self._check_tune(experiment, experiment.tune, (*at, "tune"), source)
            refuse_others(experiment.tune.arms, (*at, "tune", "arms"))
            self.arms[name] = {
                arm: self._arm(arm, experiment.tune, config_of, (*at, "tune"), source) for arm in experiment.tune.arms
            }

    def _check_tune(self, experiment: Experiment, tune: Tune, at: Place, source: Source) -> None:
        for position, seed in enumerate(tune.seeds):
            if seed in self.profile.seeds:
                what = f"{seed} is a seed of the runs too; expected others, since a choice flatters its own seeds"
                raise config_error((*at, "seeds", position), what, source)
        if (rung := tune.rungs[-1]) > (epochs := experiment.train.epochs):
            what = f"{rung} is longer than the training; expected at most train.epochs = {epochs}"
            raise config_error((*at, "rungs", len(tune.rungs) - 1), what, source)

    def _arm(
        self, name: str, tune: Tune, config_of: Callable[[str, Setting, Place], RunConfig], at: Place, source: Source
    ) -> Arm:
        settings, configs, hashes = [], [], []
        for place, setting in tune.of_arm(name):
            for key in FIXED.keys() & setting.keys():
                raise config_error((*at, *place, key), f"cannot be tuned: {FIXED[key]}", source)
            config = config_of(name, setting, (*at, *place))
            if config.hash in hashes:
                what = f"trains the same as setting {hashes.index(config.hash) + 1} of {name}; expected each once"
                raise config_error((*at, *place), what, source)
            settings.append(setting)
            configs.append(config)
            hashes.append(config.hash)
        return Arm(self._requested, tune, settings, configs)

    @staticmethod
    def _method(
        variant: str, own: dict[str, Any], experiment: Experiment, model: Sizes, at: tuple[str, ...], source: Source
    ) -> dict[str, Any]:
        """A method with all options: what the profile defines wins over ``methods``, which wins over the paper."""
        defined = variant in experiment.define
        options = with_shared(own, experiment.methods, own_first=defined)
        if defined:
            return check_method(options, model, (*at, "define", variant), source)
        keys = ("methods", own["name"]) if experiment.methods.get(own["name"]) else ("variants", variant)
        return check_method(options, model, (*at, *keys), source)


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
        self.profile, source = _read(path, content)
        for position, plugin in enumerate(self.profile.plugins):
            try:
                load_plugin(paths.home() / plugin)
            except ConfigError as error:
                raise config_error(("plugins", position), str(error), source) from None
        expansion = _expanded(profile, path, content, tuple(OPTIONS.values()))
        self._all, self.arms = expansion.runs, expansion.arms

    def planned(
        self, experiment: str | None = None, variant: str | None = None, seed: int | None = None
    ) -> list[RunConfig]:
        """The runs with these names in the profile's order, with its own settings even where their arm is tuned.

        Raises:
            ConfigError: the profile has no such run.
        """
        found = list(self._all)
        for key, value in (("experiment", experiment), ("variant", variant), ("seed", seed)):
            known = [str(one) for one in dict.fromkeys(getattr(config, key) for config in found)]
            if value is not None and str(value) not in known:
                raise ConfigError(f"profile {self.name}: no {key} {str(value)!r}{nearest(str(value), known)}")
            found = [config for config in found if value is None or getattr(config, key) == value]
        return found

    def all(self) -> list[RunConfig]:
        """Every run that there is, in the profile's order: arms with their choice; those not tuned yet have none."""
        return [found for config in self._all if (found := self._tuned(config))]

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

    def of(self, experiment: str | None = None, variant: str | None = None, seed: int | None = None) -> list[RunConfig]:
        """The runs with these names, any where one is left out.

        Raises:
            ConfigError: the profile has no such run, or all of them are of arms that are not tuned yet.
        """
        found = self.planned(experiment, variant, seed)
        tuned = [config for one in found if (config := self._tuned(one))]
        if not tuned and (arm := self.arm_of(found[0])):
            raise ConfigError(arm.untuned)
        return tuned

    def one(self, experiment: str, variant: str, seed: int) -> RunConfig:
        """One run, with any seed; the profile's tables and figures show its own seeds alone.

        Raises:
            ConfigError: the profile has no such experiment or variant, its arm is not tuned yet, or the seed is none.
        """
        config = self.of(experiment, variant)[0]
        if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
            raise ConfigError(f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}")
        return config.model_copy(update={"seed": int(seed)})


def with_shared(own: dict[str, Any], methods: dict[str, dict[str, Any]], own_first: bool) -> dict[str, Any]:
    """A method with the options that ``methods`` gives every variant of it; of a combination each method with its own.

    Where both name an option, ``own`` wins if it comes first.
    """
    shared = methods.get(str(own.get("name")), {})
    options = {**shared, **own} if own_first else {**own, **shared}
    if options.get("name") == "combined" and isinstance(options.get("methods"), list):
        options["methods"] = [
            with_shared(part, methods, own_first) if isinstance(part, dict) else part for part in options["methods"]
        ]
    return options


def run_config(profile: str, experiment: str, variant: str, seed: int) -> RunConfig:
    """The configuration of one run of a profile, e.g. ("quick", "deacon/translation", "direct-8", 1).

    Raises:
        ConfigError: the profile has no such run, or its results would lie among another profile's.
    """
    paths.results(profile)
    return Runs(profile).one(experiment, variant, seed)
