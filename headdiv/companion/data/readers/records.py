"""Records that cannot be used: an error that names the record, or a count of those that are left out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headdiv.core.errors import DataError

_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a fractional number"}
_SURROGATE = re.compile("[\ud800-\udfff]")
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


def decode(raw: bytes) -> str:
    """UTF-8 text of a record's bytes, or a `BadRecordError`."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at byte {error.start} of the record"
        raise BadRecordError("not UTF-8 text", found) from None


def parse_json(raw: bytes) -> Any:
    """The JSON value of a record's bytes, or a `BadRecordError`."""
    text = decode(raw)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRecordError("not valid JSON", f"{error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets nested as deep
        raise BadRecordError("not valid JSON", str(error)) from None


def field(record: Any, key: str, kind: type) -> Any:
    """What a JSON object has under ``key``, which must be of ``kind``; otherwise a `BadRecordError`."""
    if not isinstance(record, dict):
        raise BadRecordError("wrong type", f'{kind_of(record)} in place of an object with "{key}"')
    if key not in record:
        raise BadRecordError(f'no "{key}"', f"expected {_KINDS[kind]}")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):  # a bool is an int to Python
        raise BadRecordError("wrong type", f'"{key}" is {kind_of(value)}, expected {_KINDS[kind]}')
    return value


def text_field(record: Any, key: str) -> str:
    """A text under ``key`` that is not empty and can be written as UTF-8; otherwise a `BadRecordError`."""
    return check_text(field(record, key, str), key)


def check_text(text: str, name: str) -> str:
    """The text, unless it is empty or has half a surrogate pair: then a `BadRecordError`."""
    if is_empty(text):
        raise BadRecordError(f'empty "{name}"')
    if half := _SURROGATE.search(text):  # JSON can write "\ud800" alone, which no UTF-8 file can hold
        raise BadRecordError(f'"{name}" is not valid Unicode', f"half a surrogate pair at character {half.start()}")
    return text


def printable(text: str) -> str:
    """The text, with escapes in place of line ends and control characters: names in data files may hold any."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def is_empty(text: str) -> bool:
    """Whether a text is made of nothing but white space and control characters."""
    return _LETTER.search(text) is None


def kind_of(value: Any) -> str:
    """The kind of a JSON value in words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _KINDS.get(type(value), type(value).__name__)
