"""How files are damaged and mistakes are made in a fuzzer: operations as plain data, drawn by hypothesis."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Kind:
    """What is fuzzed.

    Attributes:
        cases: plain data.
        run: what a case does, in a process of its own whose folder is a copy of the template.
        template: makes a project's folder.
    """

    name: str
    cases: st.SearchStrategy[Any]
    run: Callable[[Path, Any], None]
    template: Callable[[Path], Any] = Path.mkdir


# What stands where something else is expected. All of it can be written as YAML; dates are texts that look like some.
SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    64,
    0.5,
    -0.5,
    1e-320,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**40,
    10**400,
    "",
    " ",
    "a",
    "0",
    "-1",
    "1e999",
    "nan",
    "baseline",
    "deacon",
    "toy",
    "own",
    "en",
    "../x",
    "/proc/self/mem",
    ".",
    "x/y",
    "a b",
    "\x00",
    "\x1b[31mred",
    "\u202e",
    "\ud800",
    "\U0001f600",
    "é" * 300,
    "x" * 1000,
    "<script>",
    "{{ x }}",
    "$x_",
    "%s",
    "2026-13-45",
    "2026-01-01",
    "12:30:45",
    "0x1F",
    "1_000",
    "~",
    "yes",
]
VALUES = [*SCALARS, [], {}, [1], [None], ["a", "a"], {"name": "baseline"}, {"": ""}, {"a": {"b": {"c": [1, [2, [3]]]}}}]
KEYS = ["", "name", "a", "epoch", "Train", "1", "é", "a.b", "<<", "x" * 300, "\x00", "title"]
TEXTS = [
    "\x00",
    "\t",
    "\n",
    "\r\n",
    "\ufeff",
    "\u2028",
    "\x85",
    "\x1b[2J",
    "é",
    "\ud800",
    "\U0001f600",
    "a: b\n",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!!python/name:os.system ",
    "!!binary ",
    "? ",
    "|",
    ">",
    "'",
    '"',
    "#",
    "%",
    "---\n",
    "...\n",
    "<<: *a\n",
    "0",
    "-",
    "1e999",
    "999999999999999999999",
    "a," * 50,
    "\n\n",
    "NaN",
    "null",
    "\\",
    "\\ud800",
]

Operation = list[Any]  # its name and arguments

small = st.integers(0, 400)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("set"), small, st.sampled_from(VALUES)),
    st.tuples(st.just("set"), small, st.sampled_from(VALUES)),
    st.tuples(st.just("drop"), small),
    st.tuples(st.just("rename"), small, st.sampled_from(KEYS)),
    st.tuples(st.just("double"), small),
    st.tuples(st.just("deepen"), small, st.sampled_from([1, 3, 60, 3000])),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("flip"), st.floats(0, 1), st.integers(0, 7)),
    st.tuples(st.just("insert"), st.floats(0, 1), st.sampled_from(TEXTS)),
    st.tuples(st.just("bytes"), st.floats(0, 1), st.integers(0, 255)),
    st.tuples(st.just("delete"), st.floats(0, 1), st.integers(1, 40)),
    st.tuples(st.just("swap lines"), small, small),
    st.tuples(st.just("repeat line"), small, st.sampled_from([1, 2, 1000])),
    st.tuples(st.just("drop line"), small),
    st.tuples(st.just("whole"), st.sampled_from(["", " ", "\n", "{}", "[]", "null", "1", '"a"', "\x00", "[" * 3000])),
    st.tuples(st.just("pack")),
    st.tuples(st.just("crlf")),
).map(list)
structural = ("set", "drop", "rename", "double", "deepen")


def several(least: int = 1, most: int = 3) -> st.SearchStrategy[list[Operation]]:
    """A few operations, made one after the other."""
    return st.lists(operations, min_size=least, max_size=most)


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside plain data, outermost first."""
    found = []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found.append((value, key))
        found += places(one)
    return found


def change(value: Any, operation: Operation) -> Any:
    """Plain data after a structural operation; the value itself where it has nothing inside."""
    name, *told = operation
    there = places(value)
    if not there:
        return told[1] if name == "set" else value
    container, key = there[told[0] % len(there)]
    if name == "set":
        container[key] = told[1]
    elif name == "drop":
        del container[key]
    elif name == "rename" and isinstance(container, dict):
        container[told[1]] = container.pop(key)
    elif name == "double" and isinstance(container, list):
        container.append(container[key])
    elif name == "deepen":
        for _ in range(told[1]):
            container[key] = [container[key]]
    return value


def changed_json(data: bytes, operation: Operation) -> bytes:
    """JSON, or the first line of it that can be read as JSON, after a structural operation; as it is where none is."""
    try:
        return written(change(json.loads(data), operation))
    except (ValueError, RecursionError):
        pass
    lines = data.split(b"\n")
    number = operation[1] % len(lines)
    try:
        lines[number] = written(change(json.loads(lines[number]), operation), indent=None)
    except (ValueError, RecursionError):
        return data
    return b"\n".join(lines)


def written(value: Any, indent: int | None = 1) -> bytes:
    """As JSON; deep values by hand, which json refuses."""
    try:
        return json.dumps(value, indent=indent).encode()
    except RecursionError:
        return b"[" * 3000 + b"]" * 3000


def damaged(data: bytes, operation: Operation) -> bytes:
    """A file's content after an operation."""
    name, *told = operation
    if name in structural:
        return changed_json(data, operation)
    at = int(told[0] * len(data)) if told and isinstance(told[0], float) else 0
    lines = data.split(b"\n")
    match name:
        case "cut":
            return data[:at]
        case "flip" if data:
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ 1 << told[1]]) + data[at + 1 :]
        case "insert":
            return data[:at] + told[1].encode("utf-8", "surrogatepass") + data[at:]
        case "bytes":
            return data[:at] + bytes([told[1]]) + data[at:]
        case "delete":
            return data[:at] + data[at + told[1] :]
        case "swap lines":
            one, other = (number % len(lines) for number in told)
            lines[one], lines[other] = lines[other], lines[one]
        case "repeat line":
            number = told[0] % len(lines)
            lines[number : number + 1] = [lines[number]] * (1 + told[1])
        case "drop line":
            del lines[told[0] % len(lines)]
        case "whole":
            return told[0].encode()
        case "pack":
            return gzip.compress(data, mtime=0)
        case "crlf":
            return data.replace(b"\n", b"\r\n")
        case _:
            return data
    return b"\n".join(lines)
