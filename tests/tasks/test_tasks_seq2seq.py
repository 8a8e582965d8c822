"""Summarisation from documents to ROUGE, and what it shares with translation."""

import json

import pytest
from small_runs import enter, small_config, untrained

from headdiv.companion.data.data_config import SummarisationData
from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.experiments.evaluation import apply
from headdiv.companion.tasks import TASKS, seq2seq
from headdiv.core.errors import ConfigError
from headdiv.core.files import read_json
from headdiv.nn.batching import BEGIN, END

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
    result = corpus.statistics["valid"]
    assert (result["source_truncated_share"], result["target_truncated_share"]) == (1.0, 1.0)
    result = TASK.load(mine(document_words=12, summary_words=5).data).statistics["valid"]
    assert (result["source_truncated_share"], result["target_truncated_share"]) == (
        0.5,
        0.5,
    )  # words: 12 and 16, 4 and 9


def test_a_batch_has_documents_with_their_end_and_summaries_from_begin_to_end(run):
    batch, pairs = next(TASK.batch_stream(run.corpus, run.config).epoch(0)), run.corpus.train.pairs
    first = int(batch.numbers[0])
    words = len(pairs.source[first])
    assert batch.source[: words + 1].tolist() == [*pairs.source[first], END]
    words = len(pairs.target[first])
    assert batch.target_in[: words + 1].tolist() == [BEGIN, *pairs.target[first]]
    assert batch.target_out[: words + 1].tolist() == [*pairs.target[first], END]


def test_files_must_be_of_the_task():
    files = dict.fromkeys(("train", "valid"), "a.jsonl")
    with pytest.raises(ConfigError, match=r"^data\.test: 'test' is not known; there are: train, valid$"):
        TASK.spec.check_data(SummarisationData(name="mine", files=files))
    with pytest.raises(ConfigError, match=r"^data\.name: 'multi30k' has no file for 'examples\|archive' in split"):
        TASK.spec.check_data(SummarisationData(name="multi30k", valid="val", test="test_2016_flickr"))


# ---- scores


def test_gold_summaries_score_a_hundred(mine):
    for lowercase in (False, True):
        run = untrained(mine(lowercase=lowercase))
        references = TASK.references(run)
        assert references == [summary.lower() if lowercase else summary for _, summary in ARTICLES]
        result = TASK.score_lines(run, references)
        assert {name: result[name]["value"] for name in ROUGE} == dict.fromkeys(ROUGE, 100.0)
        assert "stemming: yes" in result["rouge1"]["signature"]
        assert "LCS of the whole texts" in result["rougeL"]["signature"]


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


def test_a_document_typed_in_is_read_as_far_as_in_training(run, monkeypatch):
    read, real = [], seq2seq.translate
    monkeypatch.setattr(seq2seq, "translate", lambda model, sources, *rest: read.extend(sources) or real(
        model, sources, *rest))  # fmt: skip
    (document, _), limit = run.corpus.test.text[0], run.config.data.document_words
    summary = apply(run, document * 3)
    assert read[0].tolist() == run.corpus.source.encode(tokenize(document * 3, "en")[:limit]).tolist()
    assert len(read[0]) == limit
    assert isinstance(summary, str)
