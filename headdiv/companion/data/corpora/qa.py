"""Corpora of questions on passages: words, answers as ranges of words, and the way back to characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from headdiv.companion.data import cache
from headdiv.companion.data.corpora.seq2seq import flatten, read_splits, unflatten, word_statistics
from headdiv.companion.data.readers import squad
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.readers.squad import Answer, Question
from headdiv.companion.data.tokenization.spans import Tokens, answer_to_tokens, tokenize_with_offsets
from headdiv.companion.data.tokenization.vocabulary import Vocabulary
from headdiv.companion.data.toy import corpora as toy
from headdiv.companion.models.batching import END, Batch, Pairs, assemble
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json

if TYPE_CHECKING:
    from headdiv.companion.tasks.qa import QAData

SKIP = -1  # in place of an answer after the cut


@dataclass(frozen=True)
class QASplit:
    """Questions and passages as word indices, and as text where answers are to be written."""

    pairs: Pairs  # question, passage
    answers: np.ndarray  # (n, 2) first and last word of the first gold answer; SKIP where it was cut off
    questions: list[Question]  # empty for training
    offsets: list[np.ndarray]  # (words, 2) where each word of a passage begins and ends in its text; likewise

    @property
    def answerable(self) -> np.ndarray:
        """Numbers of the questions whose answer is there."""
        return np.flatnonzero(self.answers[:, 0] != SKIP)


@dataclass(frozen=True)
class QACorpus:
    """The prepared corpus of a run; questions and passages share one vocabulary."""

    vocabulary: Vocabulary
    train: QASplit
    valid: QASplit
    test: QASplit
    statistics: dict[str, Any]


def load_qa(config: QAData) -> QACorpus:
    """Read the prepared corpus; fetch and prepare it first if need be. Raises DataError: a file cannot be used."""
    folder = cache.prepared(config, _prepare)
    splits = {name: _load_split(folder, name) for name in ("train", "valid", "test")}
    vocabulary = Vocabulary(read_json(folder / "vocabulary.json"))
    return QACorpus(vocabulary, **splits, statistics=cache.read_statistics(folder))


def _load_split(folder: Path, name: str) -> QASplit:
    arrays = load_file(folder / f"{name}.safetensors")
    contexts = unflatten(arrays["contexts"], arrays["contexts.lengths"])
    passage_numbers = arrays["which"]  # (n,) the passage of each question
    questions, offsets = [], []
    if name != "train":
        characters = unflatten(arrays["offsets"], arrays["contexts.lengths"])
        offsets = [characters[i] for i in passage_numbers]
        texts = read_json(folder / f"{name}.json")
        for (id, question, answers), i in zip(texts["questions"], passage_numbers, strict=True):
            golds = tuple(Answer(text, start) for text, start in answers)
            questions.append(Question(id, question, texts["contexts"][i], golds))
    pairs = Pairs(unflatten(arrays["questions"], arrays["questions.lengths"]), [contexts[i] for i in passage_numbers])
    return QASplit(pairs, arrays["answers"], questions, offsets)


def make_qa_batch(split: QASplit, numbers: Sequence[int]) -> Batch:
    """Encoder: the question and END. Decoder: the passage, every word of which sees every other."""
    questions = [np.concatenate([split.pairs.source[i], [END]]) for i in numbers]
    passages, answers = [split.pairs.target[i] for i in numbers], [split.answers[i] for i in numbers]
    batch = assemble(numbers, questions, passages, answers, causal=False)
    return batch.with_target(batch.target_out.view(-1, 2))


# ---- preparing


def _prepare(config: QAData, folder: Path) -> dict[str, Any]:
    bad_records = BadRecords(config.strict)
    splits = {
        name: _PreparedSplit(name, questions, config, bad_records)
        for name, questions in _read_questions(config, bad_records).items()
    }
    for name, split in splits.items():
        if not split.questions:
            raise DataError(f"data.{name}: no question is left")
        if name != "test" and (split.answers[:, 0] == SKIP).all():
            raise DataError(f"data.{name}: every answer lies after the {config.context_words} words that are read")
    train, valid = splits["train"], splits["valid"]
    vocabulary = Vocabulary.build([*train.question_words, *train.passages.values()], config.min_frequency)
    write_json(folder / "vocabulary.json", vocabulary.words)
    statistics: dict[str, Any] = {"vocabulary": {"words": len(vocabulary)}}
    for name, split in splits.items():
        arrays = split.arrays(vocabulary)
        statistics[name] = split.statistics(arrays)
        save_file(arrays, folder / f"{name}.safetensors")
        if name != "train":
            questions = [[q.id, q.question, q.answers] for q in split.questions]
            write_json(folder / f"{name}.json", {"contexts": list(split.passages), "questions": questions})
    lengths = np.array([len(valid.passages[question.context]) for question in valid.questions])
    statistics["valid"]["unigram_nll"] = position_nll(train.answers, valid.answers, lengths)
    return statistics | {"refused": dict(bad_records.counts)}


def _read_questions(config: QAData, bad_records: BadRecords) -> dict[str, list[Question]]:
    if config.is_toy:
        return toy.questions(config.examples or toy.DOCUMENTS, config.held_out, config.held_out, toy.SEED)
    return read_splits(config, lambda _, files: squad.read_squad(files["examples"], bad_records), "question")


class _PreparedSplit:
    """The questions of a split, their passages and answers, in words."""

    def __init__(self, split: str, questions: list[Question], config: QAData, bad_records: BadRecords) -> None:
        self.questions: list[Question] = []
        self.question_words: list[list[str]] = []
        self.exact: list[bool] = []  # whether an answer begins and ends with a word
        self.tokens: dict[str, Tokens] = {}  # of passages by their text, in order
        answers, self.limit = [], config.context_words
        for question in questions:
            with bad_records.at(f"data.{split}, question {question.id}"):
                words = tokenize_with_offsets(question.question, config.lowercase).words
                passage = self.tokens.get(question.context) or tokenize_with_offsets(question.context, config.lowercase)
                first, last, exact = answer_to_tokens(passage, question.answers[0])
                self.questions.append(question)
                self.question_words.append(words[: config.question_words])
                self.exact.append(exact)
                self.tokens[question.context] = passage
                answers.append((first, last) if last < self.limit else (SKIP, SKIP))
        self.answers = np.array(answers, dtype=np.int32).reshape(-1, 2)
        self.passages = {text: tokens.words[: self.limit] for text, tokens in self.tokens.items()}

    def arrays(self, vocabulary: Vocabulary) -> dict[str, np.ndarray]:
        """The arrays that are stored; each passage once."""
        numbers = {text: number for number, text in enumerate(self.passages)}
        offsets = [np.stack([tokens.starts, tokens.ends], axis=1)[: self.limit] for tokens in self.tokens.values()]
        arrays = {"answers": self.answers, "offsets": np.concatenate(offsets)}
        arrays["which"] = np.array([numbers[question.context] for question in self.questions], dtype=np.int32)
        for name, texts in (("contexts", self.passages.values()), ("questions", self.question_words)):
            arrays[name], arrays[f"{name}.lengths"] = flatten(vocabulary.encode(words) for words in texts)
        return arrays

    def statistics(self, arrays: dict[str, np.ndarray]) -> dict[str, int | float]:
        """Counts and shares (0 to 1)."""
        return {
            "examples": len(self.questions),
            "passages": len(self.passages),
            **word_statistics("source", arrays["questions"]),
            **word_statistics("target", arrays["contexts"]),
            "target_truncated_share": float(np.mean([len(t.words) > self.limit for t in self.tokens.values()])),
            "answers_cut_off": int((self.answers[:, 0] == SKIP).sum()),
            "answers_not_on_word_borders": self.exact.count(False),
        }


def position_nll(train: np.ndarray, held_out: np.ndarray, lengths: np.ndarray) -> float:
    """Cross-entropy of a model that only knows how frequent each position is, in nats per answer.

    Frequencies of the first and of the last word's position are those of the training answers, with one added
    to each, normalised over the positions that a passage has.

    Args:
        train: (n, 2) first and last words; SKIP is left out.
        held_out: (n', 2) the same.
        lengths: (n',) words of the passages.
    """
    longest = int(max(train.max(), held_out.max(), lengths.max() - 1)) + 1
    kept = held_out[:, 0] != SKIP
    nll = 0.0
    for side in (0, 1):
        counts = np.bincount(train[train[:, 0] != SKIP, side], minlength=longest) + 1.0
        totals = np.cumsum(counts)[lengths[kept] - 1]
        nll -= np.log(counts[held_out[kept, side]] / totals).mean()
    return float(nll)
