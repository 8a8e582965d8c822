"""Summarisation from documents to ROUGE, and what it shares with translation."""

import json
import shutil

import numpy as np
import pytest
from small_runs import as_rank, enter, result, small_config, untrained

from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import read_json
from headdiv.data.config import SummarisationData
from headdiv.data.tokenization.words import tokenize
from headdiv.experiments.evaluation import apply, evaluate, examples
from headdiv.experiments.running import train
from headdiv.nn.batching import BEGIN, END
from headdiv.nn.config import ModelConfig
from headdiv.tasks import TASKS, seq2seq
from headdiv.tasks.base import held_out_loss
from headdiv.tasks.config import RunConfig

TASK = TASKS["summarisation"]
ROUGE = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
ARTICLES = [
    ("The old lobster of Crete läuft. It sings all day.", "A lobster sings."),
    ("The Mur is a river. Graz lies on it, and so does Bruck.", "Graz lies on the Mur, and Bruck."),
]


@pytest.fixture(scope="module")
def run(home):
    """Of the toy, with the model as it starts out."""
    return untrained(small_config("summarisation"))


def put(path, articles):
    lines = [json.dumps({"id": str(n), "document": d, "summary": s}) for n, (d, s) in enumerate(articles)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Makes the configuration of a run on one's own files."""
    enter(monkeypatch, tmp_path)

    def config(**data):
        files = {split: put(tmp_path / f"{split}.jsonl", ARTICLES) for split in ("train", "valid", "test")}
        return small_config("summarisation", data={"name": "mine", "files": files} | data)

    return config


# ---- the corpus and its batches


def test_documents_and_summaries_share_one_vocabulary(mine):
    config = mine(document_words=8, summary_words=3)
    corpus = TASK.load(config.data)
    assert corpus.source is corpus.target
    assert TASK.vocabulary(config.data) == (len(corpus.source), len(corpus.source))
    for (document, summary), source, target in zip(
        ARTICLES, corpus.test.pairs.source, corpus.test.pairs.target, strict=True
    ):
        assert corpus.source.decode(source) == tokenize(document, "en")[:8]
        assert corpus.source.decode(target) == tokenize(summary, "en")[:3]
    assert corpus.test.text == ARTICLES
    told = corpus.statistics["valid"]
    assert (told["source_truncated_share"], told["target_truncated_share"]) == (1.0, 1.0)
    told = TASK.load(mine(document_words=12, summary_words=5).data).statistics["valid"]
    assert (told["source_truncated_share"], told["target_truncated_share"]) == (0.5, 0.5)  # words: 12 and 16, 4 and 9


def test_a_batch_s_budget_counts_documents_and_summaries(run):
    feed, pairs = TASK.feed(run.corpus, run.config), run.corpus.train.pairs
    batches = list(feed.epoch(0))
    assert len(batches) == feed.batches(0) > 3
    assert sorted(np.concatenate([batch.numbers for batch in batches])) == list(range(len(pairs)))
    sizes = [len(batch.source) + len(batch.target_in) for batch in batches]
    assert max(sizes) <= 500 < 2 * min(sizes[:-1])
    numbers = [batch.numbers.tolist() for batch in batches]
    assert numbers != [batch.numbers.tolist() for batch in feed.epoch(1)]
    assert numbers == [batch.numbers.tolist() for batch in TASK.feed(run.corpus, run.config).epoch(0)]
    batch = batches[0]
    first = int(batch.numbers[0])
    words = len(pairs.source[first])
    assert batch.source[: words + 1].tolist() == [*pairs.source[first], END]
    words = len(pairs.target[first])
    assert batch.target_in[: words + 1].tolist() == [BEGIN, *pairs.target[first]]
    assert batch.target_out[: words + 1].tolist() == [*pairs.target[first], END]


@pytest.mark.parametrize("task", ["summarisation", "qa"])
def test_ranks_share_what_is_held_out(home, monkeypatch, task):
    config = small_config(task)
    corpus = TASKS[task].load(config.data)
    monkeypatch.setattr(f"headdiv.tasks.{'seq2seq' if task == 'summarisation' else 'qa'}.EVALUATION_TOKENS", 100)
    shares = []
    for rank in range(3):
        as_rank(monkeypatch, rank, 3)
        shares.append([batch.numbers.tolist() for batch in TASKS[task].held_out(corpus, "test", config)])
    assert all(shares)
    as_rank(monkeypatch, 0, 1)
    alone = [batch.numbers.tolist() for batch in TASKS[task].held_out(corpus, "test", config)]
    assert sorted(number for numbers in alone for number in numbers) == list(range(config.data.held_out))
    assert sorted(alone) == sorted(numbers for share in shares for numbers in share)


def test_a_json_line_cut_in_half_is_named(mine, tmp_path):
    config = mine()
    with (tmp_path / "test.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "7", "document": "It ru')
    with pytest.raises(DataError, match=rf"^{tmp_path}/test\.jsonl, line 3: not valid JSON \("):
        TASK.load(config.data)
    corpus = TASK.load(config.data.model_copy(update={"strict": False}))
    assert corpus.statistics["refused"] == {"not valid JSON": 1}
    assert len(corpus.test.text) == 2


def test_files_must_be_of_the_task():
    files = dict.fromkeys(("train", "valid"), "a.jsonl")
    with pytest.raises(ConfigError, match=r"^data\.test: 'test' is not known; there are: train, valid$"):
        TASK.check_data(SummarisationData(name="mine", files=files))
    with pytest.raises(ConfigError, match=r"^data\.name: 'multi30k' has no file for 'examples\|archive' in split"):
        TASK.check_data(SummarisationData(name="multi30k", valid="val", test="test_2016_flickr"))


# ---- scores


def test_gold_summaries_score_a_hundred(mine):
    for lowercase in (False, True):
        run = untrained(mine(lowercase=lowercase))
        references = TASK.references(run)
        assert references == [summary.lower() if lowercase else summary for _, summary in ARTICLES]
        told = TASK.score_lines(run, references)
        assert {name: told[name]["value"] for name in ROUGE} == dict.fromkeys(ROUGE, 100.0)
        assert "stemming: yes" in told["rouge1"]["signature"]
        assert "LCS of the whole texts" in told["rougeL"]["signature"]


def test_gold_summaries_of_the_toy_score_a_hundred(run):
    told = TASK.score_lines(run, [summary for _, summary in run.corpus.test.text])
    assert [told[name]["value"] for name in ROUGE] == [pytest.approx(100.0)] * 4


def test_outputs_are_kept_beside_the_model(run, monkeypatch):
    lines = TASK.outputs(run)
    (path,) = run.folder.glob("outputs-*.json")
    assert read_json(path) == lines
    assert len(lines) == run.config.data.held_out
    monkeypatch.setattr(seq2seq, "translate", None)  # cannot be called
    assert TASK.outputs(run) == lines
    assert TASK.scores(run) == TASK.score_lines(run, lines)
    other = run.config.decode.model_copy(update={"beam": 3})
    with pytest.raises(TypeError, match="not callable"):  # another search is searched
        TASK.outputs(untrained(run.config.model_copy(update={"decode": other})))


@pytest.mark.parametrize("longest", [1, 5])
def test_without_a_factor_the_length_has_one_limit(run, monkeypatch, longest):
    """Whatever the length of the document; the last place can only be the end mark's."""
    decode = run.config.decode.model_copy(update={"max_length_offset": longest, "beam": 1})
    config = run.config.model_copy(update={"decode": decode})
    found, real = [], seq2seq.translate
    monkeypatch.setattr(seq2seq, "translate", lambda *args: found.extend(real(*args)) or found)
    TASK.outputs(untrained(config))
    assert max(map(len, found)) == longest - 1


def test_examples_show_document_reference_and_summary(run):
    shown = examples(run, 3)
    assert list(shown.columns) == ["document", "reference", "summary"]
    assert list(zip(shown["document"], shown["reference"], strict=True)) == run.corpus.test.text[:3]
    assert list(shown["summary"]) == TASK.outputs(run)[:3]


def test_a_document_typed_in_is_read_as_far_as_in_training(run, monkeypatch):
    read, real = [], seq2seq.translate
    monkeypatch.setattr(seq2seq, "translate", lambda model, sources, *rest: read.extend(sources) or real(
        model, sources, *rest))  # fmt: skip
    (document, _), limit = run.corpus.test.text[0], run.config.data.document_words
    summary = apply(run, document * 3)
    assert read[0].tolist() == run.corpus.source.encode(tokenize(document * 3, "en")[:limit]).tolist()
    assert len(read[0]) == limit
    assert isinstance(summary, str)


# ---- from beginning to end


@pytest.mark.parametrize("variant", ["baseline", "average-2"])
def test_summaries_are_learnt(home, variant):
    config = small_config("summarisation", variant)
    run = train(config)
    metrics = evaluate(run)
    scores, curve = metrics["scores"], metrics["curve"]
    assert curve[-1]["training_loss"] < 0.8 * curve[0]["training_loss"]
    assert scores["validation_nll"]["value"] < scores["unigram_nll"]["value"] - 0.1
    assert scores["validation_nll"]["unit"] == "nats/token"
    assert set(ROUGE) < set(scores)
    assert all(told["signature"] for told in scores.values())
    assert json.loads(json.dumps(metrics)) == metrics
    nll = held_out_loss(TASK, run.model, run.corpus, "valid", config, "cpu")["nll"]
    assert nll == pytest.approx(scores["validation_nll"]["value"], rel=1e-6)

    expected = result(run.folder)
    shutil.rmtree(run.folder)
    assert result(train(config).folder) == expected


def test_defaults_are_the_paper_s_sizes():
    assert RunConfig.model_fields["model"].default == ModelConfig() == TASK.Model()
