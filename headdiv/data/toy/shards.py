r"""A seeded toy corpus for language modelling: shards of documents of seven sources in SlimPajama's form.

Every text comes from the toy grammar, and its form tells its source: a line of links above sentences
(RedPajamaCommonCrawl), sentences alone (RedPajamaC4), functions of Python whose names are verbs and whose
arguments are nouns (RedPajamaGithub), a long chapter (RedPajamaBook), sentences about the noun in the
title (RedPajamaWikipedia), LaTeX with true sums (RedPajamaArXiv), questions and answers
(RedPajamaStackExchange).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import zstandard

from headdiv.core.errors import ConfigError
from headdiv.core.files import replacing
from headdiv.data.toy.documents import askable, pick
from headdiv.data.toy.grammar import Noun, Sentence, english, lexicon
from headdiv.data.toy.translation import sentences

SHARES = {  # documents in a thousand; near SlimPajama's shares of tokens
    "RedPajamaCommonCrawl": 522,
    "RedPajamaC4": 267,
    "RedPajamaGithub": 52,
    "RedPajamaBook": 42,
    "RedPajamaArXiv": 46,
    "RedPajamaWikipedia": 38,
    "RedPajamaStackExchange": 33,
}
TEXT_WORDS = 20, 150  # fewest and most words of a document, between white space
TRAIN_SHARDS = 3
FEWEST_DOCUMENTS = 10 * len(SHARES)  # a tenth of them has one document of each source
_LEVEL = 3  # of zstandard; written out so that the bytes do not hang on a default
_Stream = Iterator[tuple[str, Sentence]]


def write_shards(folder: Path | str, documents: int, seed: int) -> dict[str, list[Path]]:
    r"""Write shards of JSON lines, packed with zstandard, and give their paths by split.

    ``train-0.jsonl.zst`` to ``train-2.jsonl.zst`` share what ``valid-0.jsonl.zst`` and
    ``test-0.jsonl.zst`` leave, which have a tenth of the documents each. A line is
    ``{"text": …, "meta": {"redpajama_set_name": …}}``. Every shard mixes all seven sources in the
    proportions of `SHARES`; no text occurs twice in the corpus; a text has `TEXT_WORDS`. A shard is a
    single frame with its content's size and a checksum. The same arguments give the same text everywhere,
    and the same bytes with the same release of the zstandard library.

    Args:
        folder: where to write; made if it is missing. Shards that are there already are replaced.
        documents: number of documents in all shards together.
        seed: seed of the draws.

    Returns:
        The paths under "train", "valid" and "test", in order.

    Raises:
        ConfigError: `documents` is under `FEWEST_DOCUMENTS`.
    """
    if documents < FEWEST_DOCUMENTS:
        raise ConfigError(
            f"toy shards: the number of documents is {documents}, expected {FEWEST_DOCUMENTS} or more, "
            "so that every shard has every source"
        )
    held_out = documents // 10
    train = documents - 2 * held_out
    sizes = {"test-0": held_out, "valid-0": held_out}
    sizes |= {f"train-{n}": (train + n) // TRAIN_SHARDS for n in range(TRAIN_SHARDS)}
    source = random.Random(seed)
    stream = sentences(source)
    used: set[str] = set()
    paths: dict[str, list[Path]] = {"train": [], "valid": [], "test": []}
    for name, size in sizes.items():
        # Only random() is called, as in all toy corpora; shuffle() is not promised to stay as it is.
        names = [kind for kind, number in source_counts(size).items() for _ in range(number)]
        names.sort(key=lambda _: source.random())
        lines = [_line(_document(kind, source, stream, used), kind) for kind in names]
        path = Path(folder) / f"{name}.jsonl.zst"
        _write(path, "".join(lines))
        paths[name.partition("-")[0]].append(path)
    return paths


def source_counts(documents: int) -> dict[str, int]:
    """How many of a shard's documents are of which source, in the proportions of `SHARES`.

    Shares are rounded down and what is left goes to those with the largest remainders. A source that gets
    nothing takes one document from the most frequent one; there must be at least as many documents as
    sources.
    """
    whole = sum(SHARES.values())
    counts = {kind: documents * share // whole for kind, share in SHARES.items()}
    left = documents - sum(counts.values())
    for kind in sorted(SHARES, key=lambda kind: -(documents * SHARES[kind] % whole))[:left]:
        counts[kind] += 1
    for kind in counts:
        if not counts[kind]:
            counts[max(counts, key=counts.__getitem__)] -= 1
            counts[kind] = 1
    return counts


def _line(text: str, kind: str) -> str:
    return json.dumps({"text": text, "meta": {"redpajama_set_name": kind}}, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True, threads=0)
    with replacing(path) as temporary:
        temporary.write_bytes(packer.compress(text.encode("utf-8")))


def _document(kind: str, source: random.Random, stream: _Stream, used: set[str]) -> str:
    """A new text of a source, of a length within `TEXT_WORDS`."""
    while True:
        text = _WRITERS[kind](source, stream)
        if text not in used and TEXT_WORDS[0] <= len(text.split()) <= TEXT_WORDS[1]:
            used.add(text)
            return text


def _some(stream: _Stream, number: int) -> str:
    return " ".join(text for text, _ in islice(stream, number))


def _title(noun: Noun, plural: bool = False) -> str:
    return noun.english[plural].capitalize()


def _nouns(source: random.Random, number: int, kinds: tuple[str, ...] = ()) -> list[Noun]:
    """Distinct nouns, of any kind if none is named."""
    every = [noun for noun in lexicon().nouns.values() if not noun.pronoun and (not kinds or noun.kind in kinds)]
    return sorted(every, key=lambda _: source.random())[:number]


def _common_crawl(source: random.Random, stream: _Stream) -> str:
    links = " | ".join(["Home", *(_title(noun, plural=True) for noun in _nouns(source, 3)), "Contact"])
    return f"{links}\n{_some(stream, pick(source, (3, 4, 5)))}"


def _c4(source: random.Random, stream: _Stream) -> str:
    return _some(stream, pick(source, (3, 4, 5, 6)))


def _book(source: random.Random, stream: _Stream) -> str:
    parts = [_some(stream, pick(source, (3, 4, 5))) for _ in range(2)]
    return "\n\n".join([f"Chapter {pick(source, range(1, 21))}", *parts])


def _wikipedia(source: random.Random, stream: _Stream) -> str:
    """Sentences whose subjects are of the topic's kind, so that its noun can take their nouns' place."""
    topic = _nouns(source, 1, ("person", "animal"))[0]
    about: list[str] = []
    number = pick(source, (3, 4, 5))
    while len(about) < number:
        _, tree = next(stream)
        subject = tree.main.subject
        if subject.noun.kind == topic.kind and not subject.noun.pronoun:
            main = replace(tree.main, subject=replace(subject, noun=topic))
            about.append(english(replace(tree, main=main)))
    return f"= {_title(topic)} =\n\n{' '.join(about)}"


def _github(source: random.Random, stream: _Stream) -> str:
    """Functions made of clauses with one object: def verb(subject, object)."""
    functions: list[str] = []
    names: set[str] = set()
    number = pick(source, (2, 3, 4))
    while len(functions) < number:
        clause = next(stream)[1].main
        nouns = [phrase.noun for phrase in (clause.subject, *clause.objects)]
        name = clause.verb.english[0].replace(" ", "_")
        if len(nouns) != 2 or nouns[0] == nouns[1] or nouns[0].pronoun or nouns[1].pronoun or name in names:
            continue
        names.add(name)
        one, other = (noun.english[0] for noun in nouns)
        adjective = pick(source, ("old", "big", "small", "beautiful"))  # they go with nearly every noun
        body = pick(
            source,
            (
                f"    if {other}.{adjective}:\n        return {one}.{name}({other})\n    return None\n",
                f"    for {one} in {nouns[0].english[1]}:\n        {one}.{name}({other})\n",
                f"    {one}.{adjective} = True\n    return {one}.{name}({other})\n",
            ),
        )
        arguments = f"{nouns[0].english[1]}, {other}" if body.startswith("    for") else f"{one}, {other}"
        functions.append(f"def {name}({arguments}):\n{body}")
    return "\n\n".join(functions)


def _arxiv(source: random.Random, stream: _Stream) -> str:
    parts = [rf"\section{{{_title(_nouns(source, 1)[0], plural=True)}}}"]
    for number in range(1, pick(source, (2, 3)) + 1):
        a, b = pick(source, range(1, 10)), pick(source, range(1, 10))
        parts.append(f"{_some(stream, 2)}\nLemma {number}. Let $a = {a}$ and $b = {b}$. Then $a + b = {a + b}$.")
    return "\n".join(parts)


def _stack_exchange(source: random.Random, stream: _Stream) -> str:
    """Questions, each answered by the whole sentence that it is about."""
    parts: list[str] = []
    number = pick(source, (2, 3, 4))
    while len(parts) < number:
        text, tree = next(stream)
        if asked := askable([tree]):
            parts.append(f"Q: {pick(source, asked)[0]}\nA: {text}")
    return "\n\n".join(parts)


_WRITERS: dict[str, Callable[[random.Random, _Stream], str]] = {
    "RedPajamaCommonCrawl": _common_crawl,
    "RedPajamaC4": _c4,
    "RedPajamaGithub": _github,
    "RedPajamaBook": _book,
    "RedPajamaArXiv": _arxiv,
    "RedPajamaWikipedia": _wikipedia,
    "RedPajamaStackExchange": _stack_exchange,
}
