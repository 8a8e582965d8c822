"""What every task must do: batches, shares of ranks, going on, masks, loss, held-out text, examples, typed texts."""

import json
import math
from itertools import islice

import numpy as np
import pytest
import torch
from small_runs import assert_loss_is_literal, small_config, untrained
from surroundings import as_rank

from headdiv.companion.models.batching import BEGIN, END
from headdiv.companion.tasks import TASKS, lm, qa, seq2seq
from headdiv.companion.tasks.base import Run, held_out_loss, observed_heads
from headdiv.core.errors import ConfigError
from headdiv.core.files import read_json
from headdiv.methods import check_method

PAIRS = ("translation", "summarisation", "qa")  # whose batches are lists of examples; others read windows of a stream


@pytest.fixture(scope="module", params=TASKS)
def run(request, home) -> Run:
    """Of the toy, with the model as it starts out."""
    return untrained(small_config(request.param))


@pytest.fixture
def task(run):
    return TASKS[run.config.kind]


def stream_of(task, run, **sections):
    return task.batch_stream(run.corpus, small_config(run.config.kind, **sections))


def numbers_of(batches):
    return sorted(number for batch in batches for number in batch.numbers.tolist())


def content(batch):
    """What is read and what is to be predicted, as lists."""
    names = ("numbers", "source", "target_in", "target_out") if hasattr(batch, "source") else ("inputs", "targets")
    return [torch.as_tensor(getattr(batch, name)).tolist() for name in names]


def examples_of(run, batch):
    """The examples of a batch one by one: numbers, or the tokens of its windows."""
    if run.config.kind in PAIRS:
        return batch.numbers.tolist()
    width = run.config.data.context
    tokens = list(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True))
    return [tuple(tokens[at : at + width]) for at in range(0, len(tokens), width)]


# ---- settings and corpus


def test_a_task_says_what_can_be_configured_and_what_its_corpus_holds(task, run):
    assert TASKS[task.name] is task
    assert [key for key, field in task.Data.model_fields.items() if not field.description] == []
    task.check_data(run.config.data)
    assert task.score_label(task.main_score.name) == task.main_score.label
    statistics = run.corpus.statistics
    assert json.loads(json.dumps(statistics)) == statistics
    assert tuple(statistics["vocabulary"].values()) == task.vocabulary(run.config.data)
    assert all(statistics[split]["examples"] > 0 for split in ("valid", "test"))
    assert statistics["valid"]["unigram_nll"] > 0
    size = statistics["train"]["examples"] if run.config.kind in PAIRS else run.config.data.epoch_tokens
    assert task.training_size(run.config.data.model_dump(), statistics).startswith(f"{size:,} ")


@pytest.mark.parametrize("name", TASKS)
def test_a_data_set_without_what_the_task_reads_is_refused(name):
    task, options = TASKS[name], {"epoch_tokens": 1} if name in ("lm", "mlm") else {}
    data = task.Data(name="squad" if name == "translation" else "multi30k", **options)
    data = data.model_copy(update={"test": "valid" if name == "translation" else "test_2016_flickr"})
    with pytest.raises(ConfigError, match=r"^data\.(name: 'multi30k' has no file for |source: 'en' is not known)"):
        task.check_data(data)


# ---- training batches


def test_the_seed_decides_what_is_read_when(task, run):
    first, again, other = (next(stream_of(task, run, seed=seed).epoch(0)) for seed in (1, 1, 2))
    assert content(first) == content(again) != content(other)


def test_an_epoch_has_the_batches_that_are_counted_within_the_budget(task, run):
    stream, budget = stream_of(task, run), run.config.train.tokens_per_batch
    batches = list(stream.epoch(0))
    assert len(batches) == stream.batches(0) > 3
    if run.config.kind in PAIRS:
        assert numbers_of(batches) == task.scored(run.corpus.train).tolist()
        sizes = run.corpus.train.pairs.sizes(*task.budget)
        assert max(sizes[batch.numbers].sum() for batch in batches) <= budget
        assert [content(batch) for batch in stream.epoch(1)] != [content(batch) for batch in batches]
    else:
        assert {len(batch.inputs) for batch in batches} == {budget // run.config.data.context * run.config.data.context}


def test_a_share_of_the_training_examples_is_the_first_ones_and_windows_have_none(task, run):
    if run.config.kind not in PAIRS:
        assert "share" in task.ignores
        return
    every = task.scored(run.corpus.train).tolist()
    assert numbers_of(stream_of(task, run, train={"share": 0.25}).epoch(0)) == every[: math.ceil(len(every) / 4)]
    assert numbers_of(stream_of(task, run, train={"share": 0.001}).epoch(0)) == every[:1]


@pytest.mark.parametrize("before", [5, "all"])
def test_a_stream_goes_on_where_it_stood(task, run, before):
    whole = stream_of(task, run)
    expected = [content(batch) for epoch in (0, 1) for batch in whole.epoch(epoch)]
    first = stream_of(task, run)
    before = first.batches(0) if before == "all" else before
    found = [content(batch) for batch in islice(first.epoch(0), before)]
    second = stream_of(task, run)
    second.restore(json.loads(json.dumps(first.state())))
    found += [content(batch) for epoch in (0, 1) for batch in second.epoch(epoch)]
    assert found == expected
    assert second.report() == whole.report()


def test_ranks_share_every_batch(task, run, monkeypatch):
    world = 3
    alone = [sorted(examples_of(run, batch)) for batch in stream_of(task, run).epoch(0)]
    shares = []
    for rank in range(world):
        as_rank(monkeypatch, rank, world)
        stream = stream_of(task, run)
        shares.append([examples_of(run, batch) for batch in stream.epoch(0)])
        assert stream.batches(0) == len(shares[-1]) == len(alone)  # all ranks take as many steps
    for examples, *parts in zip(alone, *shares, strict=True):
        assert sorted(example for part in parts for example in part) == examples
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("kind", PAIRS)
def test_a_rank_may_have_an_empty_share(home, kind):
    run = untrained(small_config(kind, "direct-2"))
    batch = TASKS[kind].pack(run.corpus.train, [])
    for smoothing in (0.0, 0.1):
        run.model.zero_grad()
        losses = TASKS[kind].loss(run.model, run.model.output_weight, batch, smoothing)
        assert (losses.loss.item(), losses.nll.item(), int(losses.correct), losses.count, losses.tokens) == (0,) * 5
        losses.loss.backward()
        assert all(not p.grad.any() for p in run.model.parameters() if p.grad is not None)


# ---- the loss


def literal_spans(losses, hidden, weight, batch, smoothing):
    """Question answering: −log p of the first and of the last word, a softmax over each passage, in floats."""
    nll = uniform = correct = 0
    rows, start = (hidden.double() @ weight.double().T).tolist(), 0
    for length, gold in zip(batch.target_rows.lengths.tolist(), batch.target_out.tolist(), strict=True):
        mine, start = rows[start : start + length], start + length
        likeliest = []
        for side in (0, 1):
            total = math.log(sum(math.exp(row[side]) for row in mine))
            nll += total - mine[gold[side]][side]
            uniform += sum(total - row[side] for row in mine) / length
            likeliest.append(max(range(length), key=lambda i: mine[i][side]))
        correct += likeliest == gold
    assert losses.nll.item() == pytest.approx(nll, rel=1e-5)
    assert losses.loss.item() == pytest.approx((1 - smoothing) * nll + smoothing * uniform, rel=1e-5)
    assert (int(losses.correct), losses.count) == (correct, len(batch.target_out))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_the_literal_one(task, run, smoothing):
    batch, weight = next(iter(task.held_out(run.corpus, "valid", run.config))), run.model.output_weight.detach()
    width, rows = weight.shape[1], len(run.model(batch))
    hidden = torch.randn(rows, width, generator=torch.Generator().manual_seed(1))
    losses = task.loss(lambda _: hidden, weight, batch, smoothing)
    if run.config.kind == "qa":
        literal_spans(losses, hidden, weight, batch, smoothing)
    else:
        targets = batch.target_out if run.config.kind in PAIRS else batch.targets
        assert assert_loss_is_literal(losses, hidden, weight, targets, smoothing) > 0
    assert not losses.nll.requires_grad
    assert losses.tokens == (losses.count if run.config.kind not in ("qa", "mlm") else rows)


def one_by_one(task, run, split, count):
    """The first examples of a split as one batch, and each as a batch of its own."""
    if run.config.kind in PAIRS:
        data = getattr(run.corpus, split)
        numbers = task.scored(data)[:count].tolist()
        return task.pack(data, numbers), [task.pack(data, [number]) for number in numbers]
    windows = task.windows(run.corpus, split)[-count:]  # the last one may lack tokens
    parts = [windows, *windows[:, None]]
    whole, *alone = (task.pack(part, run.corpus, run.config.data) for part in parts)
    return whole, alone


@pytest.mark.parametrize("kind", TASKS)
def test_an_example_has_the_same_loss_alone_and_beside_others(home, kind):
    task, run = TASKS[kind], untrained(small_config(kind, "average-2"))
    whole, alone = one_by_one(task, run, "test", 5)
    with torch.no_grad():
        one, *others = (task.loss(run.model, run.model.output_weight, batch) for batch in (whole, *alone))
    assert one.count == sum(part.count for part in others) > 0
    assert one.nll.item() == pytest.approx(sum(part.nll.item() for part in others), rel=1e-5)


# ---- held-out text


def test_ranks_share_what_is_held_out_which_no_setting_of_training_changes(task, run, monkeypatch):
    if run.config.kind in PAIRS:
        monkeypatch.setattr(task, "evaluation_tokens", 40)
    monkeypatch.setattr(lm, "EVALUATION_TOKENS", 100)
    alone = [content(batch) for batch in task.held_out(run.corpus, "test", run.config)]
    other = small_config(run.config.kind, seed=2, train={"tokens_per_batch": 2 * run.config.train.tokens_per_batch})
    assert [content(batch) for batch in task.held_out(run.corpus, "test", other)] == alone
    shares = []
    for rank in range(2):
        as_rank(monkeypatch, rank, 2)
        shares.append([content(batch) for batch in task.held_out(run.corpus, "test", run.config)])
    assert shares == [alone[rank::2] for rank in range(2)]
    assert all(shares)
    if run.config.kind in PAIRS:
        numbers = sorted(number for batch in alone for number in batch[0])
        assert numbers == task.scored(run.corpus.test).tolist()


def test_the_loss_of_a_split_is_a_mean_over_the_predictions_of_all_ranks(task, run, monkeypatch):
    batches = task.held_out(run.corpus, "valid", run.config)
    with torch.no_grad():
        losses = [task.loss(run.model, run.model.output_weight, batch) for batch in batches]
    nll, correct, count = (sum(float(getattr(one, key)) for one in losses) for key in ("nll", "correct", "count"))
    for elsewhere in (0, 6):  # what another rank adds to each
        monkeypatch.setattr(
            "headdiv.core.distributed.total_numbers", lambda *own, more=elsewhere: [x + more for x in own]
        )
        run.model.train()
        found = held_out_loss(run, "valid")
        assert not run.model.training
        assert found["nll"] == pytest.approx((nll + elsewhere) / (count + elsewhere), rel=1e-5)
        assert found["accuracy"] == pytest.approx(100 * (correct + elsewhere) / (count + elsewhere))


# ---- outputs


@pytest.mark.parametrize(
    ("kind", "other"), [*((kind, {"beam": 3}) for kind in PAIRS[:2]), ("qa", {"max_answer_words": 2})]
)
def test_outputs_are_kept_beside_the_model(home, monkeypatch, kind, other):
    task, run = TASKS[kind], untrained(small_config(kind))
    scores = task.scores(run)
    monkeypatch.setattr(seq2seq, "translate", None)  # neither can be called
    monkeypatch.setattr(qa, "predict", None)
    assert len(read_json(task.outputs_file(run))["test"]) == run.config.data.held_out
    assert task.scores(run) == scores
    sought = run.config.decode.model_copy(update=other)
    with pytest.raises(TypeError, match="not callable"):  # another search is searched
        task.scores(untrained(run.config.model_copy(update={"decode": sought})))


# ---- examples and typed texts


def test_examples_are_rows_of_text(task, run):
    shown = task.examples(run, 3)
    assert len(shown) == len(task.example_texts(run.corpus, "valid", 3)) == 3
    assert all(isinstance(cell, str) for cell in shown.to_numpy().ravel())
    assert shown[task.output].tolist() == [
        task.apply(run, *row[:2]) for row in task.example_texts(run.corpus, "test", 3)
    ]
    assert all(np.issubdtype(sizes.dtype, np.integer) and len(sizes) for sizes in task.lengths(run.corpus).values())


def test_a_text_that_is_typed_in_is_read_and_answered(task, run):
    text, second, _ = task.example_texts(run.corpus, "test", 1)[0]
    assert (second is not None) == task.second_is_input
    batch = task.example_batch(run, text, second)
    asked = task.expect_output(run, batch)
    assert task.loss(run.model, run.model.output_weight, asked).count > 0
    for kind, (queries, keys) in task.special_tokens(batch).items():
        assert kind in ("encoder", "decoder", "cross")
        assert queries.dtype == keys.dtype == torch.bool


def test_words_that_are_not_known_are_named(task, run):
    text = task.example_texts(run.corpus, "test", 1)[0].text
    expected = [] if hasattr(run.corpus, "bpe") else ["Ωmega", *task.unknown_words(run, text)]
    assert task.unknown_words(run, f"Ωmega {text} Ωmega") == expected


# ---- heads


@pytest.fixture(scope="module")
def seen(run):
    """An untrained run with a mixture of heads, and what is seen of its validation split."""
    options = check_method({"name": "moa", "experts": 5, "k": 3}, run.config.model)
    routed = untrained(run.config.model_copy(update={"method": options}))
    return routed, list(observed_heads(routed, weights=False))


def test_every_query_has_the_word_that_stands_in_its_row(task, seen):
    run, observed = seen
    assert observed
    for batch, one in zip(task.held_out(run.corpus, "valid", run.config), observed, strict=True):
        assert one.records
        for record in one.records:
            assert record.weights is None
            words = one.words[record.spec.kind]
            assert len(words) == len(record.outputs) == record.layout.queries.tokens
            read = batch.inputs if hasattr(batch, "inputs") else batch.source
            assert torch.equal(words, read if record.spec.kind == "encoder" else getattr(batch, "target_in", read))


def test_words_are_spelled_as_they_stand_in_the_text(task, seen):
    run, observed = seen
    kind = "encoder" if "encoder" in {record.spec.kind for record in observed[0].records} else "decoder"
    results = [task.decode_token(run.corpus, kind, index) for index in observed[0].words[kind].tolist()]
    assert all(isinstance(word, str) and word for word in results)
    if hasattr(run.corpus, "bpe"):
        assert any(word.startswith("␣") for word in results)
        assert not any(" " in word or "\n" in word for word in results)
        assert "<|endoftext|>" in results
        assert ("[MASK]" in results) is (task is TASKS["mlm"])
        text = "".join(results).replace("␣", " ").replace("↵", "\n")
        if task is TASKS["lm"]:
            assert text == run.corpus.bpe.decode(observed[0].words[kind].tolist())
    else:
        assert "the" in [word.lower() for word in results]
        index = [task.decode_token(run.corpus, kind, i) for i in (BEGIN, END)]
        assert index == ["<s>", "</s>"]
