"""Records of data files: the form of each, and what is done with those that cannot be used: an error or a count."""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from headdiv.core.errors import DataError

_LETTER = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]")


class BadRecordError(Exception):
    """Why a record cannot be used: in words that are the same for all records of this fault; and what was found."""

    def __init__(self, reason: str, found: str = "") -> None:
        super().__init__(reason, found)

    def __str__(self) -> str:
        reason, found = self.args
        return f"{reason} ({found})" if found else reason


class BadRecords:
    """Handed to every reader of records.

    Args:
        strict: raise at the first record that cannot be used; else it is left out and counted in ``counts``, by
            reason. A record that is read again, by another pass or source, is counted once.
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.counts: Counter[str] = Counter()
        self.places: set[str] = set()  # of the records that are counted

    def add(self, where: str, reason: str, found: str = "") -> None:
        """Report a record that cannot be used ("train.jsonl, line 3"): a DataError where records are read strictly."""
        if self.strict:
            fault = BadRecordError(reason, found)
            raise DataError(f"{where}: {fault}; data.strict: false leaves such records out and counts them")
        if where not in self.places:
            self.places.add(where)
            self.counts[reason] += 1

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Report the `BadRecordError` that the block raises, if it does; errors as those of `add`."""
        try:
            yield
        except BadRecordError as fault:
            self.add(where, *fault.args)


def is_empty(text: str) -> bool:
    """Whether a text is made of nothing but white space and control characters."""
    return _LETTER.search(text) is None


def _not_empty(text: str) -> str:
    if is_empty(text):
        raise PydanticCustomError("empty", "Input should not be empty")
    return text


RecordText = Annotated[str, AfterValidator(_not_empty)]
FormT = TypeVar("FormT", bound="Form")


class Form(BaseModel, frozen=True):
    """The form of a record; keys that it does not name are passed over."""


def parse(form: type[FormT], content: Any) -> FormT:
    """A record in its form, of bytes of JSON or of a JSON value; otherwise a `BadRecordError`."""
    try:
        return form.model_validate_json(content) if isinstance(content, bytes) else form.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        raise BadRecordError("not valid JSON", first["ctx"]["error"])
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        raise BadRecordError(f'no "{key}"', f"found {reprlib.repr(first['input'])}")
    message = first["msg"][0].lower() + first["msg"][1:]
    raise BadRecordError(f'"{key}": {message}' if key else message, f"found {reprlib.repr(first['input'])}")


def decode(raw: bytes) -> str:
    """UTF-8 text of a record's bytes, or a `BadRecordError`."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError("not UTF-8 text", f"byte 0x{raw[error.start]:02x}") from None
