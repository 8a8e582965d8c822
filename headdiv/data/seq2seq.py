"""Corpora of source and target text: sentences and their translations, documents and their summaries."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from headdiv.config import SummarisationData, TranslationData, WordsConfig
from headdiv.data import sources, text, toy, toy_documents, xsum
from headdiv.data.batches import END, UNKNOWN, Pairs
from headdiv.data.refusals import Refusals
from headdiv.data.words import Vocabulary, tokenize_all
from headdiv.errors import DataError
from headdiv.files import read_json, write_json

log = logging.getLogger(__name__)

TOY_SEED = 1
TOY_EXAMPLES = 4000

Text = list[tuple[str, str]]


@dataclass(frozen=True)
class Split:
    """Pairs of texts, as text and as word indices."""

    text: Text  # empty for training: nobody asks for it
    pairs: Pairs


@dataclass(frozen=True)
class Corpus:
    """What a run needs of its data."""

    source: Vocabulary
    target: Vocabulary
    train: Split
    valid: Split
    test: Split
    statistics: dict[str, Any]  # sizes of the vocabularies; of every split, counts and shares


def load_translation(config: TranslationData) -> Corpus:
    """Read the prepared corpus; fetch and prepare it first where that has not been done.

    Raises:
        DataError: a file is missing or damaged, or could not be fetched.
    """
    return _load(sources.prepared(config, _prepare_translation))


def load_summarisation(config: SummarisationData) -> Corpus:
    """The same for documents and summaries, which share one vocabulary."""
    return _load(sources.prepared(config, _prepare_summarisation))


def _load(folder: Path) -> Corpus:
    vocabularies = {side: Vocabulary(words) for side, words in read_json(folder / "vocabulary.json").items()}
    splits = {}
    for name in ("train", "valid", "test"):
        arrays = load_file(folder / f"{name}.safetensors")
        sides = [unflatten(arrays[f"{side}.words"], arrays[f"{side}.lengths"]) for side in ("source", "target")]
        lines = [] if name == "train" else [tuple(pair) for pair in read_json(folder / f"{name}.json")]
        splits[name] = Split(lines, Pairs(*sides))
    target = vocabularies.get("target", vocabularies["source"])
    return Corpus(vocabularies["source"], target, **splits, statistics=sources.read_statistics(folder))


# ---- preparing


def _prepare_translation(config: TranslationData, folder: Path) -> dict[str, Any]:
    refusals = Refusals(config.strict)
    if config.files is None and config.name == "toy":
        texts = toy.splits(config.examples or TOY_EXAMPLES, config.held_out, config.held_out, TOY_SEED)
    else:
        texts = {}
        for split, files in sources.locate(config).items():
            (source,), (target,) = files[config.source], files[config.target]
            expected = sources.expected_count(config, split)
            texts[split] = text.read_parallel(source, target, expected=expected, refusals=refusals)
        texts["train"] = texts["train"][: config.examples]
    for split, pairs in texts.items():
        if not pairs:
            raise DataError(f"data.{split}: no pair is left")
    words = {
        split: {
            side: tokenize_all([pair[at] for pair in pairs], language, config.lowercase)
            for at, (side, language) in enumerate((("source", config.source), ("target", config.target)))
        }
        for split, pairs in texts.items()
    }
    vocabularies = {side: Vocabulary.build(words["train"][side], config.min_frequency) for side in ("source", "target")}
    return _store(config, folder, texts, words, vocabularies, refusals)


def _prepare_summarisation(config: SummarisationData, folder: Path) -> dict[str, Any]:
    refusals = Refusals(config.strict)
    texts, words, cut = {}, {}, {}
    for split, articles in _articles(config, refusals).items():
        if not articles:
            raise DataError(f"data.{split}: no article is left")
        texts[split] = [(article.document, article.summary) for article in articles]
        limits = (config.document_words, config.summary_words)
        # A word of Moses rules is never longer than one between spaces: no more than this is ever needed.
        shortened = [[" ".join(pair[at].split()[: limits[at] + 1]) for pair in texts[split]] for at in (0, 1)]
        whole = [tokenize_all(lines, "en", config.lowercase) for lines in shortened]
        cut[split] = {
            f"{side}_truncated_share": float(np.mean([len(line) > limit for line in lines]))
            for side, limit, lines in zip(("source", "target"), limits, whole, strict=True)
        }
        sides = ([line[:limit] for line in lines] for limit, lines in zip(limits, whole, strict=True))
        words[split] = dict(zip(("source", "target"), sides, strict=True))
    both = Vocabulary.build([*words["train"]["source"], *words["train"]["target"]], config.min_frequency)
    return _store(config, folder, texts, words, {"source": both}, refusals, cut)


def _articles(config: SummarisationData, refusals: Refusals) -> dict[str, list[xsum.Article]]:
    if config.files is None and config.name == "toy":
        return toy_documents.articles(config.examples or TOY_EXAMPLES, config.held_out, config.held_out, TOY_SEED)
    found = {}
    for split, files in sources.locate(config).items():
        if "archive" in files:
            (archive,), (split_file,) = files["archive"], files["splits"]
            name = sources.split_names(config)[split]
            found[split] = sorted(xsum.read_archive(archive, split_file, name, refusals))
        else:
            (path,) = files["examples"]
            found[split] = xsum.read_articles(path, refusals)
    found["train"] = found["train"][: config.examples]
    return found


def _store(
    config: WordsConfig,
    folder: Path,
    texts: dict[str, Text],
    words: dict[str, dict[str, list[list[str]]]],
    vocabularies: dict[str, Vocabulary],
    refusals: Refusals,
    more: dict[str, dict[str, float]] | None = None,
) -> dict[str, Any]:
    """Write everything; return its statistics."""
    log.info("preparing %s: %s examples", config.name, " + ".join(str(len(lines)) for lines in texts.values()))
    write_json(folder / "vocabulary.json", {side: v.words for side, v in vocabularies.items()})
    sizes = {side: len(vocabularies.get(side, vocabularies["source"])) for side in ("source", "target")}
    told: dict[str, Any] = {"vocabulary": sizes}
    indices: dict[str, dict[str, list[np.ndarray]]] = {}
    for split, sides in words.items():
        arrays = {}
        indices[split] = {}
        told[split] = {"examples": len(texts[split])}
        for side, sentences in sides.items():
            vocabulary = vocabularies.get(side, vocabularies["source"])
            indices[split][side] = [vocabulary.encode(sentence) for sentence in sentences]
            arrays[f"{side}.words"], arrays[f"{side}.lengths"] = flatten(indices[split][side])
            told[split] |= word_statistics(side, arrays[f"{side}.words"])
        told[split] |= (more or {}).get(split, {})
        save_file(arrays, folder / f"{split}.safetensors")
        if split != "train":
            write_json(folder / f"{split}.json", texts[split])
    told["valid"]["unigram_nll"] = unigram_nll(
        *(_ended(indices[split]["target"]) for split in ("train", "valid")), sizes["target"]
    )
    return told | {"refused": dict(refusals.counts)}


def _ended(sentences: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([part for sentence in sentences for part in (sentence, [END])])


def unigram_nll(train: np.ndarray, held_out: np.ndarray, size: int) -> float:
    """What a model that knows only how frequent each of ``size`` words is would reach, in nats a word.

    Frequencies are the training text's, with one added to each.
    """
    counts = np.bincount(train, minlength=size) + 1.0
    return float(-np.log(counts / counts.sum())[held_out].mean())


def word_statistics(side: str, words: np.ndarray) -> dict[str, int | float]:
    """Words of a side, and the share of those without an index (0 to 1)."""
    return {f"{side}_words": len(words), f"{side}_unknown_share": float((words == UNKNOWN).mean())}


def flatten(sentences: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Ragged arrays as one, and their lengths."""
    sentences = list(sentences)
    return np.concatenate(sentences), np.array([len(sentence) for sentence in sentences], dtype=np.int32)


def unflatten(words: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """The inverse of `flatten`."""
    return np.split(words, np.cumsum(lengths)[:-1])
