"""From the batches of every task to the words that each expert serves, as a run's results keep them."""

import json

import pytest
import torch
from moa_parts import MOA, TOP, build
from moa_parts import E as EXPERTS
from packed import pack, sentences
from small_runs import SMALL, enter, small_config, untrained

from headdiv.analysis.similarity import Observed
from headdiv.data.config import MLMData
from headdiv.experiments import evaluation
from headdiv.experiments.running import train
from headdiv.methods import check_method, make_method
from headdiv.methods.routing import router_statistics
from headdiv.nn.attention import record_heads
from headdiv.nn.batching import BEGIN, END
from headdiv.tasks import TASKS
from headdiv.tasks.base import observed_heads
from headdiv.tasks.config import RunConfig


def decode_token(kind, index):
    return f"{kind} {index}"


def mixed(config, **options):
    """The same run with a mixture of heads."""
    return config.model_copy(update={"method": check_method({**MOA, **options}, config.model)})


def masked_config():
    told = small_config("lm").model_dump()
    data = MLMData(**told["data"], mask_share=0.3)
    return RunConfig.model_construct(**dict(small_config("lm")) | {"task": "mlm", "kind": "mlm", "data": data})


CONFIGS = {**{task: lambda task=task: small_config(task) for task in SMALL}, "mlm": masked_config}


@pytest.fixture(scope="module", params=CONFIGS)
def seen(request, tmp_path_factory):
    """A task, its untrained run with a mixture of heads, and what is seen of its validation split."""
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, tmp_path_factory.mktemp("home"))
        run = untrained(mixed(CONFIGS[request.param]()))
        task = TASKS[request.param]
        yield task, run, list(observed_heads(task, run.model, run.corpus, "valid", run.config, "cpu", weights=False))


def held_out(task, run):
    return list(task.held_out(run.corpus, "valid", run.config))


# ---- words of queries


def test_every_query_has_the_word_that_stands_in_its_row(seen):
    task, run, observed = seen
    assert observed
    for batch, one in zip(held_out(task, run), observed, strict=True):
        assert one.records
        for record in one.records:
            assert record.weights is None
            words = one.words[record.spec.kind]
            assert len(words) == len(record.outputs) == record.layout.queries.tokens
            read = batch.inputs if hasattr(batch, "inputs") else batch.source
            assert torch.equal(words, read if record.spec.kind == "encoder" else getattr(batch, "target_in", read))


def test_words_are_spelled_as_they_stand_in_the_text(seen):
    task, run, observed = seen
    kind = "encoder" if "encoder" in {record.spec.kind for record in observed[0].records} else "decoder"
    told = [task.decode_token(run.corpus, kind, index) for index in observed[0].words[kind].tolist()]
    assert all(isinstance(word, str) and word for word in told)
    if hasattr(run.corpus, "bpe"):
        assert any(word.startswith("␣") for word in told)
        assert not any(" " in word or "\n" in word for word in told)
        assert "<|endoftext|>" in told
        assert ("[MASK]" in told) is (task is TASKS["mlm"])
        text = "".join(told).replace("␣", " ").replace("↵", "\n")
        if task is TASKS["lm"]:
            assert text == run.corpus.bpe.decode(observed[0].words[kind].tolist())
    else:
        assert "the" in [word.lower() for word in told]
        index = [task.decode_token(run.corpus, kind, i) for i in (BEGIN, END)]
        assert index == ["<s>", "</s>"]


def test_both_languages_have_their_own_words(project):
    task = TASKS["translation"]
    corpus = task.load(project.config().data)
    for kind, vocabulary in (("encoder", corpus.source), ("decoder", corpus.target), ("cross", corpus.target)):
        assert [task.decode_token(corpus, kind, index) for index in range(len(vocabulary))] == vocabulary.words


# ---- what the results keep


def test_every_index_is_below_what_the_method_is_told(seen):
    _, run, observed = seen
    found = evaluation._heads(run)["router"]
    assert list(found) == [f"{record.spec.kind} {record.spec.layer + 1}" for record in observed[0].records]
    for place, router in found.items():
        kind = place.split()[0]
        assert router["tokens"] == sum(len(one.words[kind]) for one in observed)
        assert len(router["load"]) == len(router["gate"]) == len(router["words"]) == EXPERTS
        assert sum(router["load"]) == pytest.approx(1, abs=1e-5)


def test_a_run_s_results_hold_its_routers_and_measures_of_its_slots(project):
    config = mixed(project.config())
    metrics = evaluation.evaluate(train(config))
    heads = metrics["heads"]
    assert json.loads(json.dumps(heads)) == heads
    assert list(heads["router"]) == list(heads["measures"]) == ["encoder 1", "decoder 1", "cross 1"]
    vocabularies = TASKS["translation"].load(config.data)
    for place, router in heads["router"].items():
        known = vocabularies.source.words if place.startswith("encoder") else vocabularies.target.words
        words = [word for expert in router["words"] for word in expert]
        assert words
        assert {word["word"] for word in words} <= set(known)
        assert all(word["ratio"] > 1 and word["count"] >= 5 for word in words)
        measures = heads["measures"][place]
        assert len(measures["confidence"]) == len(measures["entropy"]) == TOP
        assert [len(row) for row in measures["cosine"]] == [TOP] * TOP


# ---- no more than is needed


def test_a_method_that_does_not_look_costs_no_second_pass(finished, monkeypatch):
    passes = []

    def counted(*arguments, weights=True):
        passes.append(weights)  # a generator: only once somebody reads it
        yield from observed_heads(*arguments, weights)

    monkeypatch.setattr(evaluation, "observed_heads", counted)
    heads = evaluation._heads(train(finished.config("baseline")))
    assert (passes, list(heads)) == ([True], ["measures"])
    evaluation._heads(untrained(mixed(finished.config("baseline"))))
    assert sorted(passes[1:]) == [False, True]
    assert make_method({"name": "baseline"}).observed_artifacts(iter([1]), 3, decode_token) == {}


def batches(read, lengths=(3, 2, 4)):
    """Endlessly the same batch of nine words; ``read`` takes down each."""
    module = build(3)
    x, _, layout, _ = pack(sentences(20, list(lengths)), [], "encoder", 6)
    with record_heads(module, weights=False) as records:
        module(x, None, layout)
    while True:
        read.append(len(x))
        yield Observed(records, {}, {"encoder": torch.arange(len(x)) % 4})


@pytest.mark.parametrize(("enough", "number"), [(1, 1), (9, 1), (10, 2), (27, 3)])
def test_no_more_is_read_than_the_measures_of_heads_are_taken_over(monkeypatch, enough, number):
    monkeypatch.setattr("headdiv.methods.routing.ENOUGH", enough)
    read = []
    told = router_statistics(batches(read), 4, decode_token)
    assert len(read) == number
    assert told["router"]["encoder 1"]["tokens"] == 9 * number
