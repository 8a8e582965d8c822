"""Language modelling: a stream in batches, the loss, measures of a text, the time it takes, continuations."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import as_rank, enter, small_config, untrained

from headdiv.analysis.similarity import Observed, compare_heads
from headdiv.companion.data.corpora.mixture import HeldOut
from headdiv.companion.data.data_config import LMData
from headdiv.companion.data.readers.records import BadRecords
from headdiv.companion.experiments.evaluation import examples
from headdiv.companion.models.language_model import IGNORED
from headdiv.companion.tasks import TASKS, lm
from headdiv.companion.tasks.base import held_out_loss
from headdiv.companion.tasks.lm import convergence_epoch, text_measures
from headdiv.companion.tasks.text_batch_stream import TextBatchStream
from headdiv.core.errors import ConfigError
from headdiv.nn.records import record_heads

TASK = TASKS["lm"]


@pytest.fixture(scope="module")
def run(home):
    """Of the toy, with the model as it starts out."""
    return untrained(small_config("lm"))


# ---- the stream in batches


def of_spoilt_text(folder):
    """A run on 600 documents, of which the third is not UTF-8."""
    text = "\n\n".join(f"The dog {i} sees the cat {7 * i}." for i in range(600)).encode()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_bytes(text)
    (folder / "train.txt").write_bytes(text.replace(b"dog 2 ", b"dog \xff "))
    files = {split: [f"{split}.txt"] for split in ("train", "valid", "test")}
    data = {"name": "mine", "files": files, "strict": False, "tokenizer_documents": 2, "vocabulary_size": 257}
    return small_config("lm", data=data)


def test_records_that_were_left_out_are_reported_after_an_interruption_too(tmp_path, monkeypatch):
    config = of_spoilt_text(enter(monkeypatch, tmp_path))
    first = TASK.batch_stream(TASK.load(config.data), config)
    assert first.report()["refused"] == {}
    list(first.epoch(0))
    assert first.report()["refused"] == {"not UTF-8 text": 1}
    second = TASK.batch_stream(TASK.load(config.data), config)
    second.restore(json.loads(json.dumps(first.state())))
    assert second.report() == first.report()


@pytest.mark.parametrize(
    ("train", "data", "windows", "batches"),
    [
        ({"tokens_per_batch": 256}, {"epoch_tokens": 3200}, 8, 12),  # 12.5, rounded to even
        ({"tokens_per_batch": 287}, {"epoch_tokens": 3250}, 8, 13),
        ({"tokens_per_batch": 32}, {"epoch_tokens": 1}, 1, 1),  # at least one of each
    ],
)
def test_an_epoch_is_so_many_tokens(home, train, data, windows, batches):
    config = small_config("lm", train=train, data=data)
    stream = TASK.batch_stream(TASK.load(config.data), config)
    assert stream.batches(0) == stream.batches(5) == batches
    found = list(stream.epoch(0))
    assert len(found) == batches
    assert {len(batch.inputs) for batch in found} == {32 * windows}


def test_every_document_has_its_length(run):
    """Of two sources, each of which begins with an end: in windows that are not filled, and in one that is."""
    end, context = run.corpus.bpe.end, 4
    texts = [[[5, 6, 7], [8]], [[9, 9, 9]]]
    windows = []
    for documents in texts:
        row = [token for document in documents for token in (end, *document)] + [end]
        row += [IGNORED] * (-(len(row) - 1) % context)
        windows += [row[start : start + context + 1] for start in range(0, len(row) - 1, context)]
    corpus = replace(run.corpus, valid=HeldOut(np.array(windows, dtype=np.int32), 3, 3, 3))
    assert TASK.lengths(corpus)["document (tokens)"].tolist() == [4, 2, 4]


def test_the_training_sample_holds_no_text_that_the_run_was_not_trained_on(home):
    config = small_config("lm", train={"tokens_per_batch": 64, "epochs": 2}, data={"epoch_tokens": 128})
    corpus = TASK.load(config.data)
    sample, what = TASK.training_sample(corpus, config)
    trained = sum(len(batch.inputs) for epoch in (0, 1) for batch in TASK.batch_stream(corpus, config).epoch(epoch))
    assert sum(len(batch.inputs) for batch in sample) == trained < corpus.valid.targets
    assert what == "the first 8 windows that this run was trained on"


def test_too_few_windows_for_so_many_ranks(monkeypatch):
    as_rank(monkeypatch, 0, 3)
    with pytest.raises(ConfigError) as found:
        TextBatchStream(None, 2, 1, list, BadRecords())
    assert str(found.value) == "train.tokens_per_batch: a batch has 2 windows, too few for 3 ranks"


@pytest.mark.parametrize("boundaries", [True, False])
def test_boundaries_are_a_matter_of_configuration(home, boundaries):
    config = small_config("lm", data={"boundaries": boundaries})
    corpus = TASK.load(config.data)
    for batch in TASK.batch_stream(corpus, config).epoch(0):
        assert (batch.layout.mask is None) == (not boundaries)
        begun = batch.inputs.view(8, 32)[:, 1:] == corpus.bpe.end  # inside a window
        assert len(batch.layout.queries.lengths) == 8 + int(begun.sum()) * boundaries
    assert any((batch.inputs == corpus.bpe.end).any() for batch in TASK.batch_stream(corpus, config).epoch(0))


# ---- measures


@given(st.floats(0.01, 12), st.integers(1, 5), st.integers(1, 40), st.integers(1, 400), st.integers(1, 90))
def test_measures_of_a_text(nll, documents, words, size, targets):
    windows = np.full((3, 41), IGNORED, dtype=np.int32)
    windows[:, 1:].flat[:targets] = 5
    result = text_measures(nll, HeldOut(windows, documents, words, size), "test_", "test")
    values = {name: score["value"] for name, score in result.items()}
    nats = 0.0
    for _ in range(targets):
        nats += nll
    assert values["test_perplexity"] == pytest.approx(math.exp(nats / targets))
    assert values["test_bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
    assert values["test_word_perplexity"] == pytest.approx(math.exp(min(nats / words, 700)))
    assert len(values) == 3
    said = f"test split, {targets} tokens in {documents} documents, an end of each counted"
    assert all(score["signature"].endswith(said) for score in result.values())
    assert result["test_bits_per_byte"]["unit"] == "bits/byte"


@pytest.mark.parametrize(
    ("perplexities", "epoch"),
    [
        ([20.0], 1.0),
        ([20.0, 30.0], 1.0),  # never better than after the first
        ([20.1, 20.0], 1.0),  # within 1 % from the start
        ([40.0, 20.0], 1 + 19.8 / 20),  # the last is the best
        ([40.0, 30.0, 20.0], 2 + 9.8 / 10),
        ([40.0, 20.1, 20.0, 25.0], 1 + 19.8 / 19.9),  # within 1 % before the best
        ([40.0, 20.0, 30.0, 20.0], 1 + 19.8 / 20),
    ],
)
def test_the_epoch_of_convergence(perplexities, epoch):
    curve = [{"epoch": n, "validation_nll": math.log(value)} for n, value in enumerate(perplexities, start=1)]
    assert convergence_epoch(curve) == pytest.approx(epoch)


KEYS = ["perplexity", "word_perplexity", "bits_per_byte"]


def test_scores_have_their_signatures(run):
    result = TASK.scores(run)
    assert list(result) == [
        *KEYS,
        *(f"test_{key}" for key in KEYS),
        "training_days",
        "inference_ms",
        "convergence_epoch",
    ]
    assert result["perplexity"]["value"] == pytest.approx(math.exp(2.0))  # of the curve's last point
    nll = held_out_loss(run, "test")["nll"]
    assert result["test_perplexity"]["value"] == pytest.approx(math.exp(nll))
    assert (result["training_days"]["value"], result["training_days"]["unit"]) == (0.5, "days")
    assert "8 tokens after 4, median of 5" in result["inference_ms"]["signature"]
    assert result["convergence_epoch"]["signature"].endswith("first comes within 1% of its lowest")
    assert all(score["signature"] for score in result.values())


def test_the_time_of_inference_is_that_of_a_further_token(run, monkeypatch):
    """On a clock that only the model's steps move."""
    clock, step = [0.0], run.model.step

    def tick(*args):
        clock[0] += 0.5
        return step(*args)

    monkeypatch.setattr(lm.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(run.model, "step", tick)
    assert TASK.scores(run)["inference_ms"]["value"] == pytest.approx(500.0)


# ---- continuations


def test_examples_show_how_a_text_goes_on(run):
    shown = examples(run, 3)
    assert list(shown.columns) == ["text", "goes on", "model goes on"]
    bpe = run.corpus.bpe
    for row, window in zip(shown.itertuples(index=False), run.corpus.test.windows, strict=False):
        written = lm.continue_text(run.model, window[:8].tolist(), 8, bpe.end)
        assert tuple(row) == (bpe.decode(window[:8]), bpe.decode(window[8:16]), bpe.decode(written))
    assert len(shown) == 3


def test_a_text_typed_in_is_continued(run, monkeypatch):
    asked, real = [], lm.continue_text
    monkeypatch.setattr(lm, "continue_text", lambda model, prompt, new, end: asked.append(prompt) or real(
        model, prompt, new, end))  # fmt: skip
    bpe, text = run.corpus.bpe, "The dog"
    ids = [bpe.end, *bpe.encode_batch([text])[0]]
    result = TASK.apply(run, text, new_tokens=10)
    assert result == text + bpe.decode(real(run.model, ids, 10, bpe.end))
    long = "The dog sees the old cat. " * 9
    TASK.apply(run, long, new_tokens=20)
    TASK.apply(run, long)  # of 32 tokens half are new
    assert asked == [ids, *(bpe.encode_batch([long])[0][-room:] for room in (12, 16))]  # as much as there is room for


# ---- configuration


def test_a_source_that_slimpajama_does_not_have():
    result = {"name": "toy", "epoch_tokens": 1}
    TASK.check_data(LMData(**result, mixture={"C4": 1.0, "Books": 2.0}))
    with pytest.raises(ConfigError, match=r"^data\.mixture\.Book: unknown source; did you mean 'Books'\?$"):
        TASK.check_data(LMData(**result, mixture={"C4": 1.0, "Book": 2.0}))


def test_packed_batches_of_a_task_are_those_of_single_examples(folder):
    """Documents in windows with boundaries, and whole windows that see no mask at all."""
    for boundaries in (True, False):
        run = untrained(small_config("lm", data={"boundaries": boundaries}))
        task = TASKS["lm"]
        windows = run.corpus.valid.windows[:4]
        found = []
        for size in (4, 1):
            seen = []
            for start in range(0, 4, size):
                batch = task.lay_out(windows[start : start + size], run.corpus, run.config.data)
                with torch.no_grad(), record_heads(run.model) as records:
                    run.model(batch)
                seen.append(Observed(records, {}))
            ((_, measured),) = compare_heads(seen)
            found.append(measured)
        for name, value in vars(found[0]).items():
            np.testing.assert_allclose(value, getattr(found[1], name), atol=1e-5, err_msg=name)
