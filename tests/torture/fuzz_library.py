"""Library calls with arguments of odd types, shapes, sizes and lengths.

An argument is plain data too: ``["tensor", shape, dtype, filling]``, ``["endless", of what]``, or a value.
"""

from __future__ import annotations

import itertools
import linecache
import math
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_calls import CALLS, calls
from mutations import Kind

import headdiv
from headdiv.core import arguments as core_arguments
from headdiv.core.errors import HeaddivError

PACKAGE = str(Path(headdiv.__file__).parent)

# ---- arguments


def made(told: Any) -> Any:
    """The argument that plain data describe."""
    match told:
        case ["tensor", shape, dtype, filling]:
            return filled(torch.Size(shape), getattr(torch, dtype), filling)
        case ["endless", what]:
            return endless(made(what))
        case ["cycle", what]:
            return itertools.cycle([made(what)])
        case ["generator", *each]:
            return (made(one) for one in each)
        case ["list", *each]:
            return [made(one) for one in each]
        case ["range", count]:
            return range(count)
        case _:
            return told


def endless(one: Any) -> Iterator[Any]:
    """The same again and again, and no end."""
    while True:
        yield one


def filled(shape: torch.Size, dtype: torch.dtype, filling: str) -> torch.Tensor:
    """A tensor of numbers of a kind."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=draw, dtype=torch.float64)
    match filling:
        case "zeros" | "ones":
            x = x.new_full(shape, float(filling == "ones"))
        case "nan" | "inf":
            x = x.new_full(shape, float(filling))
        case "huge" | "tiny":
            x = x * (1e30 if filling == "huge" else 1e-30)
        case "negative":
            x = -x.abs()
        case "one nan" if x.numel():
            x.view(-1)[0] = math.nan
    return x.to(dtype)


# ---- what becomes of it


def run(_: Path, case: dict[str, Any]) -> None:
    """Make a call; an error in the library's style ends with status 2 and its sentence, any other with a traceback."""
    torch.set_num_threads(1)
    core_arguments.MOST = 500  # batches of an iterator without a length
    arguments = {key: deep(told) for key, told in case["arguments"].items()}
    try:
        CALLS[case["call"]][0](**arguments)
    except HeaddivError as error:
        say(error)
    except (ValueError, TypeError) as error:
        if not raised_by_headdiv(error) and not by_the_model(error):
            raise
        say(error)
    except Exception as error:
        if not by_the_model(error):
            raise
        say(error)


def deep(told: Any) -> Any:
    """`made`, inside dictionaries too."""
    if isinstance(told, dict):
        return {key: deep(value) for key, value in told.items()}
    if isinstance(told, list) and told[:1] == ["array"]:
        return np.array(told[1], dtype=np.int64)
    return [deep(one) for one in made(told)] if isinstance(told, list) and told[:1] == ["list"] else made(told)


def raised_by_headdiv(error: BaseException) -> bool:
    """Whether a line of headdiv's own says ``raise``: not what Python, torch or numpy make of a wrong argument."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).lstrip()
    return last.filename.startswith(PACKAGE) and line.startswith("raise")


def by_the_model(error: BaseException) -> bool:
    """Whether torch's own layers refuse what they are called with, or transformers a name: both are passed on."""
    frames = traceback.extract_tb(error.__traceback__)
    return any("/torch/nn/modules/" in frame.filename for frame in frames) or ("/transformers/" in frames[-1].filename)


def say(error: BaseException) -> None:
    """As the command line does."""
    print(f"headdiv: {'the model itself: ' * by_the_model(error)}{' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


LIBRARY = Kind("library", calls(), run)
