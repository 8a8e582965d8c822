"""Attention maps of texts that are typed in: labels, weights, and what is refused."""

import numpy as np
import pytest
import torch
from faulty import exactly
from small_runs import small_config, untrained

from headdiv.companion.experiments.attention_maps import attention_maps
from headdiv.companion.tasks import TASKS
from headdiv.nn.records import record_heads

SOURCE = "The old dog sees a small cat."


def check(maps):
    for found in maps.values():
        heads, queries, keys = found.weights.shape
        assert (queries, keys) == (len(found.queries), len(found.keys))
        np.testing.assert_allclose(found.weights.sum(-1), np.ones((heads, queries)), atol=1e-5)


def test_a_translation_is_shown_with_the_models_own_output(run):
    maps = attention_maps(run, SOURCE)
    check(maps)
    assert list(maps) == ["encoder 1", "decoder 1", "cross 1"]
    words = ["The", "old", "dog", "sees", "a", "small", "cat", ".", "</s>"]
    known = run.corpus.source.words
    assert maps["encoder 1"].queries == [word if word in known else "<unk>" for word in words]
    assert maps["encoder 1"].queries == maps["encoder 1"].keys == maps["cross 1"].keys
    assert maps["cross 1"].queries == maps["decoder 1"].queries == maps["decoder 1"].keys
    shown = maps["decoder 1"].queries
    assert shown[0] == "<s>"
    assert " ".join(shown[1:]).replace(" .", ".") == TASKS["translation"].apply(run, SOURCE)
    assert maps["encoder 1"].weights.shape[0] == 8
    assert not np.triu(maps["decoder 1"].weights, 1).any()  # nothing later is seen


def test_weights_are_the_models(run):
    """Those of a pair of the corpus, given as text."""
    source, target = run.corpus.test.text[0]
    maps = attention_maps(run, source, target)
    batch = next(TASKS["translation"].held_out(run.corpus, "test", run.config))
    with torch.no_grad(), record_heads(run.model) as records:
        run.model(batch)
    at = batch.numbers.tolist().index(0)
    for record in records:
        sides = record.layout.queries, record.layout.keys
        window = int((sides[0].sentences == at).any(1).nonzero())
        queries, keys = ((side.sentences[window] == at).nonzero().flatten() for side in sides)
        expected = record.weights[window][:, queries][:, :, keys]
        found = maps[f"{record.spec.kind} {record.spec.layer + 1}"].weights
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_one_head_is_a_table(run):
    found = attention_maps(run, SOURCE)["cross 1"]
    table = found.head(8)
    assert list(table.index) == found.queries
    assert list(table.columns) == found.keys
    assert np.array_equal(table.to_numpy(), found.weights[7])
    for number in (0, 9):
        with exactly(f"head {number}: the heads are 1 to 8"):
            found.head(number)


def test_a_summary_is_cut_as_the_model_reads_it(folder):
    run = untrained(small_config("summarisation"))
    document = " ".join(["dog"] * 40)
    maps = attention_maps(run, document, document)
    check(maps)
    assert len(maps["encoder 1"].queries) == 25 + 1
    assert len(maps["decoder 1"].queries) == 12 + 1


def test_a_question_and_its_passage(folder):
    run = untrained(small_config("qa"))
    asked = run.corpus.test.questions[0]
    maps = attention_maps(run, asked.context, asked.question)
    check(maps)
    assert maps["cross 1"].keys[-1] == "</s>"
    words = [run.corpus.vocabulary.words[i] for i in run.corpus.test.pairs.target[0]]
    assert maps["decoder 1"].queries == words
    assert np.triu(maps["decoder 1"].weights, 1).any()  # a passage is read as a whole
    for texts, sentence in (
        ([asked.context], "a passage without a question: give the question as the second text"),
        ([asked.context, " "], "a question and a passage of at least one word each are needed"),
    ):
        with exactly(sentence):
            attention_maps(run, *texts)


@pytest.mark.parametrize("boundaries", [True, False])
def test_a_language_model_reads_a_text_behind_a_mark(folder, boundaries):
    run = untrained(small_config("lm", data={"boundaries": boundaries}))
    maps = attention_maps(run, "the dog\n")
    check(maps)
    assert list(maps) == ["decoder 1"]
    labels = maps["decoder 1"].queries
    assert labels[0] == "<|endoftext|>"
    assert "".join(labels[1:]) == "the␣dog↵"
    assert not np.triu(maps["decoder 1"].weights, 1).any()
    assert len(attention_maps(run, "dog " * 100)["decoder 1"].keys) == 32  # as much as the context holds …
    ends = [attention_maps(run, "dog " * 100 + last)["decoder 1"].keys[-1] for last in ("sees", "sleeps")]
    assert ends[0] != ends[1]  # … of its end, as where it is continued
    with exactly("a language model reads one text, found two"):
        attention_maps(run, "the", "dog")


def test_a_masked_model_reads_blanks(folder):
    run = untrained(small_config("mlm"))
    maps = attention_maps(run, "the [MASK] dog")
    check(maps)
    labels = maps["encoder 1"].queries
    assert labels.count("[MASK]") == 1
    assert "".join(labels[1:]) == "the[MASK]␣dog"
    assert np.triu(maps["encoder 1"].weights, 1).any()
    assert "[MASK]" not in attention_maps(run, "the dog")["encoder 1"].keys
