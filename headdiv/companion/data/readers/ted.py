"""Readers of the IWSLT evaluation's TED talks: tagged training text, XML test sets, and the archive of both.

A language pair's archive (``de-en.tgz`` of 2014, from WIT³) holds ``de-en/train.tags.de-en.de`` and ``.en``,
one sentence a line among lines about the talk, and test sets such as ``de-en/IWSLT14.TED.tst2010.de-en.de.xml``.
What is kept of them is what the script does that published results go by: ``prepare-iwslt14.sh`` of fairseq,
https://github.com/facebookresearch/fairseq/tree/main/examples/translation
"""

from __future__ import annotations

import re
import tarfile
from itertools import product
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree
from xml.parsers.expat import ErrorString

from headdiv.companion.data.readers import archives
from headdiv.companion.data.readers.lines import decode_lines, read_lines, split_lines, unpacked
from headdiv.companion.data.readers.parallel import TextSide
from headdiv.core.errors import DataError

TAGS = "train.tags"
SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # together the test set
ONLY = {"TEDX.dev2012": {"de", "en"}}  # sets that one pair of languages alone has
ABOUT = re.compile(r"\s*</?(?:doc|keywords|reviewer|speaker|talkid|translator|url)\b[^>]*>")  # begins such a line
TITLE_TAGS = re.compile(r"</?(?:title|description)>")  # around text that is kept
DECLARATIONS = ("<!DOCTYPE", "<!ENTITY")
LARGEST = 1 << 28  # bytes of a member; a larger one is an error


def read_side(path: Path | str) -> TextSide:
    """Read one side of a parallel text in the form that its name says, packed with gzip (``.gz``) or not.

    ``*.xml`` is a TED test set, ``train.tags.*`` is tagged training text, all else has one sentence a line.

    Raises:
        DataError: the file cannot be read (see `read_lines` in ``lines.py``) or is not in its form.
    """
    name, lines = Path(path).name, read_lines(path)
    if unpacked(Path(name)).suffix == ".xml" or name.startswith(f"{TAGS}."):
        return _parsed(lines, name, str(path))
    return TextSide(str(path), lines, range(1, len(lines) + 1))


def languages_of(archive: Path | str) -> set[str] | None:
    """The languages in an archive's name: de and en of ``de-en.tgz``; None where it has none."""
    found = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})\.(?:tgz|tar\.gz)", Path(archive).name)
    return set(found.groups()) if found else None


def read_archive(
    archive: Path | str, source: str, target: str, part: Literal["train", "test"]
) -> list[tuple[TextSide, TextSide]]:
    """Read the training text or the test sets of one pair of languages, without unpacking the archive to disk.

    The archive, a tar packed with gzip in WIT³'s layout, serves both directions; see ``archives.py``.
    ``part``: "train": the tagged text; "test": the five sets of `SETS`, in that order.

    Returns:
        (source side, target side) of every file, in order.

    Raises:
        DataError: the archive is missing or damaged; a member is missing, there twice, too large, or not in its form.
    """
    archive = Path(archive)
    languages = (source, target)
    sets = [name for name in SETS if ONLY.get(name, set(languages)) == set(languages)]
    forms = (
        ["{0}/train.tags.{0}.{1}"] if part == "train" else [f"{{0}}/IWSLT14.{name}.{{0}}.{{1}}.xml" for name in sets]
    )
    pairs = (f"{source}-{target}", f"{target}-{source}")
    members = _members(archive, {form.format(*names) for form in forms for names in product(pairs, languages)})
    pair = next((pair for pair in pairs if any(name.startswith(f"{pair}/") for name in members)), pairs[0])
    sides = []
    for form, language in product(forms, languages):
        name = form.format(pair, language)
        if name not in members:
            raise DataError(f"{archive}: there is no member {name}, expected it in each language")
        member, content = members[name]
        where = f"{archive}, {member}"
        sides.append(_parsed(decode_lines(split_lines([content]), where), name, where))
    return list(zip(sides[::2], sides[1::2], strict=True))


def _members(archive: Path, wanted: set[str]) -> dict[str, tuple[str, bytes]]:
    """Name and content of the regular members that are wanted, by the names that they have in the release of 2014."""

    def name_of(member: tarfile.TarInfo) -> str:
        return re.sub(r"/IWSLT\d+\.", "/IWSLT14.", member.name.removeprefix("./"))

    found: dict[str, tuple[str, bytes]] = {}
    for member, content in archives.members(archive, lambda member: name_of(member) in wanted, LARGEST):
        if (name := name_of(member)) in found:
            raise DataError(f"{archive}: the member {member.name} is there twice, expected once")
        if len(content) > LARGEST:
            raise DataError(f"{archive}: the member {member.name} has {member.size} bytes, expected at most {LARGEST}")
        found[name] = member.name, content
    return found


def _parsed(lines: list[str], file_name: str, name: str) -> TextSide:
    return _from_xml(lines, name) if unpacked(Path(file_name)).suffix == ".xml" else _from_tags(lines, name)


def _from_tags(lines: list[str], name: str) -> TextSide:
    """Lines about the talk are left out; of titles and descriptions the tags are taken off."""
    kept = [
        (number, TITLE_TAGS.sub("", line).strip())
        for number, line in enumerate(lines, start=1)
        if not ABOUT.match(line)
    ]
    if not kept:
        raise DataError(f"{name}: there is no sentence, expected one a line")
    return TextSide(name, [sentence for _, sentence in kept], [number for number, _ in kept])


def _from_xml(lines: list[str], name: str) -> TextSide:
    """The text of every ``<seg>``, with the typographic apostrophe as the plain one."""
    # As text, so that no declared encoding can hide a declaration: nothing that a file declares is ever resolved.
    text = "\n".join(lines)
    for declaration in DECLARATIONS:
        if declaration in text:
            raise DataError(f"{name}: found {declaration}, expected XML that declares no entities")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        line, column = error.position
        raise DataError(
            f"{name}, line {line}: not valid XML ({ErrorString(error.code)} at column {column + 1})"
        ) from None
    sentences, positions, doc = [], [], "?"
    for element in root.iter():
        if element.tag == "doc":
            doc = element.get("docid", "?")
        elif element.tag == "seg":
            sentence = "".join(element.itertext()).replace("\n", " ").replace("’", "'")
            sentences.append(sentence.strip())
            positions.append(f"doc {doc}, seg {element.get('id', '?')}")
    if not sentences:
        raise DataError(f"{name}: there is no <seg>, expected one for each sentence")
    return TextSide(name, sentences, positions, unit="segment")
