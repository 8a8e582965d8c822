"""Corpora of source and target text: sentences and their translations, documents and their summaries."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from headdiv.companion.data import cache, public_sets
from headdiv.companion.data.data_config import DataConfig, WordsConfig
from headdiv.companion.data.readers import parallel, xsum
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.tokenization import subwords
from headdiv.companion.data.tokenization.vocabulary import Vocabulary
from headdiv.companion.data.tokenization.words import detokenize, tokenize_all
from headdiv.companion.data.toy import corpora as toy
from headdiv.companion.models.batching import END, UNKNOWN, Pairs
from headdiv.core.errors import DataError
from headdiv.core.files import checksum, read_json, write_json
from headdiv.nn.packing import MAX_POSITIONS

if TYPE_CHECKING:
    from headdiv.companion.tasks.summarisation import SummarisationData
    from headdiv.companion.tasks.translation import TranslationData

log = logging.getLogger(__name__)

SUBWORDS = "subwords.json"

Text = list[tuple[str, str]]
Sides = dict[str, list[list[str]]]  # the words, or pieces, of every text, by side
SIDES = ("source", "target")


@dataclass(frozen=True)
class TextSplit:
    """Pairs of texts, as text and as word indices."""

    text: Text  # empty for training, where it is not needed
    pairs: Pairs


@dataclass(frozen=True)
class Corpus:
    """The prepared corpus of a run."""

    source: Vocabulary
    target: Vocabulary
    train: TextSplit
    valid: TextSplit
    test: TextSplit
    statistics: dict[str, Any]  # sizes of the vocabularies; of every split, counts and shares
    subwords: subwords.Subwords | None = None  # None: indices are of whole words

    def encode(self, words: Sequence[str], side: str) -> np.ndarray:
        """The indices of the words of a source or a target."""
        pieces = words if self.subwords is None else self.subwords.encode(words)
        return getattr(self, side).encode(pieces)

    def decode(self, output: Iterable[int]) -> list[str]:
        """The words of a target's indices, up to the first END."""
        pieces = self.target.decode(output)
        return pieces if self.subwords is None else subwords.join(pieces)


def load_translation(config: TranslationData) -> Corpus:
    """Read the prepared corpus; fetch and prepare it first if need be. Raises DataError: a file cannot be used."""
    return _load(cache.prepared(config, _prepare_translation))


def load_further_test(config: TranslationData, name: str, corpus: Corpus) -> TextSplit:
    """Another test split of the data, in the words of a prepared corpus; errors of `load_translation`."""
    config = config.model_copy(update={"test": name})
    pairs = _read_split(config, "test", cache.locate(config)["test"], BadRecords(config.strict))
    if not pairs:
        raise DataError(f"data.more_tests: no pair is left of {name!r}")
    words = _tokenize(config, pairs)
    return TextSplit(pairs, Pairs(*([corpus.encode(line, side) for line in words[side]] for side in SIDES)))


def load_summarisation(config: SummarisationData) -> Corpus:
    """`load_translation` for documents and summaries, which share one vocabulary."""
    return _load(cache.prepared(config, _prepare_summarisation))


def _load(folder: Path) -> Corpus:
    vocabularies = {side: Vocabulary(words) for side, words in read_json(folder / "vocabulary.json").items()}
    splits = {}
    for name in ("train", "valid", "test"):
        arrays = load_file(folder / f"{name}.safetensors")
        sides = [unflatten(arrays[f"{side}.words"], arrays[f"{side}.lengths"]) for side in SIDES]
        lines = [] if name == "train" else [tuple(pair) for pair in read_json(folder / f"{name}.json")]
        splits[name] = TextSplit(lines, Pairs(*sides))
    target = vocabularies.get("target", vocabularies["source"])
    path = folder / SUBWORDS
    encoding = subwords.Subwords.load(path) if path.is_file() else None
    return Corpus(vocabularies["source"], target, **splits, statistics=cache.read_statistics(folder), subwords=encoding)


# ---- preparing


def _prepare_translation(config: TranslationData, folder: Path) -> dict[str, Any]:
    bad_records = BadRecords(config.strict)
    texts = _read_pairs(config, bad_records)
    if not config.selects:
        check_examples(config, texts, "pair")
        texts["train"] = texts["train"][: config.examples]
    words = {split: _tokenize(config, pairs) for split, pairs in texts.items()}
    split_statistics: dict[str, dict[str, float]] = {split: {} for split in config.splits}
    if config.selects:
        cleaned_away = _select(config, texts, words)
        if config.cleans:
            split_statistics["train"]["cleaned_away"] = cleaned_away
    corpus_statistics: dict[str, Any] = {}
    whole_words, encoding = words, None
    if config.merges is not None:
        encoding = subwords.train([*words["train"]["source"], *words["train"]["target"]], config.merges)
        encoding.save(folder / SUBWORDS)
        merges = len(encoding.merges)
        if merges < config.merges:
            raise DataError(f"data.merges: {config.merges:,} asked for, but the training text has pairs for {merges:,}")
        corpus_statistics["merges"] = merges
        words = {
            split: {side: encoding.encode_all(lines) for side, lines in sides.items()}
            for split, sides in whole_words.items()
        }
    sides = words["train"]
    if config.joint_vocabulary:
        vocabularies = dict.fromkeys(SIDES, Vocabulary.build(chain(*sides.values()), config.min_frequency))
    else:
        vocabularies = {side: Vocabulary.build(lines, config.min_frequency) for side, lines in sides.items()}
    if encoding is not None:
        for split, side in product(whole_words, SIDES):
            split_statistics[split] |= whole_word_statistics(
                side, whole_words[split][side], encoding, vocabularies[side]
            )
    if not config.is_toy:
        archives = {path for files in cache.locate(config).values() for path in files.get("archive", [])}
        if archives:  # where no checksum is published, nothing else says what was read
            corpus_statistics["archives"] = {path.name: checksum(path) for path in sorted(archives)}
    return _store(config, folder, texts, words, vocabularies, bad_records, split_statistics) | corpus_statistics


def _tokenize(config: TranslationData, pairs: Text) -> Sides:
    rules = config.word_rules
    return {
        side: tokenize_all([pair[i] for pair in pairs], getattr(config, side), **rules) for i, side in enumerate(SIDES)
    }


def check_examples(config: DataConfig, splits: Mapping[str, Sized], noun: str) -> None:
    """Raise a DataError where a split has no examples, or more training examples are asked for than there are.

    ``splits``: before ``examples`` of the training split are taken; ``noun``: an example's name in the message.
    """
    for split, examples in splits.items():
        if not len(examples):
            raise DataError(f"data.{split}: no {noun} is left")
    count = len(splits["train"])
    if config.examples is not None and config.examples > count:
        raise DataError(f"data.examples: {config.examples:,} asked for, but the training text has {count:,}")


def read_splits(config: DataConfig, read: Callable[[str, cache.Files], list[Any]], noun: str) -> dict[str, list[Any]]:
    """What ``read`` gives of each split's files, at most ``examples`` of training; errors of `check_examples`."""
    splits = {split: read(split, files) for split, files in cache.locate(config).items()}
    check_examples(config, splits, noun)
    splits["train"] = splits["train"][: config.examples]
    return splits


def _read_pairs(config: TranslationData, bad_records: BadRecords) -> dict[str, Text]:
    """The pairs of every split that is read; with empty training pairs where cleaning removes them later."""
    if config.is_toy:
        texts = toy.translation(config.examples or toy.PAIRS, config.held_out, config.held_out, toy.SEED)
        return {split: texts[split] for split in config.read_splits}
    return {split: _read_split(config, split, files, bad_records) for split, files in cache.locate(config).items()}


def _read_split(config: TranslationData, split: str, files: cache.Files, bad_records: BadRecords) -> Text:
    if "archive" in files:
        sides = [
            pair
            for archive in files["archive"]
            for pair in parallel.read_archive(archive, config.source, config.target, split)
        ]
    else:
        sources, targets = files[config.source], files[config.target]
        if len(sources) != len(targets):
            counts = f"{len(sources)} files of {config.source!r} but {len(targets)} of {config.target!r}"
            raise DataError(f"data.files.{config.splits[split]}: found {counts}, expected equally many")
        pairs_of_files = dict.fromkeys(zip(sources, targets, strict=True))  # patterns may match a pair twice
        sides = [tuple(map(parallel.read_side, paths)) for paths in pairs_of_files]
    pairs: Text = []
    for source, target in sides:
        if config.tokenized:
            source, target = _detokenize(source, config.source), _detokenize(target, config.target)
        pairs += parallel.pair_sides(source, target, bad_records, keep_empty=split == "train" and config.cleans)
    return pairs


def _detokenize(side: parallel.TextSide, language: str) -> parallel.TextSide:
    """Text that was tokenised by Moses' scripts, joined again."""
    return side._replace(sentences=[detokenize(line.split(), language, unescape=True) for line in side.sentences])


def _select(config: TranslationData, texts: dict[str, Text], words: dict[str, Sides]) -> int:
    """Drop training pairs and move some to validation, in place; returns how many were dropped.

    The rules are those of Moses' ``clean-corpus-n.perl``: 1 to `max_words` words on either side, and on the longer
    one at most `max_ratio` times as many as on the other. `valid_every` counts the remaining pairs, from 1.
    """
    pairs, sides = texts["train"], words["train"]
    shorter, longer = np.sort([[len(line) for line in lines] for lines in sides.values()], axis=0)  # (pairs,)
    keep = np.ones(len(pairs), dtype=bool)
    if config.cleans:
        keep = (shorter > 0) & (longer <= (config.max_words or np.inf))
        keep &= longer / np.maximum(shorter, 1) <= (config.max_ratio or np.inf)
    kept = np.flatnonzero(keep)
    selected = {"train": kept}
    if config.valid_every is not None:
        for_validation = np.arange(1, len(kept) + 1) % config.valid_every == 0
        selected = {"train": kept[~for_validation], "valid": kept[for_validation]}
    _check_counts(config, texts | selected)
    check_examples(config, texts | selected, "pair")
    selected["train"] = selected["train"][: config.examples]
    for split, numbers in selected.items():
        texts[split] = [pairs[i] for i in numbers]
        words[split] = {side: [lines[i] for i in numbers] for side, lines in sides.items()}
    return len(keep) - len(kept)


def _check_counts(config: TranslationData, splits: Mapping[str, Sized]) -> None:
    """Of a public archive, whose checksum is not published, there must be as many pairs as the registry says."""
    if config.files is not None or config.is_toy:
        return
    published = public_sets.load_registry()[config.name].splits
    for split, name in config.splits.items():
        count = published[name].count
        if "archive" in published[name].files and len(splits[split]) != count:
            raise DataError(
                f"data.{split}: found {len(splits[split])} pairs of {config.name}, expected {count} as published; "
                "for another selection give data another name and the archive in data.files"
            )


def _prepare_summarisation(config: SummarisationData, folder: Path) -> dict[str, Any]:
    bad_records = BadRecords(config.strict)
    limits = {"source": config.document_words, "target": config.summary_words}
    texts: dict[str, Text] = {}
    words: dict[str, Sides] = {}
    split_statistics: dict[str, dict[str, float]] = {}
    for split, articles in _read_articles(config, bad_records).items():
        texts[split] = [(article.document, article.summary) for article in articles]
        words[split], split_statistics[split] = {}, {}
        for (side, limit), lines in zip(limits.items(), zip(*texts[split], strict=True), strict=True):
            # No token contains a space, so no more than this is needed.
            shortened = [" ".join(line.split()[: limit + 1]) for line in lines]
            tokenized = tokenize_all(shortened, "en", **config.word_rules)
            words[split][side] = [line[:limit] for line in tokenized]
            truncated = [len(line) > limit for line in tokenized]
            split_statistics[split][f"{side}_truncated_share"] = float(np.mean(truncated))
    vocabulary = Vocabulary.build(chain(*words["train"].values()), config.min_frequency)
    return _store(config, folder, texts, words, dict.fromkeys(SIDES, vocabulary), bad_records, split_statistics)


def _read_articles(config: SummarisationData, bad_records: BadRecords) -> dict[str, list[xsum.Article]]:
    if config.is_toy:
        return toy.articles(config.examples or toy.PAIRS, config.held_out, config.held_out, toy.SEED)

    def read(split: str, files: cache.Files) -> list[xsum.Article]:
        if "archive" not in files:
            return xsum.read_articles(*files["examples"], bad_records)
        return xsum.read_archive(*files["archive"], *files["splits"], config.splits[split], bad_records)

    return read_splits(config, read, "article")


def _store(
    config: WordsConfig,
    folder: Path,
    texts: dict[str, Text],
    words: dict[str, Sides],
    vocabularies: dict[str, Vocabulary],
    bad_records: BadRecords,
    split_statistics: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """Write the corpus, a vocabulary that both sides share once; returns its statistics, with those of the splits."""
    log.info("preparing %s: %s examples", config.name, " + ".join(str(len(lines)) for lines in texts.values()))
    is_shared = vocabularies["target"] is vocabularies["source"]
    stored_sides = ("source",) if is_shared else SIDES
    write_json(folder / "vocabulary.json", {side: vocabularies[side].words for side in stored_sides})
    statistics: dict[str, Any] = {"vocabulary": {side: len(vocabulary) for side, vocabulary in vocabularies.items()}}
    targets: dict[str, np.ndarray] = {}  # by split: the words of all targets, END after each
    for split, sides in words.items():
        arrays, statistics[split] = {}, {"examples": len(texts[split])}
        for side, sentences in sides.items():
            if (longest := max(map(len, sentences)) + 1) > MAX_POSITIONS:  # END is one more
                problem = f"found a {side} of {longest:,} tokens, but the model has positions for {MAX_POSITIONS:,}"
                raise DataError(f"data.{split}: {problem}; data.max_words leaves long training pairs out")
            indices = [vocabularies[side].encode(sentence) for sentence in sentences]
            arrays[f"{side}.words"], arrays[f"{side}.lengths"] = flatten(indices)
            statistics[split] |= word_statistics(side, arrays[f"{side}.words"])
            if side == "target":
                targets[split] = np.concatenate([part for sentence in indices for part in (sentence, [END])])
        statistics[split] |= split_statistics[split]
        save_file(arrays, folder / f"{split}.safetensors")
        if split != "train":
            write_json(folder / f"{split}.json", texts[split])
    statistics["valid"]["unigram_nll"] = unigram_nll(targets["train"], targets["valid"], len(vocabularies["target"]))
    return statistics | {"refused": dict(bad_records.counts)}


def unigram_nll(train: np.ndarray, held_out: np.ndarray, size: int) -> float:
    """Cross-entropy in nats per word of a unigram model over ``size`` words: training counts with one added to each."""
    counts = np.bincount(train, minlength=size) + 1.0
    return float(-np.log(counts / counts.sum())[held_out].mean())


def whole_word_statistics(
    side: str, sentences: Iterable[Sequence[str]], encoding: subwords.Subwords, vocabulary: Vocabulary
) -> dict[str, int | float]:
    """Words of a side before they are split, and the share of those with a piece that has no index (0 to 1)."""
    counts = Counter(chain.from_iterable(sentences))
    pieces = encoding.encode_all([[word] for word in counts])
    unknown = [(vocabulary.encode(word_pieces) == UNKNOWN).any() for word_pieces in pieces]
    share = float(np.average(unknown, weights=list(counts.values())))
    return {f"{side}_whole_words": counts.total(), f"{side}_unknown_word_share": share}


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
