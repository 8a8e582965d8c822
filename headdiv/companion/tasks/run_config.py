"""What a run is: its settings, checked before anything starts, and the hash that names it."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from pydantic import Field, SerializeAsAny, field_serializer

from headdiv.companion import tasks
from headdiv.companion.data.cache import content_key
from headdiv.companion.data.data_config import DataConfig
from headdiv.companion.models.sizes import DecodeConfig, ModelConfig
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError
from headdiv.core.files import short_hash
from headdiv.core.settings import Settings
from headdiv.methods.registry import METHODS, own_code, stored_method
from headdiv.nn.sizes import Sizes

RECIPE = 2  # raised whenever a change of the code changes what a configuration trains to


class RunConfig(Settings):
    """One variant of one paper's task with one seed."""

    paper: str
    task: str = Field(description="the paper's task: a name in its file")
    kind: str = Field(description="name of the task: translation, summarisation, qa, lm or mlm")
    variant: str
    data: SerializeAsAny[DataConfig]
    model: SerializeAsAny[Sizes] = ModelConfig()
    method: dict[str, Any] = Field(description="name of the method and all its options")
    train: TrainConfig = TrainConfig()
    decode: SerializeAsAny[Settings] = DecodeConfig()
    seed: int = Field(ge=0)
    threads: int = Field(1, ge=1, description="CPU threads; results are equal bit for bit for an equal number")

    def check_budget(self, needed: int, what: str) -> None:
        """Raise a ConfigError where ``train.tokens_per_batch`` is less than a batch needs at least."""
        budget = self.train.tokens_per_batch
        if budget < needed:
            raise ConfigError(f"train.tokens_per_batch: {budget:,} is below the {needed:,} {what}")

    @field_serializer("method", when_used="json")
    def _stored_method(self, method: dict[str, Any]) -> dict[str, Any]:
        return stored_method(method)

    @property
    def experiment(self) -> str:
        """``<paper>/<task>``."""
        return f"{self.paper}/{self.task}"

    @property
    def label(self) -> str:
        """ "deacon/translation direct-8 seed 1"."""
        return f"{self.experiment} {self.variant} seed {self.seed}"

    @property
    def hash(self) -> str:
        """Equal for all runs that train the same: names, and how outputs are searched, are left out."""
        settings = self.model_dump(mode="json", exclude={"paper", "task", "variant", "data", "decode"})
        settings["data"] = self.data.deciding()
        for key in TrainConfig.of_no_effect:
            settings["train"].pop(key, None)
        if not settings["train"]["epoch_scores"]:  # a key that was added later: hashes of earlier runs stay
            del settings["train"]["epoch_scores"]
        return short_hash({"recipe": RECIPE, **settings})


def run_name(config: RunConfig) -> str:
    """A trained model's name, from all that decides it: its configuration and `content_of`."""
    return short_hash([config.hash, content_of(config)])


def content_of(config: RunConfig) -> str:
    """A hash of the corpus's content and, of a method from outside headdiv, of its code."""
    content, code = content_key(config.data), own_code(config.method)
    return short_hash([content, *code]) if code else content


def difference(
    mine: dict[str, Any], theirs: dict[str, Any], sections: Iterable[str], free: Container[str] = ()
) -> str | None:
    """The first difference by which two stored configurations may have different results, None if there is none.

    In words: "train.epochs is 10, but 30". When checkpoints are written, and what is stored for the backward pass, is
    ignored. A key that only one has was added after the other was stored, and is ignored too, unless its default is not
    stored (`hash_neutral`): then the values differ.

    Args:
        mine: a run's configuration as stored in its metrics.
        theirs: another's.
        sections: what is compared: "data", "model", "method", "train", "decode".
        free: keys ("train.learning_rate") that may differ.
    """
    for section in sections:
        left, right = mine.get(section, {}), theirs.get(section, {})
        for key in right | left:
            comparable = (key in left and key in right) or _is_hash_neutral(section, key, right)
            ignored = key in TrainConfig.of_no_effect or f"{section}.{key}" in free
            if comparable and not ignored and left.get(key) != right.get(key):
                values = (repr(values.get(key, "left at its default")) for values in (left, right))
                return f"{section}.{key} is {', but '.join(values)}"
    return None


def _is_hash_neutral(section: str, key: str, values: dict[str, Any]) -> bool:
    """Whether a key's default is not stored."""
    method = METHODS.get(str(values.get("name")))
    classes = {
        "data": [task.Data for task in tasks.TASKS.values()],
        "model": [ModelConfig],
        "method": [method.Options] if method else [],
        "train": [TrainConfig],
    }
    fields = [settings.model_fields.get(key) for settings in classes.get(section, [])]
    return any(field is not None and field.exclude_if is not None for field in fields)
