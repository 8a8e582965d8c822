"""A profile for your own pairs of sentences, with the splits that it reads: `headdiv init --data`."""

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
FEWEST = 100  # different source sentences of one text that is split
HELD_OUT = 1000  # pairs in each of validation and test, at most a tenth of all
SPLIT_WORDS = {"train": "train", "valid": "valid", "val": "valid", "dev": "valid", "test": "test"}  # in files' names
NOT_NAMES = {*SPLIT_WORDS, ""}  # parts of files' names that do not name the text
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
# By the smallest number of training pairs: the largest number of merges, the model, and how it is trained.
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
    """Write a profile for your own pairs into a project, and their splits as plain text below its ``data``.

    Args:
        project: its folder.
        files: two texts, line by line, or one table of two columns (``.tsv``), which are split; or three times as
            many: training, validation and test, in this order.
        languages: source and target; by default what the files' names end in (``train.en``, ``pairs.en-fr.tsv``).

    Returns:
        The profile's file, ``config/<name>-<source>-<target>.yaml``.

    Raises:
        ConfigError: names without a language's code, names of other languages or of another split than their place
            says, another number of files, or a profile that exists already.
        DataError: a file that cannot be read, is empty, has no partner for a line, or is in two splits; too few pairs.
    """
    table = all(unpacked(file).suffix == ".tsv" for file in files)
    width = 1 if table else 2
    texts = [list(files[start : start + width]) for start in range(0, len(files), width)]
    if len(files) not in (width, 3 * width):
        names = ", ".join(map(str, files)) or "none"
        raise ConfigError(f"--data: expected two texts or one .tsv, or three times as many; found {names}")
    if len(texts) == len(SPLITS):
        _refuse_misplaced(texts)
    source, target = languages or _infer_languages(texts[0])
    for text in texts[1:] if languages is None else ():
        if (found := _infer_languages(text)) != (source, target):
            expected = f"{source} and {target}, in the training text's order"
            raise ConfigError(f"{' and '.join(map(str, text))}: found {' and '.join(found)}, expected {expected}")
    for code in languages or ():
        if code not in CODES and not re.fullmatch("[a-z]{3}", code):
            raise ConfigError(f"--languages: {code!r} is no language's code (ISO 639)")
    if source == target:
        raise ConfigError(f"{' and '.join(map(str, texts[0]))}: expected two languages, found {source!r} twice")
    name = _infer_name(texts[0][0])
    profile = project / "config" / f"{name}-{source}-{target}.yaml"
    if profile.exists():
        raise ConfigError(f"{profile}: is there already; remove it, and it is written anew")
    bad_records = BadRecords(strict=False)
    pairs_of_texts = [_read_pairs(text, bad_records) for text in texts]
    for text, pairs in zip(texts, pairs_of_texts, strict=True):
        if not pairs:
            raise DataError(f"{' and '.join(map(str, text))}: expected a pair at least without an empty sentence")
    refuse_shared(dict(zip(SPLITS, texts, strict=False)))
    title = " and ".join(file.name for file in texts[0])
    if len(texts) == 1:
        splits, step = _split_pairs(pairs_of_texts[0], title)
        origin = (
            f"{len(pairs_of_texts[0]):,} pairs of {title}; of its different source sentences, number 1, {step + 1}, … "
            f"are for validation,\n# number 2, {step + 2}, … for test: none is in two splits."
        )
    else:
        splits = dict(zip(SPLITS, pairs_of_texts, strict=True))
        origin = f"Training pairs of {title}; validation and test have files of their own."
    if left_out := bad_records.counts.total():
        origin += f" {left_out:,} pairs with an empty sentence are left out."
    for split, pairs in splits.items():
        for language, sentences in zip((source, target), zip(*pairs, strict=True), strict=True):
            write_text(project / "data" / profile.stem / f"{split}.{language}", "\n".join([*sentences, ""]))
    count = len(splits["train"])
    max_merges, model, train = SIZES[max(threshold for threshold in SIZES if threshold <= count)]
    merges = min(max_merges, _count_merges(splits["train"], source, target))
    values = {"origin": origin, "name": name, "source": source, "target": target, "folder": f"data/{profile.stem}"}
    values |= {"merges": f"\n      merges: {merges}" if merges else "", "model": model, "train": train}
    write_text(profile, PROFILE.format(**values, count=count))
    return profile


def _refuse_misplaced(texts: list[list[Path]]) -> None:
    """Raise ConfigError where the name of a file is that of another split than it stands for."""
    for split, text in zip(SPLITS, texts, strict=True):
        for file in text:
            named = [SPLIT_WORDS[part.lower()] for part in _name_parts(file) if part.lower() in SPLIT_WORDS]
            if named and split not in named:
                order = "files for train, valid and test in this order"
                raise ConfigError(f"{file}: found a name of {named[0]} in the place of {split}; expected {order}")


def _infer_languages(text: list[Path]) -> tuple[str, str]:
    """The codes at the end of the files' names, before .txt or .tsv: one of each file, both of a table."""
    is_table = len(text) == 1
    parts = [part for file in text for part in _name_parts(file)[-2 if is_table else -1 :]]
    unknown = [part for part in parts if part not in CODES]
    if unknown or len(parts) != 2:
        names = "pairs.en-fr.tsv" if is_table else "train.en and train.fr"
        reason = f"{unknown[0]!r} is no language's code (ISO 639-1)" if unknown else "the name has no two languages"
        file = text[0] if is_table else text[parts.index(unknown[0])]
        raise ConfigError(f"{file}: {reason}; expected names such as {names}, or `--languages en fr`")
    return parts[0], parts[1]


def _name_parts(file: Path) -> list[str]:
    name = unpacked(file).name
    return re.split(r"[._-]", re.sub(r"\.(txt|tsv|xml)$", "", name))


def _infer_name(file: Path) -> str:
    """The text's name in the profile: the words of its file's name besides languages and splits, else "pairs"."""
    words = [part for part in _name_parts(file) if re.fullmatch("[A-Za-z0-9]+", part)]
    words = [word for word in words if word.lower() not in NOT_NAMES | CODES | {"toy"}]
    return "-".join(words) or "pairs"


def _read_pairs(text: list[Path], bad_records: BadRecords) -> Pairs:
    if len(text) == 2:
        return pair_sides(read_side(text[0]), read_side(text[1]), bad_records)
    (file,) = text
    rows = [line.split("\t") for line in read_lines(file)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise DataError(f"{file}, line {number}: expected two columns with a tab between them, found {len(row)}")
    places = [f"line {number}" for number in range(1, len(rows) + 1)]
    source, target = (TextSide(str(file), [row[column] for row in rows], places) for column in (0, 1))
    return pair_sides(source, target, bad_records)


def _split_pairs(pairs: Pairs, title: str) -> tuple[dict[str, Pairs], int]:
    """The splits, no two of which have the same source sentence, and the distance between held-out sentences."""
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentence for sentence, _ in pairs))}
    if len(numbers) < FEWEST:
        raise DataError(f"{title}: found {len(numbers)} different source sentences, expected at least {FEWEST}")
    step = max(10, len(numbers) // HELD_OUT)
    splits: dict[str, Pairs] = {split: [] for split in SPLITS}
    for pair in pairs:
        split = {0: "valid", 1: "test"}.get(numbers[pair[0]] % step, "train")
        splits[split].append(pair)
    return splits, step


def _count_merges(pairs: Pairs, source: str, target: str) -> int:
    """How many merges the text has at least: one for each word that occurs twice."""
    words = (
        tokenize_all([pair[side] for pair in pairs], language, tokenizer="lossless", lowercase=False)
        for side, language in enumerate((source, target))
    )
    counts = Counter(chain.from_iterable(chain.from_iterable(words)))
    return sum(count > 1 and len(word) > 1 for word, count in counts.items())
