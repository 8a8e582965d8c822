"""Masked language modelling: a batch with nothing to predict, scores, and blanks filled."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import small_config, untrained

from headdiv.companion.models.batching import IGNORED
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import held_out_loss
from headdiv.core.errors import DataError

TASK = TASKS["mlm"]


@pytest.fixture(scope="module")
def run(home):
    """Of the toy, with the model as it starts out."""
    fresh = untrained(small_config("mlm"))
    curve = [{"epoch": 1, "validation_nll": 2.0, "validation_accuracy": 12.5}]
    return replace(fresh, record=fresh.record | {"curve": curve})


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_may_have_nothing_to_predict(home, smoothing):
    """One rank's share of a small batch."""
    run = untrained(small_config("mlm", "direct-2"))
    masked = run.corpus.masked["test"][-2:].copy()
    masked[:, 1] = IGNORED
    batch = TASK.pack(masked, run.corpus, run.config.data)
    losses = TASK.loss(run.model, run.model.output_weight, batch, smoothing)
    assert (losses.loss.item(), losses.nll.item(), int(losses.correct), losses.count) == (0, 0, 0, 0)
    losses.loss.backward()
    assert all(not p.grad.any() for p in run.model.parameters() if p.grad is not None)


def test_scores_have_their_signatures(run):
    scores, test, counts = TASK.scores(run), held_out_loss(run, "test"), run.corpus.statistics["test"]
    assert {name: score["value"] for name, score in scores.items()} == pytest.approx(
        {
            "perplexity": math.exp(2.0),  # of the curve's last point
            "masked_accuracy": 12.5,
            "test_perplexity": math.exp(test["nll"]),
            "test_masked_accuracy": test["accuracy"],
        }
    )
    assert counts["predictions"] == (run.corpus.masked["test"][:, 1] != IGNORED).sum()
    said = f"test split, {counts['predictions']} predictions among {counts['tokens']:,} tokens; 15 % chosen"
    assert said in scores["test_perplexity"]["signature"]


# ---- blanks


def literal_answers(run, tokens, blank):
    """One window alone."""
    read = np.where(blank, 300, tokens)
    batch = TASK.pack(np.stack([read, tokens])[None], run.corpus, run.config.data)
    with torch.no_grad():
        logits = run.model.eval()(batch) @ run.model.output_weight.T
    return logits.argmax(-1).numpy()[blank[tokens != IGNORED]]


def test_examples_are_parts_of_documents_with_blanks_and_as_they_were(run):
    bpe, examples = run.corpus.bpe, TASK.example_texts(run.corpus, "test", 5)
    blanks = run.corpus.masked["test"][:, 1] != IGNORED
    chosen = np.flatnonzero(blanks.any(axis=1))[:5]
    for (text, _, reference), number in zip(examples, chosen, strict=True):
        tokens, blank = run.corpus.test.windows[number, :-1], blanks[number]
        assert reference in bpe.decode(tokens)
        assert 1 <= text.count("[MASK]") <= blank.sum()
        for piece in [bpe.decode([token]) for token in tokens[blank]][: text.count("[MASK]")]:
            before, after = text.split("[MASK]", 1)
            text = (before.removesuffix(" ") if piece.startswith(" ") else before) + piece + after
        assert text.strip() == reference


@pytest.mark.parametrize("masked", [1, 0])
def test_a_last_window_that_lacks_tokens_and_one_without_a_masked_token(run, masked):
    windows, chosen = run.corpus.test.windows[-1:], run.corpus.masked["test"][-1:].copy()
    assert (windows == IGNORED).any()
    chosen[0, 1] = IGNORED
    chosen[0, 1, :masked] = 5
    corpus = replace(run.corpus, test=replace(run.corpus.test, windows=windows), masked={"test": chosen})
    texts = TASK.examples(replace(run, corpus=corpus), 3)
    assert ["[MASK]" in text for text in texts.get("text", [])] == [True] * masked


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("The [MASK] sees the cat.", ["The", " sees the cat."]),
        ("[MASK] dog [MASK][MASK]", ["", " dog", "", ""]),
        ("un[MASK]able", ["un", "able"]),
    ],
)
def test_blanks_in_a_text_typed_in_are_filled(run, text, parts):
    """A space before a blank belongs to the token that fills it."""
    bpe = run.corpus.bpe
    first, *others = bpe.encode_batch(parts)
    tokens = np.array([bpe.end, *first, *(token for part in others for token in (300, *part))])
    blank = tokens == 300
    tokens[blank] = literal_answers(run, tokens, blank)
    assert TASK.apply(run, text) == bpe.decode(tokens[1:])


def test_a_text_that_cannot_be_filled_in(run):
    with pytest.raises(DataError, match=r"a text without anything to predict: expected one \[MASK\]"):
        TASK.apply(run, "The dog [mask].")
    with pytest.raises(DataError, match=r"a text of 33 tokens, .* at most 32"):
        TASK.apply(run, "!" * 31 + "[MASK]")
    assert TASK.apply(run, "!" * 30 + "[MASK]").startswith("!" * 30)
