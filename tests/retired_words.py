"""Refuse the words that docs/glossary.md retires: ``python tests/retired_words.py [PATH …]`` prints file:line: word.

The glossary's second table lists the words, what to write instead, and in backquotes the phrases in which a word may
stay (a configuration's key, a term of another library). A word is also found inside an identifier: ``told_of``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
CHECKED = (
    "headdiv",
    "notebooks",
    "docs",
    "config",
    "profiles",
    "README.md",
    "CONTRIBUTING.md",
    "Snakefile",
    "Makefile",
)
BINARY = {".png", ".svg"}


def retired_words(text: str) -> dict[str, tuple[str, list[str]]]:
    """The words of the table with the heading "not": what to write instead, and the phrases in which each may stay."""
    words = {}
    for line in text.partition("| not |")[2].splitlines()[2:]:
        if not line.startswith("|"):
            break
        retired, instead, stays = [cell.strip() for cell in (line + "|").split("|")[1:4]]
        for word in re.sub(r"\([^)]*\)", "", retired).split(","):
            words[word.strip()] = (instead, re.findall("`([^`]+)`", stays))
    return words


def hits(line: str, words: dict[str, tuple[str, list[str]]]) -> Iterator[str]:
    """The retired words in a line of text or code."""
    for word, (_, phrases) in words.items():
        rest = line
        for phrase in phrases:
            rest = re.sub(re.escape(phrase), "", rest, flags=re.IGNORECASE)
        if re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", rest, flags=re.IGNORECASE):
            yield word


def lines_of(path: Path) -> list[str]:
    """A file's lines; of a notebook those of its cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return [line for cell in json.loads(text)["cells"] for line in "".join(cell["source"]).splitlines()]
    return text.splitlines()


def main(asked: list[str]) -> int:
    """Check these files and folders, all of `CHECKED` where none is named; 1 if there is a hit."""
    words, found = retired_words(GLOSSARY.read_text(encoding="utf-8")), 0
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *(asked or CHECKED)]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for path in sorted(ROOT / name for name in set(names) - {""}):
        if path == GLOSSARY or path.suffix in BINARY or not path.is_file():
            continue
        for number, line in enumerate(lines_of(path), start=1):
            for word in hits(line, words):
                found += 1
                print(f"{path.relative_to(ROOT)}:{number}: {word!r}; write {words[word][0]}")
    if found:
        print(f"{found} retired words; docs/glossary.md lists them")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
