"""Readers of the IWSLT evaluation's TED talks: tagged training text, XML test sets, and the archive of both.

A language pair's archive (``de-en.tgz`` of 2014, from WIT³) holds ``de-en/train.tags.de-en.de`` and ``.en``,
one sentence a line among lines about the talk, and test sets such as ``de-en/IWSLT14.TED.tst2010.de-en.de.xml``.
What is kept of them is what the script does that published results go by: ``prepare-iwslt14.sh`` of fairseq,
https://github.com/facebookresearch/fairseq/tree/main/examples/translation
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from headdiv.companion.data.readers import archives
from headdiv.companion.data.readers.lines import decode_lines, read_lines, split_lines, unpacked
from headdiv.companion.data.readers.parallel import TextSide
from headdiv.core.errors import DataError

TAGS = "train.tags"
SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # together the test set
ONLY = {"TEDX.dev2012": {"de", "en"}}  # sets that one pair of languages alone has
ABOUT = re.compile(r"\s*</?(?:doc|keywords|reviewer|speaker|talkid|translator|url)\b[^>]*>")  # begins such a line
TITLE_TAGS = re.compile(r"</?(?:title|description)>")  # around text that is kept


def read_side(path: Path | str) -> TextSide:
    """Read one side of a parallel text in the form that its name says, packed with gzip (``.gz``) or not.

    ``*.xml`` is a TED test set, ``train.tags.*`` is tagged training text, all else has one sentence a line.

    Raises:
        DataError: the file cannot be read (see `read_lines` in ``lines.py``) or is not in its form.
    """
    return _parsed(read_lines(path), Path(path), str(path))


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
        DataError: the archive is missing or damaged; a member is missing or not in its form.
    """
    archive = Path(archive)
    languages = (source, target)
    sets = [name for name in SETS if ONLY.get(name, set(languages)) == set(languages)]
    forms = (
        ["{0}/train.tags.{0}.{1}"] if part == "train" else [f"{{0}}/IWSLT14.{name}.{{0}}.{{1}}.xml" for name in sets]
    )
    pairs = (f"{source}-{target}", f"{target}-{source}")
    wanted = {form.format(*names) for form in forms for names in product(pairs, languages)}
    contents = {
        _name_of_2014(name): content
        for name, content in archives.members(archive, lambda name: _name_of_2014(name) in wanted)
    }
    pair = next((pair for pair in pairs if any(name.startswith(f"{pair}/") for name in contents)), pairs[0])
    sides = []
    for form, language in product(forms, languages):
        name = form.format(pair, language)
        if name not in contents:
            raise DataError(f"{archive}: there is no member {name}, expected it in each language")
        where = f"{archive}, {name}"
        sides.append(_parsed(decode_lines(split_lines([contents[name]]), where), Path(name), where))
    return list(zip(sides[::2], sides[1::2], strict=True))


def _name_of_2014(name: str) -> str:
    """A member's name as in the release of 2014."""
    return re.sub(r"/IWSLT\d+\.", "/IWSLT14.", name.removeprefix("./"))


def _parsed(lines: list[str], path: Path, name: str) -> TextSide:
    if unpacked(path).suffix == ".xml":
        return _from_xml(lines, name)
    if path.name.startswith(f"{TAGS}."):
        return _from_tags(lines, name)
    return TextSide(name, lines, [f"line {number}" for number in range(1, len(lines) + 1)])


def _from_tags(lines: list[str], name: str) -> TextSide:
    """Lines about the talk are left out; of titles and descriptions the tags are taken off."""
    sentences, places = [], []
    for number, line in enumerate(lines, start=1):
        if not ABOUT.match(line):
            sentences.append(TITLE_TAGS.sub("", line).strip())
            places.append(f"line {number}")
    return TextSide(name, sentences, places)


def _from_xml(lines: list[str], name: str) -> TextSide:
    """The text of every ``<seg>``, with the typographic apostrophe as the plain one."""
    try:
        root = ElementTree.fromstring("\n".join(lines))
    except ElementTree.ParseError as error:
        raise DataError(f"{name}: not valid XML ({error})") from None
    sentences, places, doc = [], [], "?"
    for element in root.iter():
        if element.tag == "doc":
            doc = element.get("docid", "?")
        elif element.tag == "seg":
            sentence = "".join(element.itertext()).replace("\n", " ").replace("’", "'")
            sentences.append(sentence.strip())
            places.append(f"doc {doc}, seg {element.get('id', '?')}")
    if not sentences:
        raise DataError(f"{name}: there is no <seg>, expected one for each sentence")
    return TextSide(name, sentences, places)
