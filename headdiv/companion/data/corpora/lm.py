"""Corpora for language modelling: a tokeniser, held-out windows, and the training text as a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from headdiv.companion.data import cache
from headdiv.companion.data.corpora.mixture import HeldOut, held_out
from headdiv.companion.data.corpora.seq2seq import unigram_nll
from headdiv.companion.data.readers.documents import read_documents
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.tokenization.bpe import Bpe, load_bpe, train_bpe
from headdiv.companion.data.toy import corpora as toy
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json, write_text

if TYPE_CHECKING:
    from headdiv.companion.tasks.lm import LMData


TextMeasure = Callable[[Any, Bpe, np.ndarray, HeldOut], dict[str, Any]]


@dataclass(frozen=True)
class LMCorpus:
    """The prepared corpus of a run; the training text stays in its files."""

    bpe: Bpe
    valid: HeldOut
    test: HeldOut
    shards: list[Path]  # of the training text
    bad_records: BadRecords  # of the training text, while the stream is read
    statistics: dict[str, Any]


def next_tokens(config: LMData, bpe: Bpe, sample: np.ndarray, text: HeldOut) -> dict[str, Any]:
    """Cross-entropy of a unigram model on every token of a held-out text."""
    targets = text.windows[:, 1:][text.windows[:, 1:] >= 0]
    return {"unigram_nll": unigram_nll(sample, targets, bpe.size)}


def load_lm(config: LMData, measure: TextMeasure = next_tokens) -> LMCorpus:
    """Read the prepared corpus; train the tokeniser and encode the held-out text first if need be.

    ``measure`` gives statistics of a held-out text; its third argument is a sample of the training tokens, from which
    frequencies are taken.

    Raises:
        DataError: a file is missing or damaged, or a record cannot be used (`data.strict`).
    """
    folder = cache.prepared(config, lambda config, folder: _prepare(config, folder, measure))
    statistics = cache.read_statistics(folder)
    texts = {}
    for split in ("valid", "test"):
        windows = load_file(folder / f"{split}.safetensors")["windows"]
        texts[split] = HeldOut(windows, *(statistics[split][key] for key in ("examples", "words", "bytes")))
    bpe, shards = load_bpe(folder / "tokenizer.json"), _split_files(config, folder)["train"]
    return LMCorpus(bpe, **texts, shards=shards, bad_records=BadRecords(config.strict), statistics=statistics)


def _split_files(config: LMData, folder: Path) -> dict[str, list[Path]]:
    if config.is_toy:
        return {split: sorted((folder / "shards").glob(f"{split}*")) for split in config.splits}
    # Once each, though several patterns may match a file.
    return {split: list(dict.fromkeys(chain(*files.values()))) for split, files in cache.locate(config).items()}


def _prepare(config: LMData, folder: Path, measure: TextMeasure) -> dict[str, Any]:
    if config.is_toy:
        toy.write_shards(folder / "shards", config.examples or toy.DOCUMENTS, toy.SEED)
    files, bad_records = _split_files(config, folder), BadRecords(config.strict)
    documents = chain.from_iterable(
        read_documents(path, bad_records, document_start=config.document_start) for path in files["train"]
    )
    texts = [text for _, text in islice(documents, config.tokenizer_documents)]
    if not texts:
        raise DataError(f"{', '.join(map(str, files['train']))}: found no document, expected at least one")
    tokenizer = cache.tokenizer_file(config)
    if tokenizer is None:
        write_text(folder / "tokenizer.json", train_bpe(texts, config.vocabulary_size))
    else:
        write_json(folder / "tokenizer.json", read_json(tokenizer))
    bpe = load_bpe(tokenizer or folder / "tokenizer.json")  # a mistake is named by the user's own path
    if bpe.size != config.vocabulary_size:
        raise DataError(
            f"{tokenizer}: the encoding has {bpe.size} entries, but data.vocabulary_size says {config.vocabulary_size}"
        )
    sample = np.concatenate([[bpe.end, *ids] for ids in bpe.encode_batch(texts)])
    statistics: dict[str, Any] = {
        "vocabulary": {"tokens": bpe.size},
        "train": {"files": len(files["train"]), "bytes": sum(path.stat().st_size for path in files["train"])},
    }
    for split in ("valid", "test"):
        text = _read_held_out(files[split], config, bpe, bad_records)
        save_file({"windows": np.ascontiguousarray(text.windows)}, folder / f"{split}.safetensors")
        counts = {"examples": text.documents, "words": text.words, "bytes": text.bytes, "tokens": text.targets}
        statistics[split] = counts | measure(config, bpe, sample, text)
    return statistics | {"refused": dict(bad_records.counts)}


def _read_held_out(paths: Sequence[Path], config: LMData, bpe: Bpe, bad_records: BadRecords) -> HeldOut:
    """The whole text, or, with ``held_out_tokens``, as much of each source as its weight says."""
    if config.held_out_tokens is None:
        return held_out(paths, bpe, config, bad_records)
    mixture = config.mixture or {None: 1.0}
    parts = []
    for source, weight in mixture.items():
        limit = max(1, round(config.held_out_tokens * weight / sum(mixture.values())))
        part = held_out(paths, bpe, config, bad_records, source, limit)
        if part.targets < limit and not config.is_toy:  # generated text may have fewer
            raise DataError(
                f"data.held_out_tokens: {limit:,} asked for of {source or 'the text'}, but "
                f"{', '.join(path.name for path in paths)} has {part.targets:,}"
            )
        parts.append(part)
    windows = np.concatenate([part.windows for part in parts])
    return HeldOut(windows, *(sum(getattr(part, key) for part in parts) for key in ("documents", "words", "bytes")))
