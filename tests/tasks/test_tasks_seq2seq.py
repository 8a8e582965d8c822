"""Summarisation from documents to ROUGE, and what it shares with translation."""

import json
from types import SimpleNamespace

import pytest
from small_runs import enter, small_config, untrained

from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.experiments.evaluation import apply
from headdiv.companion.tasks import TASKS, seq2seq

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


def test_a_document_typed_in_is_read_as_far_as_in_training(run, monkeypatch):
    read, real = [], seq2seq.translate
    monkeypatch.setattr(seq2seq, "translate", lambda model, sources, *rest: read.extend(sources) or real(
        model, sources, *rest))  # fmt: skip
    (document, _), limit = run.corpus.test.text[0], run.config.data.document_words
    summary = apply(run, document * 3)
    assert read[0].tolist() == run.corpus.source.encode(tokenize(document * 3, "en")[:limit]).tolist()
    assert len(read[0]) == limit
    assert isinstance(summary, str)


@pytest.mark.parametrize(("share", "count"), [(0.07, 7), (0.14, 14), (0.145, 15), (1e-5, 1), (1.0, 100)])
def test_a_share_is_taken_as_it_is_written(share, count):
    split, config = SimpleNamespace(pairs=range(100)), small_config("summarisation", train={"share": share})
    assert TASK._learnt(split, config).tolist() == list(range(count))
