"""Summarisation."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from headdiv.companion.data.corpora.seq2seq import Corpus, load_summarisation
from headdiv.companion.data.data_config import WordsConfig
from headdiv.companion.tasks.base import Cut, MainScore, Run, Score
from headdiv.companion.tasks.bleu import unknown_scores
from headdiv.companion.tasks.rouge import rouge
from headdiv.companion.tasks.seq2seq import Seq2Seq


class SummarisationData(WordsConfig):
    """JSON lines {id, document, summary}."""

    files: dict[str, str] | None = Field(None, description="by split: JSON lines {id, document, summary}")
    document_words: int = Field(
        400, ge=1, lt=4096, description="words of a document that are read; the rest is cut off"
    )
    summary_words: int = Field(60, ge=1, lt=4096, description="words of a summary; the rest is cut off")


class Summarisation(Seq2Seq):
    """Summarisation, scored by ROUGE. One vocabulary for documents and summaries, two embeddings."""

    name = "summarisation"
    Data = SummarisationData
    roles = ("examples", "archive")
    main_score = MainScore("rougeL", "ROUGE-L")
    test_score_name = "rougeL"
    also_compared = ("rouge1", "rouge2", "rougeLsum")
    score_labels: ClassVar = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-Lsum"}
    curves_caption = (
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of "
        "the summaries' words that are likeliest) after each epoch; dashed: what word frequencies alone give."
    )
    example_noun = "articles"
    batch_unit = "tokens of article and summary"
    cuts = (
        Cut("source_truncated_share", "articles", "document_words"),
        Cut("target_truncated_share", "summaries", "summary_words"),
    )
    sides = ("document", "summary")
    output = "summary"
    limits: ClassVar = {"source": "document_words", "target": "summary_words"}
    budget = ("source", "target")

    def load(self, config: SummarisationData) -> Corpus:
        return load_summarisation(config)

    def scores(self, run: Run) -> dict[str, Score]:
        """ROUGE-1, -2, -L and -Lsum by rouge-score against the whole reference summaries."""
        return self.score_lines(run, self.outputs(run))

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """ROUGE and unknown words of any summaries; ``tokens`` are ignored."""
        words = sum(len(line.split()) for line in lines)
        return rouge(lines, self.references(run)) | unknown_scores(lines, words, "the summaries' words")
