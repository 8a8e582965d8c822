"""Where the heads of a trained model look in a text that is typed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headdiv.core.errors import DataError
from headdiv.data.corpora.qa import QASplit, make_qa_batch
from headdiv.data.corpora.seq2seq import Corpus, word_rules
from headdiv.data.tokenization.spans import tokenise_with_offsets
from headdiv.data.tokenization.words import tokenize
from headdiv.nn.attention import record_heads
from headdiv.nn.batching import Pairs, make_batch
from headdiv.nn.decoding import translate
from headdiv.nn.language_model import IGNORED, make_masked_windows, make_windows
from headdiv.tasks import TASKS
from headdiv.tasks.base import Run
from headdiv.tasks.lm import LanguageModelling
from headdiv.tasks.mlm import blanked
from headdiv.tasks.qa import QuestionAnswering
from headdiv.tasks.seq2seq import Seq2Seq


@dataclass(frozen=True)
class AttentionMap:
    """What the heads of one module look at.

    Attributes:
        queries: N tokens that look, marks such as ``<s>`` included, as the model reads them.
        keys: S tokens that are looked at.
        weights: (H, N, S); a row of a head sums to 1.
    """

    queries: list[str]
    keys: list[str]
    weights: np.ndarray

    def head(self, number: int) -> pd.DataFrame:
        """The weights of one head, counted from 1: a row for each query, a column for each key.

        Raises:
            DataError: there is no such head.
        """
        if not 1 <= number <= len(self.weights):
            raise DataError(f"head {number}: the heads are 1 to {len(self.weights)}")
        return pd.DataFrame(self.weights[number - 1], index=self.queries, columns=self.keys)


def attention_maps(run: Run, text: str, other: str | None = None) -> dict[str, AttentionMap]:
    """Attention weights of every module by place ("encoder 1", "decoder 2", "cross 1").

    Heads of a mixture are its slots, the token's first choice first.

    Args:
        run: a finished run.
        text: what the model reads; in question answering the passage. A masked model reads ``[MASK]`` as a blank. A
            language model reads the end of a text that is longer than its context.
        other: translation and summarisation: the output that the decoder is given, the model's own where left out.
            Question answering: the question. Language models have none.

    Raises:
        DataError: a question or passage without words, a question that is missing, a second text for a language model,
            or a text that is too long for a masked one.
    """
    return maps_of(run, example_batch(run, text, other))


@torch.no_grad()
def maps_of(run: Run, batch: Any) -> dict[str, AttentionMap]:
    """The same of a batch that `example_batch` has laid out."""
    task = TASKS[run.config.kind]
    run.model.eval()
    with record_heads(run.model) as records:
        run.model(batch)
    labels = {
        kind: [task.decode_token(run.corpus, kind, index) for index in words.tolist()]
        for kind, words in task.words(batch).items()
    }
    return {
        record.spec.place: AttentionMap(
            labels[record.spec.kind], labels[_asked(record.spec.kind)], _array(record.weights)
        )
        for record in records
    }


def _asked(kind: str) -> str:
    """The kind of attention whose queries are this kind's keys."""
    return "encoder" if kind == "cross" else kind


def _array(weights: Tensor) -> np.ndarray:
    """Of the only window, (1, H, N, S) -> (H, N, S)."""
    return weights[0].float().cpu().numpy()


def example_batch(run: Run, text: str, other: str | None = None) -> Any:
    """A text that is typed in as a batch of one example, laid out as the task lays out its own, on the run's device.

    Arguments and errors are those of `attention_maps`. What is to be predicted is the output (translation and
    summarisation) or the next token (language models); in question answering and masked models nothing is.
    """
    return _laid_out(run, text, other).to(run.device)


def _laid_out(run: Run, text: str, other: str | None) -> Any:
    task = TASKS[run.config.kind]
    if isinstance(task, Seq2Seq):
        return _pair(run, text, other)
    if isinstance(task, QuestionAnswering):
        return _question(run, text, other)
    if other is not None:
        raise DataError("a language model reads one text, found two")
    return _window(run, text)


def _pair(run: Run, text: str, other: str | None) -> Any:
    data, corpus = run.config.data, run.corpus
    source = corpus.encode(_words(run, text, getattr(data, "source", "en"), "document_words"))
    if other is None:
        (output,) = translate(run.model, [source], run.config.decode, run.device)
        target = np.array(output, dtype=np.int32)
    else:
        target = _encoded_target(corpus, _words(run, other, getattr(data, "target", "en"), "summary_words"))
    return make_batch(Pairs([source], [target]), [0])


def _words(run: Run, text: str, language: str, limit: str) -> list[str]:
    data = run.config.data
    return tokenize(text, language, **word_rules(data))[: getattr(data, limit, None)]


def _encoded_target(corpus: Corpus, words: list[str]) -> np.ndarray:
    return corpus.target.encode(words if corpus.subwords is None else corpus.subwords.encode(words))


def _question(run: Run, passage: str, question: str | None) -> Any:
    if question is None:
        raise DataError("a passage without a question: give the question as the second text")
    data, vocabulary = run.config.data, run.corpus.vocabulary
    asked, read = (tokenise_with_offsets(part, data.lowercase).words for part in (question, passage))
    sides = [asked[: data.question_words], read[: data.context_words]]
    if not all(sides):
        raise DataError("a question and a passage of at least one word each are needed")
    pairs = Pairs(*([vocabulary.encode(side)] for side in sides))
    return make_qa_batch(QASplit(pairs, np.zeros((1, 2), dtype=np.int32), [], []), [0])


def _window(run: Run, text: str) -> Any:
    """A text behind the mark of a document's beginning; of one that is longer than the model's context, its end."""
    bpe, data = run.corpus.bpe, run.config.data
    if isinstance(TASKS[run.config.kind], LanguageModelling):
        tokens = [bpe.end, *bpe.encode_batch([text])[0]][-data.context :]
        return make_windows(np.array([[*tokens, IGNORED]]), bpe.end, data.boundaries)
    read = np.array(blanked(run, text))
    return make_masked_windows(np.stack([read, np.full_like(read, IGNORED)])[None], bpe.end, data.boundaries)
