"""Configuration: what a run is, checked before anything starts, and the hash that names it.

A YAML file is read with the line of every key kept, so that a mistake is answered with one sentence that
names file, line and key.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headdiv.errors import ConfigError
from headdiv.files import short_hash

RECIPE = 1  # raised whenever a change of the code, or of a corpus, changes what a configuration trains to

Decay = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """Base of all configuration: unknown keys are refused, values cannot be changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(Settings):
    """Which corpus, and how its words are found."""

    name: str = Field(description="'toy' (generated) or a data set of the registry, e.g. 'multi30k'")
    source: str = Field("en", description="language translated from")
    target: str = Field("de", description="language translated into")
    tokenizer: Literal["moses"] = Field("moses", description="Moses rules (sacremoses), dashes split")
    lowercase: bool = Field(False, description="fold case before words are counted")
    min_frequency: int = Field(5, ge=1, description="a word seen less often in the training text is <unk>")
    valid: str = Field("valid", description="split that is watched during training")
    test: str = Field("test", description="split that is scored")
    pairs: int | None = Field(None, ge=1, description="take this many training pairs only; toy: generate them")
    held_out_pairs: int = Field(500, ge=1, description="toy only: pairs in each of validation and test")


class ModelConfig(Settings):
    """Sizes of the encoder-decoder Transformer; defaults are those of DEACON's Table 3."""

    d_model: int = Field(256, ge=1, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(8, ge=1, description="attention heads h")
    encoder_layers: int = Field(2, ge=1)
    decoder_layers: int = Field(2, ge=1)
    d_ff: int = Field(512, ge=1, description="inner width of the feed-forward layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on every sub-layer's output")
    attention_bias: bool = Field(False, description="bias of the query, key and value projections")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> ModelConfig:
        if self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model = {self.d_model}")
        return self


class TrainConfig(Settings):
    """Optimiser, schedule and batches."""

    epochs: int = Field(30, ge=1)
    tokens_per_batch: int = Field(1800, ge=1, description="most target tokens in a batch")
    batching: Literal["random", "bucketed"] = Field("random", description="bucketed: similar lengths together")
    learning_rate: float = Field(5e-4, gt=0, description="Adam's step at its peak")
    schedule: Literal["constant", "inverse_sqrt", "linear"] = Field(
        "inverse_sqrt", description="after the warm-up: stay, fall with 1/√step, or fall to 0 in a line"
    )
    warmup_steps: int = Field(400, ge=0, description="linear rise from 0")
    betas: tuple[Decay, Decay] = Field((0.9, 0.98), description="Adam's decay rates")
    epsilon: float = Field(1e-9, gt=0, description="Adam's ε")
    weight_decay: float = Field(0.0, ge=0, description="decoupled (AdamW)")
    clip_norm: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16: matrix products only")
    checkpoint_seconds: float = Field(120.0, gt=0, description="longest work lost when a run is killed")


class DecodeConfig(Settings):
    """How translations are searched."""

    beam: int = Field(5, ge=1, description="hypotheses kept; 1 is greedy search")
    length_penalty: float = Field(1.0, ge=0, description="α: scores are divided by length to the power α")
    max_length_factor: float = Field(1.5, gt=0, description="longest output, as a multiple of the source…")
    max_length_offset: int = Field(10, ge=1, description="…plus so many tokens")
    batch_sentences: int = Field(64, ge=1, description="sentences searched together")


class RunConfig(Settings):
    """One variant of one paper's task with one seed."""

    paper: str
    task: str
    variant: str
    data: DataConfig
    model: ModelConfig = ModelConfig()
    method: dict[str, Any] = Field(description="name of the method and all its options")
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    seed: int = Field(ge=0)
    threads: int = Field(1, ge=1, description="CPU threads; results are equal bit for bit for an equal number")

    @property
    def hash(self) -> str:
        """Names the folder of the trained model: equal for all runs that train the same thing.

        What it is called and how its output is searched do not enter.
        """
        told = self.model_dump(mode="json", exclude={"paper", "task", "variant", "decode"})
        del told["train"]["checkpoint_seconds"]
        return short_hash({"recipe": RECIPE, "task": self.task, **told})


# ---- reading and checking

Checked = TypeVar("Checked", bound=BaseModel)


def check(model: type[Checked], value: Any, at: tuple[str | int, ...] = (), source: Source | None = None) -> Checked:
    """Validate ``value`` as ``model``.

    Args:
        model: the pydantic model.
        value: plain data.
        at: keys that lead to ``value`` in its file.
        source: the file, if there is one.

    Raises:
        ConfigError: one sentence about the first mistake: place, key, what was found, what is expected.
    """
    try:
        return model.model_validate(value)
    except ValidationError as problem:
        first = problem.errors()[0]
        loc, what = first["loc"], _explain(model, first)
        if first["type"] == "value_error":  # a validator of several keys says which one it is about
            key, _, what = what.partition(": ")
            loc = (*loc, key)
        raise mistake((*at, *loc), what, source) from None


def mistake(at: tuple[str | int, ...], what: str, source: Source | None = None) -> ConfigError:
    """The error "file, line n: key.key: what"."""
    place = source.place(at) if source else ""
    key = ".".join(map(str, at)) + ": " if at else ""
    return ConfigError(f"{place}{key}{what}")


def _explain(model: type[BaseModel], error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key" + nearest(str(error["loc"][-1]), _fields_at(model, error["loc"][:-1]))
    if error["type"] == "missing":
        return "is missing"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message
    return f"{message[0].lower()}{message[1:]}, found {error['input']!r}"


def nearest(name: str, known: list[str]) -> str:
    """The end of a message about a name that is not known: a near one, or what there is to choose from."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else f"; known here: {', '.join(sorted(known)) or 'none'}"


def _fields_at(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    inner: Any = model
    for key in path:
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            field = inner.model_fields.get(str(key))
            inner = field.annotation if field else None
        else:  # dict[str, Model], list[Model]
            inner = (get_args(inner) or (None,))[-1]
    return list(inner.model_fields) if isinstance(inner, type) and issubclass(inner, BaseModel) else []


class Source:
    """A YAML file as plain data that knows the line of every key."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            others = ", ".join(sorted(p.stem for p in self.path.parent.glob("*.yaml"))) or "none"
            raise ConfigError(f"{self.path}: no such file; there are: {others}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path}: not UTF-8 text (byte offset {error.start})") from None
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read ({error.strerror})") from None
        try:
            self.node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.data: Any = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            problem = " ".join(str(getattr(error, "problem", error)).split())
            raise ConfigError(f"{self.path}{line}: not valid YAML ({problem})") from None
        self._refuse_double_keys(self.node)

    def _refuse_double_keys(self, node: yaml.Node | None) -> None:
        """PyYAML would let the last one win."""
        children = [value for _, value in node.value] if isinstance(node, yaml.MappingNode) else []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(f"{self.path}, line {line}: the key {key.value!r} is given twice")
                seen.add(key.value)
        for child in children:
            self._refuse_double_keys(child)

    def place(self, path: tuple[str | int, ...]) -> str:
        """File and line of the key ("file, line n: "), or of the nearest one above it that is there."""
        node, line = self.node, 1
        for key in path:
            if isinstance(node, yaml.MappingNode):
                found = [(k, v) for k, v in node.value if k.value == str(key)]
                if not found:
                    break
                line, node = found[0][0].start_mark.line + 1, found[0][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
                node = node.value[key]
                line = node.start_mark.line + 1
            else:
                break
        return f"{self.path}, line {line}: "
