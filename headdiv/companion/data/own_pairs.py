"""A profile for one's own pairs of sentences, with the splits that it reads: `headdiv init --data`."""

from __future__ import annotations

import re
from pathlib import Path

from headdiv.companion.data.readers.lines import BadRecords, unpacked
from headdiv.companion.data.readers.parallel import pair_sides, read_side
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import write_text

FEWEST = 100  # different source sentences
HELD_OUT = 1000  # source sentences in each of validation and test, at most a tenth of all
# From so many training pairs on: merges, the model, and how it is trained.
SIZES = {
    0: ("null", "d_model: 64, heads: 8, d_ff: 128, encoder_layers: 1, decoder_layers: 1",
        "epochs: 20, tokens_per_batch: 500, learning_rate: 4.0e-3, warmup_steps: 60"),
    5_000: ("4000", "d_model: 128, heads: 8, d_ff: 256, encoder_layers: 2, decoder_layers: 2",
            "epochs: 20, tokens_per_batch: 2000, learning_rate: 2.0e-3, warmup_steps: 200"),
    20_000: ("8000", "d_model: 256, heads: 8, d_ff: 512, encoder_layers: 2, decoder_layers: 2",
             "epochs: 10, tokens_per_batch: 4000, learning_rate: 1.0e-3, warmup_steps: 800"),
    200_000: ("16000", "d_model: 256, heads: 8, d_ff: 1024, encoder_layers: 4, decoder_layers: 4",
              "epochs: 5, tokens_per_batch: 8000, learning_rate: 1.0e-3, warmup_steps: 2000"),
}  # fmt: skip
# Quoted, since YAML takes Norwegian's code for false.
PROFILE = """\
# {origin}
title: pairs, {source} to {target}
seeds: [1]  # differences are judged from two seeds on: [1, 2, 3]
experiments:
  deacon/translation:
    variants: [baseline, direct-8]
    data:
      name: pairs
      source: "{source}"
      target: "{target}"
      files:
        train: {{"{source}": {folder}/train.{source}, "{target}": {folder}/train.{target}}}
        valid: {{"{source}": {folder}/valid.{source}, "{target}": {folder}/valid.{target}}}
        test: {{"{source}": {folder}/test.{source}, "{target}": {folder}/test.{target}}}
      tokenizer: lossless
      merges: {merges}
      min_frequency: 1
    # For {count:,} training pairs.
    model: {{{model}}}
    train: {{{train}}}
"""


def write_profile(project: Path, source_file: Path, target_file: Path) -> Path:
    """Write a profile for one's own pairs into a project, and their splits as plain text below its ``data``.

    No source sentence is in two splits.

    Args:
        project: its folder.
        source_file: a sentence a line, packed or not; its name ends in the language's code (``train.en``).
        target_file: the translations, line for line.

    Returns:
        The profile's file, ``config/pairs-<source>-<target>.yaml``.

    Raises:
        ConfigError: a name without a language's code, one language twice, or a profile that is there already.
        DataError: a file that cannot be read or is empty, a line without a partner, or too few pairs.
    """
    files = (source_file, target_file)
    source, target = (unpacked(file).suffix.removeprefix(".") for file in files)
    for file, code in zip(files, (source, target), strict=True):
        if not re.fullmatch("[a-z]{2,3}", code):
            raise ConfigError(f"{file}: expected a name that ends in a language's code, such as train.en")
    if source == target:
        raise ConfigError(f"{source_file} and {target_file}: expected two languages, found {source!r} twice")
    profile = project / "config" / f"pairs-{source}-{target}.yaml"
    if profile.exists():
        raise ConfigError(f"{profile}: is there already; remove it, and it is written anew")
    unusable = BadRecords(strict=False)
    pairs = pair_sides(*map(read_side, files), unusable)
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentence for sentence, _ in pairs))}
    if len(numbers) < FEWEST:
        raise DataError(f"{source_file}: found {len(numbers)} different sentences, expected at least {FEWEST}")
    every = max(10, len(numbers) // HELD_OUT)
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for pair in pairs:
        splits[{0: "valid", 1: "test"}.get(numbers[pair[0]] % every, "train")].append(pair)
    origin = (
        f"{len(pairs):,} pairs of {source_file.name} and {target_file.name}; of the different source sentences every "
        f"{every}th\n# is for validation, and the next one for test."
    )
    if left_out := unusable.counts.total():
        origin += f" {left_out:,} pairs with an empty sentence are left out."
    for split, chosen in splits.items():
        for language, sentences in zip((source, target), zip(*chosen, strict=True), strict=True):
            write_text(project / "data" / profile.stem / f"{split}.{language}", "\n".join([*sentences, ""]))
    count = len(splits["train"])
    merges, model, train = SIZES[max(fewest for fewest in SIZES if fewest <= count)]
    values = {"origin": origin, "source": source, "target": target, "folder": f"data/{profile.stem}"}
    write_text(profile, PROFILE.format(**values, count=count, merges=merges, model=model, train=train))
    return profile
