"""Translation and summarisation, from typed text to text, and how case, dashes and joined words are scored."""

import logging
from types import SimpleNamespace

import pytest
from faulty import put_pairs
from small_runs import small_config, untrained

from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.tasks import TASKS, seq2seq
from headdiv.companion.tasks.bleu import token_bleu

TASK = TASKS["translation"]
SIGNS = ["aujourd’hui il pleut sur l’enfant", "l’acqua dell’acqua è “hello” a 3/4", "“hello” dit l’enfant aujourd’hui"]


def perfect_outputs(run):
    """Words and texts of outputs that are the references."""
    lines = [line.tolist() for line in run.corpus.test.pairs.target]
    return [run.corpus.decode(line) for line in lines], [TASK.as_text(run, line) for line in lines]


@pytest.mark.parametrize("merges", [None, 40])
def test_typed_text_is_read_as_the_corpus_was_and_outputs_are_text(project, monkeypatch, merges):
    run = untrained(project.config(data={"merges": merges, "lowercase": True}))
    asked = []
    monkeypatch.setattr(seq2seq, "translate", lambda model, sources, *_: asked.extend(sources) or [[]])
    assert TASK.apply(run, run.corpus.test.text[0][0]) == ""
    assert [words.tolist() for words in asked] == [run.corpus.test.pairs.source[0].tolist()]
    words, texts = perfect_outputs(run)
    known = {text for text, line in zip(texts, words, strict=True) if "<unk>" not in line}
    assert known
    assert known <= {target.lower() for _, target in run.corpus.test.text}
    assert not any("@@" in text for text in texts)


def test_a_document_typed_in_is_read_as_far_as_in_training(folder, monkeypatch):
    run = untrained(small_config("summarisation"))
    (document, _), limit = run.corpus.test.text[0], run.config.data.document_words
    asked = []
    monkeypatch.setattr(seq2seq, "translate", lambda model, sources, *_: asked.extend(sources) or [[]])
    assert run.task.apply(run, document * 3) == ""
    assert asked[0].tolist() == run.corpus.source.encode(tokenize(document * 3, "en")[:limit]).tolist()
    assert len(asked[0]) == limit


@pytest.mark.parametrize("lowercase", [False, True])
def test_gold_summaries_score_a_hundred(folder, lowercase):
    task, run = TASKS["summarisation"], untrained(small_config("summarisation", data={"lowercase": lowercase}))
    scores = task.score_lines(run, task.references(run))
    names = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    assert [scores[name]["value"] for name in names] == [100.0] * 4
    assert "stemming: yes" in scores["rouge1"]["signature"]


@pytest.mark.parametrize(("share", "count"), [(0.07, 7), (0.145, 15), (1e-5, 1), (1.0, 100)])
def test_a_share_is_taken_as_it_is_written(share, count):
    split, config = SimpleNamespace(pairs=range(100)), small_config("summarisation", train={"share": share})
    assert TASK.learnt(split, config).tolist() == list(range(count))


# ---- BLEU


def own_corpus(project, tokenizer, merges):
    """Pairs whose two sides are the same lines, with signs that rules of words take off."""
    pairs = [(line, line) for line in SIGNS]
    files = put_pairs(project.home, {"train": pairs[::-1], "valid": pairs, "test": pairs})
    data = {"name": "mine", "files": files, "examples": None, "held_out": 500, "min_frequency": 1}
    return project.config(data=data | {"tokenizer": tokenizer, "merges": merges})


@pytest.mark.parametrize(("tokenizer", "merges"), [("moses", None), ("lossless", None), ("lossless", 20)])
def test_outputs_that_are_the_references_have_a_bleu_of_100_or_it_is_said_why_not(project, caplog, tokenizer, merges):
    run = untrained(own_corpus(project, tokenizer, merges))
    words, lines = perfect_outputs(run)
    scores = TASK.score_lines(run, lines, words)
    assert scores["bleu_tokens"]["value"] == pytest.approx(100)
    value = scores["bleu_references"]["value"]
    assert scores["bleu"]["value"] == pytest.approx(value)
    assert f"; references joined again: {value:.2f}" in scores["bleu"]["signature"]
    if tokenizer == "lossless":
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert (lines, value, warnings) == (SIGNS, 100, [])
        assert "Moses" not in scores["bleu"]["signature"]
        return
    assert value < 95
    assert f"have a BLEU of {value:.2f}; data.tokenizer: lossless keeps" in caplog.text


def test_an_unknown_word_of_a_lossless_corpus_stands_after_a_space(project):
    run = untrained(own_corpus(project, "lossless", None))
    assert TASK.as_text(run, run.corpus.encode(["▁il", "▁neige", "’", "▁sur"], "target").tolist()) == "il <unk>’ sur"


@pytest.mark.parametrize("lowercase", [False, True])
def test_case_is_folded_by_the_score_and_its_signature_says_so(project, lowercase):
    run = untrained(project.config(data={"lowercase": lowercase}))
    scores = TASK.score_lines(run, [line.lower() for line in TASK.references(run)])
    case = "lc" if lowercase else "mixed"
    assert [f"case:{case}" in scores[name]["signature"] for name in ("bleu", "chrf")] == [True, True]
    values = [scores[name]["value"] for name in ("bleu", "chrf", "bleu_tokens")]
    assert (values == pytest.approx([100, 100, 100])) == lowercase
    assert ("lower case" in scores["bleu_tokens"]["signature"]) == lowercase


@pytest.mark.parametrize("split_dashes", [False, True])
def test_tokens_are_scored_with_the_dashes_of_the_corpus(project, split_dashes):
    run = untrained(project.config(data={"split_dashes": split_dashes}))
    references = TASK.references(run)
    lines = [line.replace(" ", "-", 1) for line in references]
    sides = [[tokenize(line, "de", split_dashes=split_dashes) for line in side] for side in (lines, references)]
    assert TASK.score_lines(run, lines)["bleu_tokens"]["value"] == pytest.approx(token_bleu(*sides))


def test_the_models_own_tokens_of_a_perfect_output_have_a_bleu_of_100(project):
    """Of pieces case is folded after words are found, of the references too."""
    run = untrained(project.config(data={"merges": 40, "lowercase": True}))
    words, lines = perfect_outputs(run)
    assert TASK.score_lines(run, lines, words)["bleu_tokens"]["value"] == pytest.approx(100)
