"""Translation in pieces, from typed text to text, and how case is scored."""

import pytest
from faulty import put_pairs
from small_runs import untrained

from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.experiments.evaluation import apply
from headdiv.companion.tasks import TASKS, seq2seq
from headdiv.companion.tasks.bleu import token_bleu

TASK = TASKS["translation"]
BOTH = [{"merges": None}, {"merges": 40}]


@pytest.mark.parametrize("result", BOTH)
def test_typed_text_is_read_as_the_corpus_was(project, monkeypatch, result):
    run = untrained(project.config(data=result | {"lowercase": True}))
    asked = []
    monkeypatch.setattr(seq2seq, "translate", lambda model, sources, *_: asked.extend(sources) or [[]])
    (source, _), *_ = run.corpus.test.text
    assert apply(run, source) == ""
    assert [words.tolist() for words in asked] == [run.corpus.test.pairs.source[0].tolist()]


@pytest.mark.parametrize("result", BOTH)
def test_outputs_are_text(project, result):
    run = untrained(project.config(data=result | {"examples": 400}))
    texts = [TASK.as_text(run, words.tolist()) for words in run.corpus.test.pairs.target]
    known = [
        text
        for text, words in zip(texts, run.corpus.test.pairs.target, strict=True)
        if "<unk>" not in run.corpus.target.decode(words)
    ]
    assert known
    assert set(known) <= {target for _, target in run.corpus.test.text}
    assert not any("@@" in text for text in texts)


SIGNS = ["aujourd’hui il pleut sur l’enfant", "l’acqua dell’acqua è “hello” a 3/4", "“hello” dit l’enfant aujourd’hui"]


def own_corpus(project, tokenizer, merges):
    """Pairs whose two sides are the same lines, with signs that rules of words take off."""
    pairs = [(line, line) for line in SIGNS]
    files = put_pairs(project.home, dict.fromkeys(("train", "valid", "test"), pairs))
    data = {"name": "mine", "files": files, "examples": None, "held_out": 500}
    return project.config(data=data | {"tokenizer": tokenizer, "merges": merges, "min_frequency": 1})


@pytest.mark.parametrize("merges", [None, 20])
@pytest.mark.parametrize("tokenizer", ["moses", "spacy", "lossless"])
def test_outputs_that_are_the_references_have_a_bleu_of_100_or_it_is_said_why_not(project, caplog, tokenizer, merges):
    run = untrained(own_corpus(project, tokenizer, merges))
    words = [run.corpus.decode(line.tolist()) for line in run.corpus.test.pairs.target]
    lines = [TASK.as_text(run, line.tolist()) for line in run.corpus.test.pairs.target]
    scores = TASK.score_lines(run, lines, words)
    assert scores["bleu_tokens"]["value"] == pytest.approx(100)
    value = scores["bleu_references"]["value"]
    assert scores["bleu"]["value"] == pytest.approx(value)
    assert f"; references joined again: {value:.2f}" in scores["bleu"]["signature"]
    if tokenizer == "lossless":
        assert lines == SIGNS
        assert (value, caplog.text) == (100, "")
        assert "Moses" not in scores["bleu"]["signature"]
        return
    assert value < 95
    for told in (scores["bleu_references"]["signature"], caplog.text):
        assert "3 of 3" in told
        assert "“hello”" in told


def test_an_unknown_word_of_a_lossless_corpus_stands_after_a_space(project):
    run = untrained(own_corpus(project, "lossless", None))
    assert TASK.as_text(run, run.corpus.encode(["▁il", "▁neige", "’", "▁sur"], "target").tolist()) == "il <unk>’ sur"


@pytest.mark.parametrize("lowercase", [False, True])
def test_case_is_folded_by_the_score_and_its_signature_says_so(project, lowercase):
    run = untrained(project.config(data={"lowercase": lowercase}))
    references = TASK.references(run)
    assert references == [target for _, target in run.corpus.test.text]
    folded = [line.lower() for line in references]
    assert folded != references
    result = TASK.score_lines(run, folded)
    case = "lc" if lowercase else "mixed"
    assert [f"case:{case}" in result[name]["signature"] for name in ("bleu", "chrf")] == [True, True]
    values = [result[name]["value"] for name in ("bleu", "chrf", "bleu_tokens")]
    assert (values == pytest.approx([100, 100, 100])) == lowercase
    assert ("lower case" in result["bleu_tokens"]["signature"]) == lowercase


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
    words = [run.corpus.decode(words.tolist()) for words in run.corpus.test.pairs.target]
    lines = [TASK.as_text(run, words.tolist()) for words in run.corpus.test.pairs.target]
    assert TASK.score_lines(run, lines, words)["bleu_tokens"]["value"] == pytest.approx(100)
