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
        strict: raise at the first record that cannot be used; else it is left out and counted in ``counts``, by reason.
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.counts: Counter[str] = Counter()

    def add(self, where: str, reason: str, found: str = "") -> None:
        """Report a record that cannot be used ("train.jsonl, line 3"): a DataError where records are read strictly."""
        if self.strict:
            fault = printable(f"{where}: {BadRecordError(reason, found)}")
            raise DataError(f"{fault}; data.strict: false leaves such records out and counts them")
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


def _usable(text: str) -> str:
    if is_empty(text):
        raise PydanticCustomError("empty", "Input should not be empty")
    if not text.isascii() and re.search("[\ud800-\udfff]", text):  # which no UTF-8 file can hold
        raise PydanticCustomError("surrogate", "Input should have no half of a surrogate pair")
    return text


RecordText = Annotated[str, AfterValidator(_usable)]
FormT = TypeVar("FormT", bound="Form")


class Form(BaseModel, frozen=True):
    """The form of a record; keys that it does not name are passed over."""


def parse(form: type[FormT], content: Any) -> FormT:
    """A record in its form, of bytes of JSON or of a JSON value; otherwise a `BadRecordError`."""
    try:
        if isinstance(content, bytes):
            return form.model_validate_json(decode(content))
        return form.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        raise BadRecordError("not valid JSON", first["ctx"]["error"])
    key = ".".join(part for part in first["loc"] if isinstance(part, str))
    if first["type"] == "missing":
        raise BadRecordError(f'no "{key}"', f"found {shown(first['input'])}")
    what = first["msg"].partition(" or instance of ")[0]
    reason = f'"{key}": {what[0].lower()}{what[1:]}' if key else what.lower()
    raise BadRecordError(reason, f"found {shown(first['input'])}")


def decode(raw: bytes) -> str:
    """UTF-8 text of a record's bytes, or a `BadRecordError`."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at byte {error.start} of the record"
        raise BadRecordError("not UTF-8 text", found) from None


def printable(text: str) -> str:
    """The text, with escapes in place of line ends and control characters: names in data files may hold any."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def shown(value: Any) -> str:
    """A value of JSON for messages: its begin, however long or deep it is."""
    short = reprlib.Repr()
    short.maxstring = 60
    return short.repr(value)
