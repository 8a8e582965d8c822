"""Masked language modelling: batches, the loss of what is masked, scores, blanks filled, and whole runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import small_config, untrained

from headdiv.companion.data.corpora.masking import mask_held_out
from headdiv.companion.experiments import evaluation
from headdiv.companion.models.language_model import IGNORED, make_masked_windows
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


def content(batch):
    return batch.inputs.tolist(), batch.targets.tolist()


# ---- batches


def test_held_out_text_is_masked_by_one_choice_for_all_runs(run):
    batches = [content(batch) for batch in TASK.held_out(run.corpus, "test", run.config)]
    there = run.corpus.test.windows[:, :-1] >= 0
    masked = mask_held_out(run.corpus.test, run.corpus.bpe, run.config.data)
    for at in range(2):
        assert [token for batch in batches for token in batch[at]] == masked[:, at][there].tolist()


# ---- the loss


@pytest.mark.parametrize("variant", ["baseline", "direct-2"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_may_have_nothing_to_predict(home, variant, smoothing):
    """One rank's share of a small batch."""
    run = untrained(small_config("mlm", variant))
    masked = run.corpus.masked["test"][-2:].copy()
    masked[:, 1] = IGNORED
    batch = make_masked_windows(masked, run.corpus.bpe.end, True)
    losses = TASK.loss(run.model, run.model.output_weight, batch, smoothing)
    assert (losses.loss.item(), losses.nll.item(), int(losses.correct), losses.count) == (0, 0, 0, 0)
    losses.loss.backward()
    assert all(not p.grad.any() for p in run.model.parameters() if p.grad is not None)


# ---- scores


def test_scores_have_their_signatures(run):
    result = TASK.scores(run)
    assert list(result) == ["perplexity", "masked_accuracy", "test_perplexity", "test_masked_accuracy"]
    assert result["perplexity"]["value"] == pytest.approx(math.exp(2.0))  # of the curve's last point
    assert result["masked_accuracy"]["value"] == 12.5
    test = held_out_loss(run, "test")
    assert result["test_perplexity"]["value"] == pytest.approx(math.exp(test["nll"]))
    assert result["test_masked_accuracy"]["value"] == pytest.approx(test["accuracy"])
    counts = run.corpus.statistics["test"]
    assert result["test_perplexity"]["signature"] == (
        f"exp(nats/masked token); test split, {counts['predictions']} predictions among {counts['tokens']:,} tokens; "
        "15 % chosen, document ends never; of these 80 % read as a blank, 10 % as a random token; "
        "one choice for all runs"
    )
    assert counts["predictions"] == (run.corpus.masked["test"][:, 1] != IGNORED).sum()


# ---- blanks


def literal_answers(run, tokens, blank):
    """One window alone."""
    read = np.where(blank, 300, tokens)
    batch = make_masked_windows(np.stack([read, tokens])[None], run.corpus.bpe.end, True)
    with torch.no_grad():
        logits = run.model.eval()(batch) @ run.model.output_weight.T
    return logits.argmax(-1).numpy()[blank[tokens != IGNORED]]


def test_examples_show_blanks_truth_and_answers(run):
    bpe, shown = run.corpus.bpe, evaluation.examples(run, 5)
    assert list(shown.columns) == ["text", "masked", "likeliest"]
    assert len(shown) == 5
    blanks = run.corpus.masked["test"][:, 1] != IGNORED
    chosen = np.flatnonzero(blanks.any(axis=1))[:5]
    for (text, truth, likeliest), number in zip(shown.itertuples(index=False), chosen, strict=True):
        tokens, blank = run.corpus.test.windows[number, :-1], blanks[number]
        texts = [bpe.decode([token]) for token in tokens[blank]]
        assert text.count("[MASK]") == blank.sum()
        whole = text
        for piece in texts:
            whole = whole.replace(" [MASK]" if piece.startswith(" ") else "[MASK]", piece, 1)
        assert whole == bpe.decode(tokens)
        assert truth == " | ".join(piece.strip() or repr(piece) for piece in texts)
        answers = [bpe.decode([token]) for token in literal_answers(run, tokens, blank)]
        assert likeliest == " | ".join(piece.strip() or repr(piece) for piece in answers)


def test_a_last_window_that_lacks_tokens_is_an_example_too(run):
    last = slice(-1, None)
    masked = run.corpus.masked["test"][last].copy()
    masked[0, 1, 1] = run.corpus.test.windows[-1, 1]
    test = replace(run.corpus.test, windows=run.corpus.test.windows[last])
    assert (test.windows == IGNORED).any()
    corpus = replace(run.corpus, test=test, masked={"test": masked})
    (text,) = TASK.examples(replace(run, corpus=corpus), 3)["text"]
    assert "[MASK]" in text


def test_a_test_split_with_few_masked_tokens_has_no_example(run, monkeypatch):
    masked = run.corpus.masked["test"].copy()
    masked[:, 1] = IGNORED
    bare = replace(run, corpus=replace(run.corpus, masked={"test": masked}))
    with pytest.raises(DataError, match="no masked token among the first 48 of any window"):
        TASK.example_text(bare)
    assert TASK.examples(bare, 5).empty


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
    assert evaluation.apply(run, text) == bpe.decode(tokens[1:])


def test_a_text_that_cannot_be_filled_in(run):
    with pytest.raises(DataError) as found:
        TASK.apply(run, "The dog [mask].")
    assert str(found.value) == "a text without [MASK]: expected at least one, where a token is to be filled in"
    with pytest.raises(DataError) as found:
        TASK.apply(run, "!" * 31 + "[MASK]")
    assert str(found.value) == "a text of 33 tokens, its beginning counted: expected at most 32"
    assert TASK.apply(run, "!" * 30 + "[MASK]").startswith("!" * 30)
