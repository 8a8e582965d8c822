"""A profile for one's own pairs of sentences, with the splits that it reads: `headdiv init --data`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from headdiv.companion.data.cache import refuse_shared
from headdiv.companion.data.readers.lines import BadRecords, read_lines, unpacked
from headdiv.companion.data.readers.parallel import TextSide, pair_sides, read_side
from headdiv.companion.data.tokenization.words import tokenize_all
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import write_text

SPLITS = ("train", "valid", "test")
FEWEST = 100  # pairs of one text that is split
HELD_OUT = 1000  # pairs in each of validation and test, at most a tenth of all
NOT_NAMES = {*SPLITS, "val", "dev", ""}  # of a text: what its files are called says nothing about it
# ISO 639-1; a language without a code of two letters has to be named by --languages.
CODES = set(
    re.findall(
        r"\w\w",
        "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en"
        "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja"
        "jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb"
        "nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq"
        "sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu",
    )
)
# From so many training pairs on: at most so many merges, the model, and how it is trained.
SIZES = {
    0: (1000, "d_model: 64, heads: 8, d_ff: 128, encoder_layers: 1, decoder_layers: 1",
        "epochs: 20, tokens_per_batch: 500, learning_rate: 4.0e-3, warmup_steps: 60"),
    5_000: (4000, "d_model: 128, heads: 8, d_ff: 256, encoder_layers: 2, decoder_layers: 2",
            "epochs: 20, tokens_per_batch: 2000, learning_rate: 2.0e-3, warmup_steps: 200"),
    20_000: (8000, "d_model: 256, heads: 8, d_ff: 512, encoder_layers: 2, decoder_layers: 2",
             "epochs: 10, tokens_per_batch: 4000, learning_rate: 1.0e-3, warmup_steps: 800"),
    200_000: (16000, "d_model: 256, heads: 8, d_ff: 1024, encoder_layers: 4, decoder_layers: 4",
              "epochs: 5, tokens_per_batch: 8000, learning_rate: 1.0e-3, warmup_steps: 2000"),
}  # fmt: skip
# Quoted, since YAML takes Norwegian's code for false.
PROFILE = """\
# {origin}
title: {name}, {source} to {target}
seeds: [1]  # differences are judged from two seeds on: [1, 2, 3]
experiments:
  deacon/translation:
    variants: [baseline, direct-8]
    data:
      name: "{name}"
      source: "{source}"
      target: "{target}"
      files:
        train: {{"{source}": {folder}/train.{source}, "{target}": {folder}/train.{target}}}
        valid: {{"{source}": {folder}/valid.{source}, "{target}": {folder}/valid.{target}}}
        test: {{"{source}": {folder}/test.{source}, "{target}": {folder}/test.{target}}}
      tokenizer: lossless{merges}
      min_frequency: 1
    # For {count:,} training pairs.
    model: {{{model}}}
    train: {{{train}}}
"""

Pairs = list[tuple[str, str]]


def write_profile(project: Path, files: Sequence[Path], languages: tuple[str, str] | None = None) -> Path:
    """Write a profile for one's own pairs into a project, and their splits as plain text below its ``data``.

    Args:
        project: its folder.
        files: two texts, line by line, or one table of two columns (``.tsv``): it is split. Three times as many:
            training, validation and test.
        languages: source and target; by default what the files' names end in (``train.en``, ``pairs.en-fr.tsv``).

    Returns:
        The profile's file, ``config/<name>-<source>-<target>.yaml``.

    Raises:
        ConfigError: names without a language's code, another number of files, or a profile that is there already.
        DataError: a file that cannot be read, is empty, has no partner for a line, or is in two splits; too few pairs.
    """
    table = all(unpacked(file).suffix == ".tsv" for file in files)
    width = 1 if table else 2
    texts = [list(files[at : at + width]) for at in range(0, len(files), width)]
    if len(files) not in (width, 3 * width):
        found = ", ".join(map(str, files)) or "none"
        raise ConfigError(f"--data: expected two texts or one .tsv, or three times as many; found {found}")
    source, target = languages or _languages(texts[0])
    for code in languages or ():
        if code not in CODES and not re.fullmatch("[a-z]{3}", code):
            raise ConfigError(f"--languages: {code!r} is no language's code (ISO 639)")
    if source == target:
        raise ConfigError(f"{' and '.join(map(str, texts[0]))}: expected two languages, found {source!r} twice")
    name = _name(texts[0][0])
    profile = project / "config" / f"{name}-{source}-{target}.yaml"
    if profile.exists():
        raise ConfigError(f"{profile}: is there already; remove it, and it is written anew")
    unusable = BadRecords(strict=False)
    read = [_pairs(text, unusable) for text in texts]
    refuse_shared(dict(zip(SPLITS, texts, strict=False)))
    named = " and ".join(file.name for file in texts[0])
    if len(read) == 1:
        splits, every = _split(read[0], named)
        origin = (
            f"{len(read[0]):,} pairs of {named}; of its different source sentences, number 1, {every + 1}, … are for "
            f"validation,\n# number 2, {every + 2}, … for test: none is in two splits."
        )
    else:
        splits = dict(zip(SPLITS, read, strict=True))
        origin = f"Training pairs of {named}; validation and test have files of their own."
    if left_out := unusable.counts.total():
        origin += f" {left_out:,} pairs with an empty sentence are left out."
    for split, pairs in splits.items():
        for language, sentences in zip((source, target), zip(*pairs, strict=True), strict=True):
            write_text(project / "data" / profile.stem / f"{split}.{language}", "\n".join([*sentences, ""]))
    most, model, train = SIZES[max(fewest for fewest in SIZES if fewest <= len(splits["train"]))]
    merges = min(most, _merges(splits["train"], source, target))
    values = {"origin": origin, "name": name, "source": source, "target": target, "folder": f"data/{profile.stem}"}
    values |= {"merges": f"\n      merges: {merges}" if merges else "", "model": model, "train": train}
    write_text(profile, PROFILE.format(**values, count=len(splits["train"])))
    return profile


def _languages(text: list[Path]) -> tuple[str, str]:
    """What the files' names end in, before .txt or .tsv: one code each, both codes of a table."""
    parts = [part for file in text for part in _parts(file)[-2 if len(text) == 1 else -1 :]]
    wrong = [part for part in parts if part not in CODES]
    if wrong or len(parts) != 2:
        names = "pairs.en-fr.tsv" if len(text) == 1 else "train.en and train.fr"
        what = f"{wrong[0]!r} is no language's code (ISO 639-1)" if wrong else "the name has no two languages"
        found = text[0] if len(text) == 1 else text[parts.index(wrong[0])]
        raise ConfigError(f"{found}: {what}; expected names such as {names}, or `--languages en fr`")
    return parts[0], parts[1]


def _parts(file: Path) -> list[str]:
    name = unpacked(file).name
    return re.split(r"[._-]", re.sub(r"\.(txt|tsv|xml)$", "", name))


def _name(file: Path) -> str:
    """What the text is called in the profile: how its files' names begin, unless that says nothing."""
    words = [part for part in _parts(file) if re.fullmatch("[A-Za-z0-9]+", part)]
    words = [word for word in words if word.lower() not in NOT_NAMES | CODES | {"toy"}]
    return "-".join(words) or "pairs"


def _pairs(text: list[Path], unusable: BadRecords) -> Pairs:
    if len(text) == 2:
        return pair_sides(read_side(text[0]), read_side(text[1]), unusable)
    (file,) = text
    rows = [line.split("\t") for line in read_lines(file)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise DataError(f"{file}, line {number}: expected two columns with a tab between them, found {len(row)}")
    places = [f"line {number}" for number in range(1, len(rows) + 1)]
    return pair_sides(*(TextSide(str(file), [row[at] for row in rows], places) for at in (0, 1)), unusable)


def _split(pairs: Pairs, named: str) -> tuple[dict[str, Pairs], int]:
    """The splits, in which no source sentence is twice, and the distance of those that are held out."""
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentence for sentence, _ in pairs))}
    if len(numbers) < FEWEST:
        raise DataError(f"{named}: found {len(numbers)} different source sentences, expected at least {FEWEST}")
    every = max(10, len(numbers) // HELD_OUT)
    splits: dict[str, Pairs] = {split: [] for split in SPLITS}
    for pair in pairs:
        split = {0: "valid", 1: "test"}.get(numbers[pair[0]] % every, "train")
        splits[split].append(pair)
    return splits, every


def _merges(pairs: Pairs, source: str, target: str) -> int:
    """How many merges the text has for certain: one for each word that is seen twice."""
    sides = [[pair[at] for pair in pairs] for at in (0, 1)]
    words = (
        tokenize_all(side, language, tokenizer="lossless", lowercase=False)
        for side, language in zip(sides, (source, target), strict=True)
    )
    counts = Counter(chain.from_iterable(chain.from_iterable(words)))
    return sum(count > 1 and len(word) > 1 for word, count in counts.items())
