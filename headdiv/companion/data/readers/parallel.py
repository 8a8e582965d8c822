"""Readers of parallel text: plain lines, and TED talks as tagged text, XML test sets, and the archive of both.

A language pair's archive (``de-en.tgz`` of 2014, from WIT³) holds ``de-en/train.tags.de-en.de`` and ``.en``,
one sentence a line among lines about the talk, and test sets such as ``de-en/IWSLT14.TED.tst2010.de-en.de.xml``.
The same text of them is kept as by the script behind published results, ``prepare-iwslt14.sh`` of fairseq:
https://github.com/facebookresearch/fairseq/tree/main/examples/translation
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from headdiv.companion.data.readers.lines import (
    BadRecordError,
    BadRecords,
    decode_lines,
    is_empty,
    members,
    read_lines,
    split_lines,
    unpacked,
)
from headdiv.core.errors import DataError

TAGS = "train.tags"
SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")  # together the test set
ONLY = {"TEDX.dev2012": {"de", "en"}}  # sets that exist for one pair of languages only
ABOUT = re.compile(r"\s*</?(?:doc|keywords|reviewer|speaker|talkid|translator|url)\b[^>]*>")  # begins a line to drop
TITLE_TAGS = re.compile(r"</?(?:title|description)>")  # around text that is kept


class TextSide(NamedTuple):
    """One side of a parallel text.

    Attributes:
        name: for messages: the file, or an archive and its member.
        sentences: in order.
        places: where each stands: "line 3", "doc 69, seg 1".
    """

    name: str
    sentences: list[str]
    places: list[str]


def pair_sides(
    source: TextSide, target: TextSide, bad_records: BadRecords, keep_empty: bool = False
) -> list[tuple[str, str]]:
    """The pairs (source sentence, target sentence) of two texts.

    Args:
        source, target: the texts.
        bad_records: gets pairs with an empty sentence.
        keep_empty: keep such pairs instead.

    Raises:
        DataError: the sides have unequal numbers of sentences, or a sentence is empty and records are read strictly.
    """
    shorter, longer = sorted((source, target), key=lambda side: len(side.sentences))
    count = len(shorter.sentences)
    if len(longer.sentences) > count:
        raise DataError(
            f"{longer.name}, {longer.places[count]}: has no partner, {shorter.name} ends at sentence {count:,}; "
            "expected equally many"
        )
    pairs = []
    for number, pair in enumerate(zip(source.sentences, target.sentences, strict=True)):
        side = source if is_empty(pair[0]) else target
        with bad_records.at(f"{side.name}, {side.places[number]}"):
            if not keep_empty and any(map(is_empty, pair)):
                raise BadRecordError("the sentence is empty")
            pairs.append(pair)
    return pairs


def read_side(path: Path | str) -> TextSide:
    """Read one side of a parallel text in the form that its name says, packed or not.

    ``*.xml`` is a TED test set, ``train.tags.*`` is tagged training text; any other file has one sentence a line.

    Raises:
        DataError: the file cannot be read (see `read_lines`) or is not in its form.
    """
    return _parse(read_lines(path), Path(path), str(path))


def read_archive(archive: Path, source: str, target: str, split: str) -> list[tuple[TextSide, TextSide]]:
    """Read the tagged training text (split "train") or the test sets of `SETS` (any other split) of two languages.

    The archive, in the layout of WIT³'s release of 2014, serves both directions.

    Returns:
        (source side, target side) of every file, in order.

    Raises:
        DataError: the archive is missing or damaged; a member is missing or not in its form.
    """
    languages = (source, target)
    if split == "train":
        patterns = ["{0}/train.tags.{0}.{1}"]
    else:
        sets = [name for name in SETS if ONLY.get(name, set(languages)) == set(languages)]
        patterns = [f"{{0}}/IWSLT14.{name}.{{0}}.{{1}}.xml" for name in sets]
    pairs = (f"{source}-{target}", f"{target}-{source}")
    names = {pattern.format(pair, language) for pattern, pair, language in product(patterns, pairs, languages)}
    contents = dict(members(archive, names.__contains__))
    pair = next((pair for pair in pairs if any(name.startswith(f"{pair}/") for name in contents)), pairs[0])
    sides = []
    for pattern, language in product(patterns, languages):
        name = pattern.format(pair, language)
        if name not in contents:
            raise DataError(f"{archive}: there is no member {name}, expected it in each language")
        member = f"{archive}, {name}"
        sides.append(_parse(decode_lines(split_lines([contents[name]]), member), Path(name), member))
    return list(zip(sides[::2], sides[1::2], strict=True))


def _parse(lines: list[str], path: Path, name: str) -> TextSide:
    if unpacked(path).suffix == ".xml":
        return _parse_xml(lines, name)
    sentences = {f"line {number}": line for number, line in enumerate(lines, start=1)}
    if path.name.startswith(f"{TAGS}."):  # without lines about the talk, and without tags of titles and descriptions
        sentences = {
            place: TITLE_TAGS.sub("", line).strip() for place, line in sentences.items() if not ABOUT.match(line)
        }
    return TextSide(name, list(sentences.values()), list(sentences))


def _parse_xml(lines: list[str], name: str) -> TextSide:
    """The text of every ``<seg>``, with plain apostrophes in place of typographic ones."""
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
