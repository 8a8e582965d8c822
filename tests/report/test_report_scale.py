"""The sentences above a table: how large the runs were, and what their data lost on the way."""

import pytest
from reported import metrics, write_profile

from headdiv.experiments.results import RunResult
from headdiv.report.scale import TOY, data_losses, scale, training_size


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("translation", "29,000 training pairs, 1,000 test pairs, 2 epochs of batches of 1,500 target tokens"),
        (
            "summarisation",
            "29,000 training articles, 1,000 test articles, 2 epochs of batches of 1,500 tokens of article and summary",
        ),
        ("qa", "29,000 training questions, 1,000 test questions, 2 epochs of batches of 1,500 tokens of passages"),
    ],
)
def test_every_task_has_its_own_words(task, said):
    assert scale([RunResult.parse(metrics("baseline", 1, task=task, data="mine"))], "p") == (
        f"Profile p: mine, {said}, d = 16, 2 + 3 layers, seed 1, a CPU, 2 threads."
    )


def test_a_language_model_has_a_context_and_an_epoch_of_tokens():
    told = metrics("baseline", 1, task="lm", epochs=1)
    assert training_size(RunResult.parse(told)) == "5,000 tokens of text an epoch"
    assert scale([RunResult.parse(told)], "some/folder/own.yaml") == (
        "Profile own: toy, 5,000 tokens of text an epoch, 1,000 test documents of 80 tokens, 1 epoch of batches of "
        f"1,500 tokens, d = 16, 1 layer, context 64, vocabulary 500, seed 1, a CPU, 2 threads. {TOY}"
    )


def test_runs_that_differ_are_all_told():
    runs = [metrics("baseline", seed, epochs=epochs) for seed, epochs in ((3, 5), (1, 2), (1, 5))]
    runs[1]["provenance"] |= {"device": "a GPU", "threads": 1, "ranks": 4}
    assert scale([RunResult.parse(run) for run in runs], "p").endswith(
        "2 or 5 epochs of batches of 1,500 target tokens, d = 16, 2 + 3 layers, seeds 1, 3, "
        f"a CPU, 2 threads; a GPU, 1 thread, 4 ranks. {TOY}"
    )


def test_records_of_a_stream_are_told_apart_from_those_found_in_preparing():
    told = metrics("baseline", 1, task="lm")
    told["data"]["refused"] = {"the document is empty": 2}
    told["data"]["stream"] = told["data"]["stream"] | {"refused": {"the document is empty": 31}}
    assert data_losses(RunResult.parse(told)) == [
        "Records left out: 2 (the document is empty: 2).",
        "Records left out of the training stream: 31 (the document is empty: 31).",
    ]


def test_cut_documents_are_told_by_split():
    told = metrics("baseline", 1, task="summarisation")
    told["data"]["train"]["source_truncated_share"] = 0.3712
    told["data"]["test"]["source_truncated_share"] = 0.0001
    told["data"]["train"]["target_truncated_share"] = 1.0
    assert data_losses(RunResult.parse(told)) == [
        "Cut at 400 words: 37.1 % (training), 0.010 % (test) of the articles.",
        "Cut at 60 words: 100.0 % (training) of the summaries.",
    ]


def test_lost_answers_are_told_by_split():
    told = metrics("baseline", 1, task="qa")
    told["data"]["valid"] |= {"target_truncated_share": 0.25, "answers_cut_off": 1700}
    told["data"]["test"] |= {"answers_cut_off": 2, "answers_not_on_word_borders": 3}
    assert data_losses(RunResult.parse(told)) == [
        "Cut at 300 words: 25.0 % (validation) of the passages.",
        "Answers after the cut (not learnt from, but scored): 1,700 (validation), 2 (test).",
        "Answers that do not begin and end with a word (whole words are learnt): 3 (test).",
    ]
