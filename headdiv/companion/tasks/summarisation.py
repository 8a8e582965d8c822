"""Summarisation."""

from __future__ import annotations

from headdiv.companion.data import cache
from headdiv.companion.data.corpora.seq2seq import Corpus, load_summarisation
from headdiv.companion.data.data_config import SummarisationData
from headdiv.companion.tasks.base import Cut, MainScore, Run, Score
from headdiv.companion.tasks.rouge import rouge
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.companion.tasks.unknown import unknown_scores
from headdiv.core.settings import Source


class Summarisation(Seq2Seq):
    """Summarisation, scored by ROUGE. One vocabulary for documents and summaries, two embeddings."""

    name = "summarisation"
    Data = SummarisationData
    main_score, also_compared = MainScore("rougeL", "ROUGE-L"), ("rouge1", "rouge2", "rougeLsum")
    score_labels = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-Lsum"}  # noqa: RUF012 (a constant)
    curves_caption = (
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of the "
        "summaries' words that are the likeliest) after each epoch; dashed: what the words' frequencies alone give."
    )
    example_noun, batch_unit = "articles", "tokens of article and summary"
    source_limit, target_limit = "document_words", "summary_words"
    cuts = (
        Cut("source_truncated_share", "articles", source_limit),
        Cut("target_truncated_share", "summaries", target_limit),
    )
    sides = texts = ("document", "summary")
    output = "summary"
    budget = ("source", "target")

    def check_data(
        self, config: SummarisationData, at: tuple[str, ...] = ("data",), source: Source | None = None
    ) -> None:
        """JSON lines, or the public archive."""
        cache.check_data(config, ["examples|archive"], at, source)

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
