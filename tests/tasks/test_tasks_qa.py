"""Question answering: probabilities of words, the best span, answers as they stand in the passage, and scores."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import put_squad, small_config, untrained
from surroundings import enter
from torch import nn

from headdiv.companion.data.corpora.qa import SKIP
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import held_out_loss
from headdiv.companion.tasks.qa import SpanConfig, best_span, predict
from headdiv.companion.tasks.squad_scores import SIGNATURE
from headdiv.core.errors import DataError
from headdiv.core.files import read_json
from headdiv.nn.packing import MASKED

TASK = TASKS["qa"]
GRAZ = "Graz lies on the Mur. Its half-timbered clock  tower is 28 metres high."


@pytest.fixture(scope="module")
def run(home):
    """Of the toy, with the model as it starts out."""
    return untrained(small_config("qa"))


@pytest.fixture
def cut(tmp_path, monkeypatch):
    """A run whose passages are cut off behind the clock tower; the second answer lies behind that."""
    enter(monkeypatch, tmp_path)
    asked = {"a": ("Which river?", "the Mur", "Mur"), "b": ("How high?", "28"), "c": ("What is old?", "clock  tower")}
    files = {split: put_squad(tmp_path / f"{split}.json", (GRAZ, asked)) for split in ("train", "valid", "test")}
    with open(files["train"], "a") as file:
        file.write("\n")  # a training file may not be another split's
    return untrained(small_config("qa", data={"name": "mine", "files": files, "context_words": 12}))


class Perfect(nn.Module):
    """All mass on the first gold answer; where it was cut off, on the first word."""

    def __init__(self, split):
        super().__init__()
        self.answers = split.answers
        self.output_weight = nn.Parameter(200 * torch.eye(2))

    def forward(self, batch):
        hidden = torch.zeros(batch.target_rows.tokens, 2)
        starts = (batch.target_rows.positions == 0).nonzero().flatten().tolist()
        for start, number in zip(starts, batch.numbers.tolist(), strict=True):
            for side in (0, 1):
                hidden[start + max(int(self.answers[number, side]), 0), side] = 1.0
        return hidden


class Guessing(Perfect):
    """Every word is as likely as chance has it."""

    def forward(self, batch):
        return torch.randn(batch.target_rows.tokens, 2, generator=torch.Generator().manual_seed(1))


# ---- the best span


@given(st.data())
def test_the_best_span_is_the_best_of_all(data):
    L, longest = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 9))
    log_p = []
    for _ in range(data.draw(st.integers(1, 3))):
        length = data.draw(st.integers(1, L))  # of the passage; the rest is masked
        rows = [[-data.draw(st.integers(0, 3)) / 2 for _ in (0, 1)] for _ in range(length)]  # many ties
        log_p.append(rows + [[MASKED, MASKED]] * (L - length))
    expected = []
    for rows in log_p:
        best, found = -math.inf, None
        for first in range(L):
            for last in range(first, min(first + longest, L)):
                if rows[first][0] + rows[last][1] > best:  # of equals the earliest, then the shortest
                    best, found = rows[first][0] + rows[last][1], [first, last]
        expected.append(found)
    assert best_span(torch.tensor(log_p), longest).tolist() == expected


# ---- answers


def test_answers_are_pieces_of_the_passage(run):
    model = Guessing(run.corpus.test).train()
    found = predict(model, run.corpus.test, run.config.decode)
    assert not model.training
    assert list(found) == [question.id for question in run.corpus.test.questions]
    lengths = set()
    for question, offsets in zip(run.corpus.test.questions, run.corpus.test.offsets, strict=True):
        start = question.context.index(found[question.id])
        words = [i for i, (a, b) in enumerate(offsets) if a >= start and b <= start + len(found[question.id])]
        assert 1 <= len(words) <= run.config.decode.max_answer_words
        lengths.add(len(words))
    assert len(lengths) > 1
    shortest = predict(model, run.corpus.test, SpanConfig(max_answer_words=1))
    assert all(len(answer.split()) == 1 for answer in shortest.values())


def test_an_answer_keeps_the_white_space_of_its_passage(cut):
    answers = predict(Perfect(cut.corpus.test), cut.corpus.test, cut.config.decode)
    assert answers == {"a": "the Mur", "b": "Graz", "c": "clock  tower"}


def test_the_gold_answers_score_a_hundred(run):
    """From the batch to the characters, to the file, to the scores."""
    config = run.config.model_copy(update={"decode": SpanConfig()})  # of any length
    perfect = untrained(config, Perfect(run.corpus.test))
    scores = TASK.scores(perfect)
    assert {name: score["value"] for name, score in scores.items()} == {"em": 100.0, "f1": 100.0}
    assert scores["em"]["signature"] == f"{SIGNATURE}; 20 questions"
    assert held_out_loss(perfect, "test") == {"nll": pytest.approx(0.0, abs=1e-6), "accuracy": 100.0}
    golds = {question.id: question.answers[0].text for question in run.corpus.test.questions}
    assert read_json(TASK.outputs_file(perfect)) == {"test": golds}
    for example, question in zip(TASK.example_texts(run.corpus, "test", 4), run.corpus.test.questions, strict=False):
        answers = list(dict.fromkeys(answer.text for answer in question.answers))
        assert example == (question.context, question.question, " | ".join(answers))


def test_a_question_typed_in_is_answered_as_in_the_test_set(run, cut):
    answers = TASK.answers(run)
    for question in run.corpus.test.questions[:6]:
        assert TASK.apply(run, question.context, question.question) == answers[question.id]
    read = GRAZ[: GRAZ.index(" is 28")]  # twelve words
    assert TASK.apply(cut, GRAZ, "Which river?") == TASK.apply(cut, read, "Which river?") in read
    for passage, question in ((" ", "Which river?"), (GRAZ, "\n"), (GRAZ, None)):
        with pytest.raises(DataError, match="a question and a passage of at least one word each"):
            TASK.apply(cut, passage, question)


# ---- batches, and answers behind the cut


def test_answers_that_were_cut_off_are_scored_but_not_learnt(cut):
    assert cut.corpus.train.answers.tolist() == [[3, 4], [SKIP, SKIP], [10, 11]]
    trained = [
        number for batch in TASK.batch_stream(cut.corpus, cut.config).epoch(0) for number in batch.numbers.tolist()
    ]
    held_out = [n for batch in TASK.held_out(cut.corpus, "valid", cut.config) for n in batch.numbers.tolist()]
    assert sorted(trained) == sorted(held_out) == [0, 2]
    perfect = untrained(cut.config, Perfect(cut.corpus.test))
    assert held_out_loss(perfect, "valid")["accuracy"] == 100.0
    result = TASK.scores(perfect)
    assert (result["em"]["value"], result["f1"]["value"]) == (pytest.approx(200 / 3), pytest.approx(200 / 3))
    assert result["em"]["signature"].endswith("; 3 questions")
