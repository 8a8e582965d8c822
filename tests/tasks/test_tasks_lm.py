"""Language modelling: a stream in batches, measures of a text, the time it takes, continuations."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import small_config, untrained
from surroundings import as_rank, enter

from headdiv.companion.data.corpora.mixture import HeldOut
from headdiv.companion.models.batching import IGNORED
from headdiv.companion.models.language_model import likeliest_tokens
from headdiv.companion.tasks import TASKS, lm
from headdiv.companion.tasks.base import held_out_loss
from headdiv.companion.tasks.lm import LMData, convergence_epoch, text_measures
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check

TASK = TASKS["lm"]


@pytest.fixture(scope="module")
def run(home):
    """Of the toy, with the model as it starts out."""
    return untrained(small_config("lm"))


# ---- the stream in batches


def test_records_that_were_left_out_are_reported_after_an_interruption_too(tmp_path, monkeypatch):
    folder = enter(monkeypatch, tmp_path)
    text = "\n\n".join(f"The dog {i} sees the cat {7 * i}." for i in range(600)).encode()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_bytes(text)
    (folder / "train.txt").write_bytes(text.replace(b"dog 2 ", b"dog \xff "))
    files = {split: [f"{split}.txt"] for split in ("train", "valid", "test")}
    data = {"name": "mine", "files": files, "strict": False, "tokenizer_documents": 2, "vocabulary_size": 257}
    config = small_config("lm", data=data)
    first = TASK.batch_stream(TASK.load(config.data), config)
    list(first.epoch(0))
    assert first.report()["refused"] == {"not UTF-8 text": 1}
    second = TASK.batch_stream(TASK.load(config.data), config)
    second.restore(json.loads(json.dumps(first.state())))
    assert second.report() == first.report()


@pytest.mark.parametrize(
    ("batch", "epoch", "windows", "batches"),
    [(256, 3200, 8, 12), (287, 3250, 8, 13), (32, 1, 1, 1)],  # 12.5 is rounded to even; at least one of each
)
def test_an_epoch_is_so_many_tokens(home, monkeypatch, batch, epoch, windows, batches):
    config = small_config("lm", train={"tokens_per_batch": batch, "epochs": 2}, data={"epoch_tokens": epoch})
    corpus = TASK.load(config.data)
    stream = TASK.batch_stream(corpus, config)
    assert [len(batch.inputs) for batch in stream.epoch(0)] == [32 * windows] * batches
    as_rank(monkeypatch, 0, 9)
    with pytest.raises(ConfigError, match=f"a batch has {windows} windows, too few for 9 ranks"):
        TASK.batch_stream(corpus, config)


@pytest.mark.parametrize("boundaries", [True, False])
def test_boundaries_are_a_matter_of_configuration(home, boundaries):
    config = small_config("lm", data={"boundaries": boundaries})
    corpus = TASK.load(config.data)
    begun = 0
    for batch in TASK.batch_stream(corpus, config).epoch(0):
        assert (batch.layout.mask is None) == (not boundaries)
        inside = int((batch.inputs.view(8, 32)[:, 1:] == corpus.bpe.end).sum())  # of a window
        assert len(batch.layout.queries.lengths) == 8 + inside * boundaries
        begun += inside
    assert begun


def test_a_source_that_slimpajama_does_not_have():
    data = {"name": "toy", "epoch_tokens": 1}
    TASK.check_data(LMData(**data, mixture={"C4": 1.0, "Books": 2.0}))
    with pytest.raises(ConfigError, match=r"^data\.mixture\.Book: unknown source; did you mean 'Books'\?$"):
        TASK.check_data(LMData(**data, mixture={"C4": 1.0, "Book": 2.0}))


def test_what_is_no_pattern_of_a_documents_first_line():
    with pytest.raises(ConfigError, match=r"^data\.document_start: input should be a regular expression \(missing \)"):
        check(LMData, {"name": "toy", "epoch_tokens": 1, "document_start": "("}, ("data",))


def test_a_documents_first_line_is_of_plain_text_alone():
    def check_files(train):
        files = None if train == "toy" else {"train": [train], "valid": ["b.jsonl"], "test": ["b.jsonl"]}
        name = "toy" if files is None else "mine"
        TASK.check_data(LMData(name=name, files=files, epoch_tokens=1, document_start="^="))

    check_files("a.txt")
    for train in ("toy", "a*.jsonl.zst"):
        with pytest.raises(ConfigError, match=r"^data\.document_start: found '\^=', .* JSON lines"):
            check_files(train)


# ---- measures


@given(st.floats(0.01, 12), st.integers(1, 40), st.integers(1, 400), st.integers(1, 90))
def test_measures_of_a_text(nll, words, size, targets):
    windows = np.full((3, 41), IGNORED, dtype=np.int32)
    windows[:, 1:].flat[:targets] = 5
    measures = text_measures(nll, HeldOut(windows, 2, words, size), "test_", "test")
    nats = sum(nll for _ in range(targets))
    expected = {
        "test_perplexity": math.exp(nats / targets),
        "test_word_perplexity": math.exp(min(nats / words, 700)),
        "test_bits_per_byte": nats / math.log(2) / size,
    }
    assert {name: score["value"] for name, score in measures.items()} == pytest.approx(expected)
    assert all(f"test split, {targets} tokens in 2 documents" in score["signature"] for score in measures.values())


@pytest.mark.parametrize(
    ("perplexities", "epoch"),
    [
        ([20.0, 30.0], 1.0),  # never better than after the first
        ([20.1, 20.0], 1.0),  # within 1 % from the start
        ([40.0, 20.0], 1 + 19.8 / 20),  # the last is the best
        ([40.0, 30.0, 20.0], 2 + 9.8 / 10),
        ([40.0, 20.1, 20.0, 25.0], 1 + 19.8 / 19.9),  # within 1 % before the best
    ],
)
def test_the_epoch_of_convergence(perplexities, epoch):
    curve = [{"epoch": n, "validation_nll": math.log(value)} for n, value in enumerate(perplexities, start=1)]
    assert convergence_epoch(curve) == pytest.approx(epoch)


def test_scores_of_a_run_and_the_time_of_a_further_token(run, monkeypatch):
    """On a clock that only the model's steps move."""
    clock, step = [0.0], run.model.step

    def tick(*args):
        clock[0] += 0.5
        return step(*args)

    monkeypatch.setattr(lm.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(run.model, "step", tick)
    scores = TASK.scores(run)
    assert scores["perplexity"]["value"] == pytest.approx(math.exp(2.0))  # of the curve's last point
    assert scores["test_perplexity"]["value"] == pytest.approx(math.exp(held_out_loss(run, "test")["nll"]))
    assert (scores["training_days"]["value"], scores["training_days"]["unit"]) == (0.5, "days")
    assert scores["inference_ms"]["value"] == pytest.approx(500.0)
    assert "8 tokens after 4, median of 5" in scores["inference_ms"]["signature"]
    assert all(score["signature"] for score in scores.values())


# ---- continuations


@pytest.mark.parametrize("text", ["The dog", "The dog sees the old cat. " * 9])
def test_a_text_typed_in_is_continued(run, text):
    """Of 32 tokens half are new; of a text for which there is no room, the end is read."""
    bpe = run.corpus.bpe
    prompt = [bpe.end, *bpe.encode_batch([text])[0]][-16:]
    written = bpe.decode(list(likeliest_tokens(run.model, prompt, 16, bpe.end)))
    assert TASK.apply(run, text) == written


def test_example_texts_are_the_beginnings_of_documents(run):
    bpe = run.corpus.bpe
    first, *others = [text + rest.split("<|")[0] for text, _, rest in TASK.example_texts(run.corpus, "test", 5)]
    assert len(others) == 4
    assert bpe.decode(run.corpus.test.windows[:2, :-1].ravel()[1:]).startswith(first)
    whole = bpe.decode(np.concatenate([window[:-1] for window in run.corpus.test.windows[:-1]]))
    assert all(f"<|endoftext|>{text}" in whole for text in others)
