"""Attention maps of texts that are typed in: labels and weights."""

import numpy as np
import pytest
import torch
from small_runs import small_config, untrained

from headdiv.companion.experiments.attention_maps import attention_maps
from headdiv.companion.tasks import TASKS
from headdiv.nn.records import record_heads

SOURCE = "The old dog sees a small cat."


def maps_of(run, *texts):
    """The maps, each of whose rows is a distribution over the keys."""
    maps = attention_maps(run, *texts)
    for attention in maps.values():
        heads, queries, keys = attention.weights.shape
        assert (queries, keys) == (len(attention.queries), len(attention.keys))
        np.testing.assert_allclose(attention.weights.sum(-1), np.ones((heads, queries)), atol=1e-5)
    return maps


def is_causal(attention):
    return not np.triu(attention.weights, 1).any()


def test_a_translation_is_shown_with_the_models_own_output(run):
    maps = maps_of(run, SOURCE)
    encoder, decoder, cross = (maps[name] for name in ("encoder 1", "decoder 1", "cross 1"))
    words, vocabulary = ["The", "old", "dog", "sees", "a", "small", "cat", ".", "</s>"], run.corpus.source.words
    assert encoder.queries == encoder.keys == cross.keys == [word if word in vocabulary else "<unk>" for word in words]
    assert cross.queries == decoder.queries == decoder.keys
    assert decoder.queries[0] == "<s>"
    assert " ".join(decoder.queries[1:]).replace(" .", ".") == TASKS["translation"].apply(run, SOURCE)
    assert is_causal(decoder)


def test_weights_are_the_models(run):
    """Those of a pair of the corpus, given as text."""
    source, target = run.corpus.test.text[0]
    maps = maps_of(run, source, target)
    batch = next(TASKS["translation"].held_out(run.corpus, "test", run.config))
    with torch.no_grad(), record_heads(run.model) as records:
        run.model(batch)
    sentence = batch.numbers.tolist().index(0)
    for record in records:
        sides = record.layout.queries, record.layout.keys
        window = int((sides[0].sentences == sentence).any(1).nonzero())
        queries, keys = ((side.sentences[window] == sentence).nonzero().flatten() for side in sides)
        expected = record.weights[window][:, queries][:, :, keys]
        np.testing.assert_allclose(maps[record.spec.name].weights, expected.numpy(), atol=1e-5)


def test_a_summary_is_cut_as_the_model_reads_it(folder):
    document = " ".join(["dog"] * 40)
    maps = maps_of(untrained(small_config("summarisation")), document, document)
    assert (len(maps["encoder 1"].queries), len(maps["decoder 1"].queries)) == (25 + 1, 12 + 1)


def test_a_question_and_its_passage(folder):
    run = untrained(small_config("qa"))
    question = run.corpus.test.questions[0]
    maps = maps_of(run, question.context, question.question)
    assert maps["cross 1"].keys[-1] == "</s>"
    assert maps["decoder 1"].queries == [run.corpus.vocabulary.words[i] for i in run.corpus.test.pairs.target[0]]
    assert not is_causal(maps["decoder 1"])  # a passage is read as a whole


@pytest.mark.parametrize("boundaries", [True, False])
def test_a_language_model_reads_a_text_behind_a_mark(folder, boundaries):
    run = untrained(small_config("lm", data={"boundaries": boundaries}))
    (attention,) = maps_of(run, "the dog\n").values()
    assert attention.queries[0] == "<|endoftext|>"
    assert "".join(attention.queries[1:]) == "the␣dog↵"
    assert is_causal(attention)
    ends = [maps_of(run, "dog " * 100 + last)["decoder 1"].keys for last in ("sees", "sleeps")]
    assert [len(keys) for keys in ends] == [32, 32]  # as much as the context holds …
    assert ends[0][-1] != ends[1][-1]  # … of its end, as where it is continued


def test_a_masked_model_reads_blanks(folder):
    run = untrained(small_config("mlm"))
    attention = maps_of(run, "the [MASK] dog")["encoder 1"]
    assert "".join(attention.queries[1:]) == "the[MASK]␣dog"
    assert not is_causal(attention)
