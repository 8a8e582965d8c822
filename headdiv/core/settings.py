"""Configuration files: checked values, and YAML that knows its lines.

The line of every key in a YAML file is kept, so that a mistake is reported in one sentence that names file, line and
key.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from headdiv.core.errors import ConfigError

Place = tuple[str | int, ...]  # keys that lead to something in a file


class Settings(BaseModel):
    """Base of all configuration: unknown keys are errors, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def hash_neutral(default: Any, **options: Any) -> Any:
    """A field added after runs had been stored: its default is not written, so that their hashes stay the same."""
    return Field(default, exclude_if=lambda value: value == default, **options)


YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast, but not always there


def _refuse_duplicates(values: list[Any]) -> list[Any]:
    for index, value in enumerate(values):
        if value in values[:index]:
            context = {"value": repr(value)}
            raise PydanticCustomError("twice", "Input should name nothing twice, and {value} is", context)
    return values


Member = TypeVar("Member")
Distinct = Annotated[list[Member], AfterValidator(_refuse_duplicates)]
Checked = TypeVar("Checked", bound=BaseModel)


def check(model: type[Checked], value: Any, at: Place = (), source: Source | None = None) -> Checked:
    """Validate plain data as ``model``; in its file, ``source``, the keys ``at`` lead to it.

    Raises:
        ConfigError: one sentence about the first mistake: place, key, what was found, what is expected.
    """
    try:
        return model.model_validate(value)
    except ValidationError as problem:
        mistake = _first_mistake(model, [error | {"loc": _keys(value, error)} for error in problem.errors()])
        loc, what = mistake["loc"], _explain(model, mistake)
        if mistake["type"] == "value_error":  # a validator of several keys says which one it is about
            key, _, what = what.partition(": ")
            loc = (*loc, key)
        raise config_error((*at, *loc), what, source) from None


def refuse_unread(settings: BaseModel, keys: Iterable[str], why: str, at: Place, source: Source | None) -> None:
    """Raise a ConfigError where one of these keys is not its default, since it would change nothing."""
    for key in keys:
        value, default = getattr(settings, key), type(settings).model_fields[key].default
        if value != default:
            raise config_error((*at, key), f"found {value!r}, expected the default, {default!r}: {why}", source)


def config_error(at: Place, what: str, source: Source | None = None) -> ConfigError:
    """The error "file, line n: key.key: what"."""
    place = source.place(at) if source else ""
    key = ".".join(map(str, at)) + ": " if at else ""
    return ConfigError(f"{place}{key}{what}", at, what)


def _keys(value: Any, error: Any) -> Place:
    """The keys that lead to a mistake; pydantic puts the names of a union's members between them."""
    keys: list[str | int] = []
    for part in error["loc"]:
        with contextlib.suppress(LookupError, TypeError):
            value = value[part]
            keys.append(part)
    return (*keys, error["loc"][-1]) if error["type"] == "missing" else tuple(keys)


def _first_mistake(model: type[BaseModel], errors: list[Any]) -> Any:
    """The first mistake; of what a union's members say of it, the deepest, since that member was meant.

    If that is a missing key, the unknown key that may be its misspelling, if there is one.
    """
    at = errors[0]["loc"]
    first = max((error for error in errors if error["loc"][: len(at)] == at), key=lambda error: len(error["loc"]))
    if first["type"] != "missing":
        return first
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    misspelt = (error for error in unknown if _closest(str(error["loc"][-1]), _fields_at(model, error["loc"][:-1])))
    return next(misspelt, first)


def _explain(model: type[BaseModel], error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key" + nearest(str(error["loc"][-1]), _fields_at(model, error["loc"][:-1]))
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "too_short":
        return f"expected at least {error['ctx']['min_length']}, found {error['input']!r}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message
    return f"{message[0].lower()}{message[1:]}, found {error['input']!r}"


def nearest(name: str, known: list[str]) -> str:
    """The end of a message about an unknown name: a similar name, or all known ones."""
    if closest := _closest(name, known):
        return f"; did you mean '{closest}'?"
    return f"; known here: {', '.join(sorted(known)) or 'none'}"


def _closest(name: str, candidates: list[str]) -> str | None:
    """The candidate that is most similar to a name, whatever their case; None where none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[matches[0]] if matches else None


def _fields_at(model: type[BaseModel], path: Place) -> list[str]:
    inner: Any = model
    for key in path:
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            field = inner.model_fields.get(str(key))
            inner = field.annotation if field else None
            if type(None) in (options := get_args(inner)):  # Model | None
                inner = options[0]
        else:  # dict[str, Model], list[Model]
            inner = (get_args(inner) or (None,))[-1]
    members = [inner, *get_args(inner)]  # of a union
    models = [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]
    return [name for member in models for name in member.model_fields]


class Source:
    """A YAML file as plain data that knows the line of every key."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            others = [path.stem for path in self.path.parent.glob("*.yaml")]
            suggestion = nearest(self.path.stem, others) if others else ""
            raise ConfigError(f"{self.path}: no such file{suggestion}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path}: not UTF-8 text (byte offset {error.start})") from None
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read ({error.strerror})") from None
        try:
            self.node = yaml.compose(text, Loader=YAML)
            self._refuse_duplicate_keys(self.node)
            self.data: Any = yaml.load(text, Loader=YAML)
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as a date that does not exist
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            problem = " ".join(str(getattr(error, "problem", error)).split())
            raise ConfigError(f"{self.path}{line}: not valid YAML ({problem})") from None

    def _refuse_duplicate_keys(self, node: yaml.Node | None) -> None:
        """Refuse a key that is given twice, of which PyYAML would take the last."""
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            keys, children = [key for key, _ in children], [value for _, value in children]
            seen: set[str] = set()
            for key in keys:
                if (name := str(key.value)) in seen:  # nodes where a key is not text; loading refuses it
                    line = key.start_mark.line + 1
                    raise ConfigError(f"{self.path}, line {line}: the key {key.value!r} is given twice")
                seen.add(name)
        for child in children:
            self._refuse_duplicate_keys(child)

    def place(self, path: Place) -> str:
        """File and line of the key ("file, line n: "), or of the nearest one above it that is there."""
        node, line = self.node, 1
        for depth, key in enumerate(path):
            if isinstance(node, yaml.MappingNode):
                names = str(key), ".".join(map(str, path[depth:]))  # a key may have dots: model.dropout
                matches = [(k, v) for k, v in node.value if k.value in names]
                if not matches:
                    break
                line, node = matches[0][0].start_mark.line + 1, matches[0][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
                node = node.value[key]
                line = node.start_mark.line + 1
            else:
                break
        return f"{self.path}, line {line}: "
