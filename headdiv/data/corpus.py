"""From a data set to word indices, kept on disk so that every run of an experiment shares one preparation."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from headdiv import places
from headdiv.config import DataConfig, Source, mistake
from headdiv.data import fetch, text, toy
from headdiv.data.batches import UNKNOWN, Pairs
from headdiv.data.words import Vocabulary, tokenize
from headdiv.files import read_json, replacing, short_hash, write_json

log = logging.getLogger(__name__)

PREPARATION = 1  # raised whenever the same text is turned into other indices
TOY_SEED = 1
TOY_TRAINING_PAIRS = 4000

Text = list[tuple[str, str]]


@dataclass(frozen=True)
class Split:
    """Sentence pairs as text and as word indices."""

    text: Text
    pairs: Pairs

    def statistics(self) -> dict[str, int | float]:
        """Pairs, words, and the share of words without an index (0 to 1), by side."""
        told: dict[str, int | float] = {"pairs": len(self.pairs)}
        for side, sentences in (("source", self.pairs.source), ("target", self.pairs.target)):
            words = np.concatenate(sentences)
            told[f"{side}_words"] = len(words)
            told[f"{side}_unknown_share"] = float((words == UNKNOWN).mean())
        return told


@dataclass(frozen=True)
class Corpus:
    """What a translation run needs of its data."""

    source: Vocabulary
    target: Vocabulary
    train: Split
    valid: Split
    test: Split

    def statistics(self) -> dict[str, dict[str, int | float]]:
        """Of every split, and the sizes of the vocabularies."""
        sizes = {"source": len(self.source), "target": len(self.target)}
        splits = {name: getattr(self, name).statistics() for name in ("train", "valid", "test")}
        return {"vocabulary": sizes, **splits}


def load_corpus(config: DataConfig) -> Corpus:
    """Read the prepared corpus; fetch and prepare it first where that has not been done.

    Raises:
        ConfigError: no such data set or split, or a language that it does not have.
        DataError: a file is missing or damaged, or could not be fetched.
    """
    folder = prepared_folder(config)
    if not (folder / "vocabulary.json").is_file():  # Snakemake makes the folder before it asks for the file
        _prepare(config, folder)
    vocabularies = {side: Vocabulary(words) for side, words in read_json(folder / "vocabulary.json").items()}
    splits = {}
    for name in ("train", "valid", "test"):
        arrays = load_file(folder / f"{name}.safetensors")
        sides = [_unflatten(arrays[f"{side}.words"], arrays[f"{side}.lengths"]) for side in ("source", "target")]
        lines = [tuple(pair) for pair in read_json(folder / f"{name}.json")]
        splits[name] = Split(lines, Pairs(*sides))
    return Corpus(**vocabularies, **splits)


def prepared_folder(config: DataConfig) -> Path:
    """Where the prepared corpus lies: named by all that decides its content, the files' checksums included."""
    check_data(config)
    if config.name == "toy":
        content: object = toy.VERSION
    else:
        content = {name: file.digest for name, file in fetch.load_registry()[config.name].files.items()}
    key = short_hash({"preparation": PREPARATION, "config": config.model_dump(mode="json"), "content": content})
    return places.prepared() / f"{config.name}-{key}"


def _prepare(config: DataConfig, folder: Path) -> None:
    splits = _toy(config) if config.name == "toy" else _public(config)
    log.info("preparing %s: %s pairs", config.name, " + ".join(str(len(lines)) for lines in splits.values()))
    words: dict[str, dict[str, list[list[str]]]] = {}
    for name, lines in splits.items():
        words[name] = {
            side: [tokenize(pair[at], language, config.lowercase) for pair in lines]
            for at, (side, language) in enumerate((("source", config.source), ("target", config.target)))
        }
    vocabularies = {side: Vocabulary.build(words["train"][side], config.min_frequency) for side in words["train"]}
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_json(temporary / "vocabulary.json", {side: v.words for side, v in vocabularies.items()})
        for name, sides in words.items():
            arrays = {}
            for side, sentences in sides.items():
                indices = [vocabularies[side].encode(sentence) for sentence in sentences]
                arrays[f"{side}.words"] = np.concatenate(indices)
                arrays[f"{side}.lengths"] = np.array([len(sentence) for sentence in indices], dtype=np.int32)
            save_file(arrays, temporary / f"{name}.safetensors")
            write_json(temporary / f"{name}.json", splits[name])


def _unflatten(words: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(words, np.cumsum(lengths)[:-1])


def _toy(config: DataConfig) -> dict[str, Text]:
    held_out = config.held_out_pairs
    return toy.splits(config.pairs or TOY_TRAINING_PAIRS, held_out, held_out, TOY_SEED)


def _public(config: DataConfig) -> dict[str, Text]:
    data_set = fetch.load_registry()[config.name]
    folder = fetch.fetch(config.name, places.raw())
    splits: dict[str, Text] = {}
    for name, wanted in (("train", "train"), ("valid", config.valid), ("test", config.test)):
        split = data_set.splits[wanted]
        source, target = (folder / split.files[language] for language in (config.source, config.target))
        lines = text.read_parallel(source, target, expected=split.count)
        splits[name] = lines[: config.pairs] if name == "train" else lines
    return splits


def check_data(config: DataConfig, at: tuple[str, ...] = ("data",), source: Source | None = None) -> None:
    """Hold a configuration against what there is, before anything runs.

    Args:
        config: the data's part of a configuration.
        at: keys that lead to it in its file.
        source: the file, if there is one.

    Raises:
        ConfigError: no such data set, split or language.
    """
    registry = fetch.load_registry()
    if config.name == "toy":
        choices = {"source": ["en"], "target": ["de"]}
    else:
        choices = {"name": [*registry, "toy"]}
        if config.name in registry:
            splits = registry[config.name].splits
            languages = list(splits["train"].files)
            choices = {"valid": list(splits), "test": list(splits), "source": languages, "target": languages}
    for key, known in choices.items():
        value = getattr(config, key)
        if value not in known:
            raise mistake((*at, key), f"{value!r} is not known; there are: {', '.join(sorted(known))}", source)
