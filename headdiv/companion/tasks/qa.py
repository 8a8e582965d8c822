"""Extractive question answering: which words of a passage answer a question.

The paper does not say how its encoder-decoder yields spans. Here the encoder reads the question and the
decoder reads the passage, every word of which sees every other and, through encoder-decoder attention, the
question. Two scores for each row of the decoder, softmaxed over the passage, are the probabilities that the
answer begins and that it ends there. All three kinds of attention work as in translation, nothing is
generated, and the output weight has two rows where translation has a vocabulary.

Letters: B questions, U rows of all passages, L words of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from headdiv.companion.data.corpora.qa import QACorpus, QASplit, load_qa, make_qa_batch
from headdiv.companion.data.data_config import WordsConfig
from headdiv.companion.data.readers.squad import Question
from headdiv.companion.data.tokenization.spans import tokenize_with_offsets
from headdiv.companion.models.batching import UNKNOWN, Batch, Pairs, batch_numbers
from headdiv.companion.models.sizes import ModelConfig
from headdiv.companion.models.transformer import Transformer
from headdiv.companion.tasks.base import TRAINING_LOSS, VALIDATION_LOSS, Cut, Example, MainScore, Panel, Run, Score
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.seq2seq import PairTask
from headdiv.companion.tasks.squad_scores import squad_scores
from headdiv.core import progress
from headdiv.core.errors import DataError
from headdiv.core.settings import Settings
from headdiv.methods.base import Method
from headdiv.nn.packing import MASKED, pad_rows
from headdiv.training.learner import Losses


class QAData(WordsConfig):
    """Questions on passages, in SQuAD's JSON form."""

    tokenizer: Literal["moses"] = Field("moses", description="Moses rules; answers are found as words of theirs")
    files: dict[str, str | list[str]] | None = Field(
        None, description="by split: a file in SQuAD v1.1's JSON form, or several in their order"
    )
    context_words: int = Field(400, ge=1, lt=4096, description="words of a passage that are read; the rest is cut off")
    question_words: int = Field(60, ge=1, lt=4096, description="words of a question that are read")


class SpanModelConfig(ModelConfig):
    """Sizes of the Transformer whose decoder scores every word of a passage as the first and the last of the answer."""

    @model_validator(mode="after")
    def _no_words_to_tie(self) -> SpanModelConfig:
        if self.tied_output:
            raise ValueError("tied_output: expected false, as the two outputs of question answering are not words")
        if self.tied:
            raise ValueError("tied: expected none, as the two outputs of question answering are not words")
        return self


class SpanConfig(Settings):
    """How an answer is chosen in its passage."""

    max_answer_words: int = Field(30, ge=1, description="longest answer")


class QuestionAnswering(PairTask):
    """Extractive question answering, scored by SQuAD's exact match and F1."""

    name = "qa"
    Data, Model, Decode = QAData, SpanModelConfig, SpanConfig
    unit = "nats/answer"
    accuracy = "share of questions whose first gold answer's first and last word are both the likeliest"
    unigram = "first and last word by the frequency of their positions among the training answers"
    main_score = MainScore("f1", "F1")
    test_score_name = "f1"
    also_compared = ("em",)
    score_labels: ClassVar = {"em": "Exact match"}
    curves = (TRAINING_LOSS, VALIDATION_LOSS, Panel("validation_accuracy", "validation accuracy of whole spans"))
    curves_caption = (
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of "
        "questions whose first and last word are both likeliest) after each epoch; dashed: what the frequencies of "
        "positions alone give."
    )
    example_noun = "questions"
    batch_unit = "tokens of passages"
    cuts = (Cut("target_truncated_share", "passages", "context_words"),)
    mentioned: ClassVar = {
        "answers_cut_off": "Answers after the cut (not learnt from, but scored)",
        "answers_not_on_word_borders": "Answers that do not begin and end with a word (whole words are learnt)",
    }
    sides = ("question", "passage")
    second_is_input = True
    output = "answer"

    def load(self, config: QAData) -> QACorpus:
        return load_qa(config)

    def build(self, config: RunConfig, vocabulary: tuple[int, ...], method: Method) -> Transformer:
        (words,) = vocabulary
        return Transformer(config.model, words, words, method, outputs=2)

    def pack(self, split: QASplit, numbers: Sequence[int]) -> Batch:
        return make_qa_batch(split, numbers)

    def scored(self, split: QASplit) -> np.ndarray:
        """See `PairTask`; questions whose answer was cut off are left out."""
        return split.answerable

    def loss(self, model: Callable[[Batch], Tensor], weight: Tensor, batch: Batch, smoothing: float = 0.0) -> Losses:
        """−log p(first word) − log p(last word), summed over the questions."""
        log_p = span_log_probabilities(model(batch), weight, batch)  # (B, L, 2)
        gold = batch.target_out[:, None]  # (B, 1, 2)
        nll = -log_p.gather(1, gold).sum()
        loss = nll
        if smoothing:
            real = log_p > MASKED / 2  # not padding
            uniform = -(log_p.masked_fill(~real, 0.0).sum(1) / real.sum(1)).sum()
            loss = (1 - smoothing) * nll + smoothing * uniform
        correct = (log_p.argmax(1) == batch.target_out).all(1).sum()
        return Losses(loss, nll.detach(), correct, count=len(gold), tokens=batch.target_rows.tokens)

    def decode_token(self, corpus: QACorpus, kind: str, index: int) -> str:
        """A word; both sides share the vocabulary."""
        return corpus.vocabulary.words[index]

    def lengths(self, corpus: QACorpus) -> dict[str, np.ndarray]:
        """Lengths of the training questions, their passages and their answers."""
        first, last = corpus.train.answers[corpus.train.answerable].T
        sides = {"question": "source", "passage": "target"}
        sizes = {f"{name} (tokens)": corpus.train.pairs.sizes(side) for name, side in sides.items()}
        return sizes | {"answer (tokens)": last - first + 1}

    def search(self, run: Run) -> dict[str, Any]:
        """Question id -> answer, SQuAD's own form of predictions."""
        return {"test": predict(run.model, run.corpus.test, run.config.decode, run.device)}

    def answers(self, run: Run) -> dict[str, str]:
        """Question id -> answer, for the test set."""
        return self.searched(run)["test"]

    def scores(self, run: Run) -> dict[str, Score]:
        """Exact match and F1 over the test set's gold answers."""
        return squad_scores(self.answers(run), run.corpus.test.questions)

    def apply(self, run: Run, text: str, second: str | None = None) -> str:
        """The answer to a question on a passage; errors of `example_batch`."""
        return predict(run.model, self._typed_split(run, text, second), run.config.decode, run.device)[""]

    def example_batch(self, run: Run, text: str, second: str | None = None) -> Batch:
        """See `Task`: a passage and a question.

        Raises:
            DataError: there is no question, or either text has no words or cannot be aligned to them.
        """
        return make_qa_batch(self._typed_split(run, text, second), [0]).to(run.device)

    def _typed_split(self, run: Run, passage: str, question: str | None) -> QASplit:
        data, vocabulary = run.config.data, run.corpus.vocabulary
        question_tokens = tokenize_with_offsets(question or "", data.lowercase)
        passage_tokens = tokenize_with_offsets(passage, data.lowercase)
        words = [question_tokens.words[: data.question_words], passage_tokens.words[: data.context_words]]
        if not all(words):
            raise DataError("a question and a passage of at least one word each are needed: give the question second")
        offsets = np.stack([passage_tokens.starts, passage_tokens.ends], axis=1)
        pairs = Pairs(*([vocabulary.encode(side)] for side in words))
        return QASplit(pairs, np.zeros((1, 2), dtype=np.int32), [Question("", question, passage, ())], [offsets])

    def example_texts(self, corpus: QACorpus, split: str, count: int) -> list[Example]:
        """See `Task`; the reference has all gold answers."""
        return [
            Example(q.context, q.question, " | ".join(dict.fromkeys(answer.text for answer in q.answers)))
            for q in getattr(corpus, split).questions[:count]
        ]

    def unknown_words(self, run: Run, text: str) -> list[str]:
        """The unknown words of a passage."""
        data, vocabulary = run.config.data, run.corpus.vocabulary
        words = list(dict.fromkeys(tokenize_with_offsets(text, data.lowercase).words[: data.context_words]))
        return [word for word, index in zip(words, vocabulary.encode(words), strict=True) if index == UNKNOWN]

    def expect_output(self, run: Run, batch: Batch) -> Batch:
        """See `Task`: the likeliest span that is allowed."""
        log_p = span_log_probabilities(run.model(batch), run.model.output_weight, batch)
        return batch.with_target(best_span(log_p, run.config.decode.max_answer_words))


def span_log_probabilities(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    """(U, D) -> (B, L, 2): log-probability of each word of a passage to be the answer's first, and its last."""
    scores = F.linear(hidden, weight).float()  # (U, 2)
    return pad_rows(scores, batch.target_rows, MASKED).log_softmax(dim=1)


def best_span(log_p: Tensor, longest: int) -> Tensor:
    """The likeliest first and last word with first ≤ last < first + longest: (B, L, 2) -> (B, 2)."""
    B, L, _ = log_p.shape
    joint = log_p[:, :, None, 0] + log_p[:, None, :, 1]  # (B, L, L)
    allowed = torch.ones(L, L, dtype=torch.bool, device=log_p.device).triu().tril(longest - 1)
    best = joint.masked_fill(~allowed, -torch.inf).view(B, -1).argmax(1)
    return torch.stack([best // L, best % L], dim=1)


@torch.inference_mode()
def predict(
    model: Transformer, split: QASplit, config: SpanConfig, device: torch.device | str = "cpu"
) -> dict[str, str]:
    """Question id -> answer: the text between the likeliest first and last word, as it stands in the passage."""
    model.eval()
    plan = batch_numbers(split.pairs.sizes("target"), QuestionAnswering.evaluation_tokens, seed=None)
    answers: dict[str, str] = {}
    with progress.bar(len(plan), "answering") as advance:
        for numbers in plan:
            batch = make_qa_batch(split, numbers).to(device)
            log_p = span_log_probabilities(model(batch), model.output_weight, batch)
            spans = best_span(log_p, config.max_answer_words).cpu().numpy()
            for number, (first, last) in zip(batch.numbers.tolist(), spans, strict=True):
                question, offsets = split.questions[number], split.offsets[number]
                answers[question.id] = question.context[int(offsets[first, 0]) : int(offsets[last, 1])]
            advance("")
    return {question.id: answers[question.id] for question in split.questions}
