"""From SQuAD's form to word indices, answers as ranges of words, and the way back to characters."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import put_squad

from headdiv.companion.data.corpora.qa import SKIP, load_qa, make_qa_batch, position_nll
from headdiv.companion.data.readers.squad import Answer, Question
from headdiv.companion.models.batching import END
from headdiv.companion.tasks.qa import QAData
from headdiv.core.errors import DataError
from headdiv.nn.packing import MASKED

GRAZ = "Graz lies on the Mur. Its half-timbered clock tower is 28 metres high."
LINZ = "Linz, too, lies on a river: the Danube."
TRAIN = [
    (GRAZ, {"g1": ("Which river?", "the Mur", "Mur"), "g2": ("How high is it?", "28"), "g3": ("What?", "clock tower")}),
    (LINZ, {"l1": ("Which river?", "the Danube")}),
]
HELD_OUT = [(LINZ, {"v1": ("Which town?", "Linz"), "v2": ("What is the Danube?", "a river", "river")})]


@pytest.fixture
def mine(folder):
    """Makes the configuration of a corpus of one's own files."""

    def config(train=TRAIN, held_out=HELD_OUT, **options):
        files = {"train": put_squad(folder / "train.json", *train)}
        files |= {split: put_squad(folder / f"{split}.json", *held_out) for split in ("valid", "test")}
        return QAData(**{"name": "mine", "files": files, "min_frequency": 1} | options)

    return config


def words(corpus, indices):
    return corpus.vocabulary.decode(indices)


# ---- one's own files


def test_questions_and_passages_as_words(mine):
    corpus = load_qa(mine())
    train, test = corpus.train, corpus.test
    assert [words(corpus, q) for q in train.pairs.source[:2]] == [["Which", "river", "?"],
                                                                   ["How", "high", "is", "it", "?"]]  # fmt: skip
    graz = ["Graz", "lies", "on", "the", "Mur", ".", "Its", "half", "@-@", "timbered", "clock", "tower", "is", "28"]
    graz += ["metres", "high", "."]
    assert [words(corpus, passage) for passage in train.pairs.target[:3]] == [graz] * 3
    assert train.answers.tolist() == [[3, 4], [13, 13], [10, 11], [9, 10]]
    assert (train.questions, train.offsets) == ([], [])  # nobody asks for them
    assert test.questions == [
        Question("v1", "Which town?", LINZ, (Answer("Linz", 0),)),
        Question("v2", "What is the Danube?", LINZ, (Answer("a river", 19), Answer("river", 21))),
    ]
    assert test.answers.tolist() == [[0, 0], [6, 7]]
    assert [LINZ[start:end] for start, end in test.offsets[1]] == words(corpus, test.pairs.target[1])
    assert test.answerable.tolist() == [0, 1]


def test_statistics(mine):
    inside = [(GRAZ, {"v1": ("How high?", "8"), "v2": ("Where?", "on the")})]
    corpus = load_qa(mine(held_out=inside, context_words=12, question_words=2))
    statistics = corpus.statistics
    assert statistics["vocabulary"] == {"words": len(corpus.vocabulary)}
    assert statistics["refused"] == {}
    assert statistics["train"] == {
        "examples": 4,
        "passages": 2,
        "source_words": 8,  # two of each question
        "source_unknown_share": 0.0,
        "target_words": 24,
        "target_unknown_share": 0.0,
        "target_truncated_share": 0.5,  # LINZ has 12 words
        "answers_cut_off": 1,
        "answers_not_on_word_borders": 0,
    }
    held = statistics["test"]
    assert (held["examples"], held["passages"], held["answers_cut_off"]) == (2, 1, 1)
    assert (held["answers_not_on_word_borders"], held["target_truncated_share"]) == (1, 1.0)
    assert held["source_unknown_share"] == 0.25  # Where


def test_answers_after_the_cut(mine):
    held_out = [(GRAZ, {"v1": ("Where?", "the Mur"), "v2": ("How high?", "28"), "v3": ("What?", "Mur.")})]
    test = load_qa(mine(held_out=held_out, context_words=5)).test
    assert test.answers.tolist() == [[3, 4], [SKIP, SKIP], [SKIP, SKIP]]  # the last is cut through
    assert test.answerable.tolist() == [0]
    assert [question.id for question in test.questions] == ["v1", "v2", "v3"]
    assert {len(passage) for passage in test.pairs.target} == {len(offsets) for offsets in test.offsets} == {5}


# ---- what cannot be used


def test_a_passage_that_cannot_be_aligned_is_refused(mine):
    letters = "They wrote DOTMULTI there."  # which the rules of Moses turn into a dot
    config = mine(train=[*TRAIN, (letters, {"d1": ("What?", "wrote"), "d2": ("Where?", "there")})])
    with pytest.raises(DataError, match="question d1: the text cannot be aligned to its words"):
        load_qa(config)
    statistics = load_qa(config.model_copy(update={"strict": False})).statistics
    assert statistics["refused"] == {"the text cannot be aligned to its words": 2}
    assert (statistics["train"]["examples"], statistics["train"]["passages"]) == (4, 2)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_split_of_which_all_answers_are_cut_off_is_named(mine, folder, split):
    config = mine(context_words=5)
    put_squad(folder / f"{split}.json", (GRAZ, {"c1": ("How high?", "28"), "c2": ("What?", "tower")}))
    with pytest.raises(DataError, match=rf"^data\.{split}: every answer lies after the 5 words that are read$"):
        load_qa(config)
    put_squad(folder / f"{split}.json", *(TRAIN if split == "train" else HELD_OUT))
    put_squad(folder / "test.json", (GRAZ, {"c1": ("How high?", "28")}))  # it is scored all the same
    assert load_qa(config).statistics["test"]["answers_cut_off"] == 1


# ---- batches


def test_a_batch_has_question_end_and_a_passage_that_sees_itself_whole(mine):
    corpus = load_qa(mine())
    batch = make_qa_batch(corpus.train, [3, 0, 1])
    starts = [(side.positions == 0).nonzero().flatten().tolist() for side in (batch.source_rows, batch.target_rows)]
    for position, number in enumerate(batch.numbers.tolist()):
        question, passage = corpus.train.pairs.source[number], corpus.train.pairs.target[number]
        at, to = starts[0][position], starts[1][position]
        assert batch.source[at : at + len(question) + 1].tolist() == [*question, END]
        assert batch.target_in[to : to + len(passage)].tolist() == passage.tolist()
        assert batch.target_out[position].tolist() == corpus.train.answers[number].tolist()
    assert sorted(batch.numbers.tolist()) == [0, 1, 3]
    assert batch.target_rows.tokens == len(batch.target_in)
    documents = batch.target_rows.sentences
    same = (documents[:, :, None] == documents[:, None, :]) & (documents >= 0)[:, :, None]
    assert ((batch.decoder.mask[:, 0] == 0) == same).all()
    assert ((batch.decoder.mask[:, 0] == MASKED) == ~same).all()


# ---- the simplest model


@given(st.data())
def test_the_simplest_model_s_loss(data):
    def some(lengths):
        return [
            data.draw(st.sampled_from([(i, j) for i in range(length) for j in range(i, length)] + [(SKIP, SKIP)]))
            for length in lengths
        ]

    lengths = [data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)) for _ in range(2)]
    train, held_out = (some(each) for each in lengths)
    if all(answer[0] == SKIP for answer in held_out):
        held_out[0] = (0, 0)
    nll, scored = 0.0, 0
    for (first, last), length in zip(held_out, lengths[1], strict=True):
        if first == SKIP:
            continue
        scored += 1
        for side, gold in enumerate((first, last)):
            weights = [1 + sum(answer[side] == position for answer in train) for position in range(length)]
            nll -= math.log(weights[gold] / sum(weights))
    found = position_nll(np.array(train), np.array(held_out), np.array(lengths[1]))
    assert found == pytest.approx(nll / scored, rel=1e-12)
