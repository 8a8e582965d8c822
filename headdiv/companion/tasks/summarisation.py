"""Summarisation."""

from __future__ import annotations

from headdiv.companion.data.corpora.seq2seq import Corpus, load_summarisation
from headdiv.companion.data.data_config import SummarisationData
from headdiv.companion.tasks.base import Run, Score
from headdiv.companion.tasks.rouge import rouge
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.companion.tasks.specs import SUMMARISATION
from headdiv.companion.tasks.unknown import unknown_scores


class Summarisation(Seq2Seq):
    """Summarisation, scored by ROUGE. One vocabulary for documents and summaries, two embeddings."""

    spec = SUMMARISATION
    source_limit, target_limit = "document_words", "summary_words"
    budget = ("source", "target")

    def load(self, config: SummarisationData) -> Corpus:
        """See `Task`."""
        return load_summarisation(config)

    def scores(self, run: Run) -> dict[str, Score]:
        """ROUGE-1, -2, -L and -Lsum by rouge-score against the whole reference summaries."""
        return self.score_lines(run, self.outputs(run))

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """The same for summaries from anywhere; their tokens are not asked for."""
        words = sum(len(line.split()) for line in lines)
        return rouge(lines, self.references(run)) | unknown_scores(lines, words, "the summaries' words")
