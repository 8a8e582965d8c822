"""Readers of plain and parallel text: one sentence a line, UTF-8, plain or compressed with gzip."""

from __future__ import annotations

import codecs
import gzip
import zlib
from pathlib import Path

from headdiv.data.refusals import Refusals
from headdiv.errors import DataError


def read_lines(path: Path | str) -> list[str]:
    r"""Read the lines of a UTF-8 text; a name that ends in ``.gz`` is read through gzip.

    Only ``\n`` ends a line: other characters that Unicode counts as line ends (U+2028, U+0085, a form
    feed) stay inside a sentence, since splitting at them would shift a parallel text by a line. One
    ``\r`` before the end of a line and a byte order mark at the start of the file are taken off.

    Raises:
        DataError: the file is missing, unreadable or empty, is a damaged gzip stream, or holds bytes
            that are not UTF-8 (the message names file, line and byte offset).
    """
    path = Path(path)
    lines: list[str] = []
    offset = 0  # of the current line's first byte, in the unpacked text
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for raw in file:
                line = raw.removeprefix(codecs.BOM_UTF8) if offset == 0 else raw
                if line:  # a byte order mark alone is no line
                    skipped = len(raw) - len(line)
                    lines.append(_decode(line, path, len(lines) + 1, offset + skipped))
                offset += len(raw)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}, after line {len(lines)}: the gzip stream is cut off or damaged ({error}); "
            "delete the file and fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not lines:
        raise DataError(f"{path}: the file is empty, expected one sentence a line")
    return lines


def _decode(line: bytes, path: Path, number: int, offset: int) -> str:
    try:
        return line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte 0x{line[error.start]:02x} at byte offset {offset + error.start} "
            "is not UTF-8; expected UTF-8 text"
        ) from None


def read_parallel(
    source: Path | str, target: Path | str, *, expected: int | None = None, refusals: Refusals | None = None
) -> list[tuple[str, str]]:
    """Read two texts whose lines belong together, as pairs of (source sentence, target sentence).

    Args:
        source: the text in the language to translate from.
        target: the text in the language to translate into.
        expected: how many pairs there must be; None takes any number.
        refusals: what becomes of pairs with an empty sentence; an error where left out.

    Raises:
        DataError: a file cannot be read (see ``read_lines``), the files have unequal numbers of lines
            or not the expected number, or a sentence is empty or only white space.
    """
    refusals = refusals or Refusals()
    source, target = Path(source), Path(target)
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise DataError(f"{source} has {len(sources)} lines but {target} has {len(targets)}, expected equally many")
    if expected is not None and len(sources) != expected:
        raise DataError(f"{source} and {target}: found {len(sources)} pairs, expected {expected}")
    pairs = []
    for number, pair in enumerate(zip(sources, targets, strict=True), start=1):
        empty = next(
            (path for path, sentence in zip((source, target), pair, strict=True) if not sentence.strip()), None
        )
        if empty is None:
            pairs.append(pair)
        else:
            refusals.add(f"{empty}, line {number}", "the sentence is empty, expected one on every line")
    return pairs
