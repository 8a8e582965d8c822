"""The sentences above a table: how large the runs were, and what their data lost on the way."""

import pytest
from reported import STREAM, metrics, write_profile

from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.scale import TOY, data_losses, data_title, scale, training_size


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


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("multi30k", "Multi30k English-German"),
        ("wikitext2-sample", "WikiText-2 (sample)"),
        ("iwslt14-part", "IWSLT 2014 (trained on a part)"),
        ("mine-part", "mine (trained on a part)"),
        ("mine", "mine"),
    ],
)
def test_public_sets_go_by_their_titles_and_parts_say_so(name, title):
    assert data_title(name) == title


def test_a_language_model_has_a_context_and_an_epoch_of_tokens():
    run = metrics("baseline", 1, task="lm", epochs=1)
    assert training_size(RunResult.parse(run)) == "5,000 tokens of text an epoch"
    assert scale([RunResult.parse(run)], "some/folder/own.yaml") == (
        "Profile own: toy, 5,000 tokens of text an epoch, 1,000 test documents of 80 tokens, 1 epoch of batches of "
        f"1,500 tokens, d = 16, 1 layer, context 64, vocabulary 500, seed 1, a CPU, 2 threads. {TOY}"
    )


def test_a_part_of_a_public_training_set_has_its_share_beside_it():
    run = RunResult.parse(metrics("baseline", 1, task="qa", data="squad-part"))
    assert training_size(run) == "29,000 of 87,599 training questions"
    run.config.train["share"] = 0.1
    assert training_size(run) == "10 % of 29,000 of 87,599 training questions"
    assert training_size(RunResult.parse(metrics("baseline", 1, data="mine-part"))) == "29,000 training pairs"


def test_a_stream_of_one_text_says_how_much_of_it_was_drawn():
    run = metrics("baseline", 1, task="lm", epochs=1)
    run["data"]["stream"] = {"tokens": {"all": 5200}, "passes": {"all": 3}, "refused": {}}
    said = "5,000 tokens of text an epoch, 5,200 tokens drawn (complete passes over the training text: 3), 1,000 test"
    assert said in scale([RunResult.parse(run)], "p")


def test_a_training_whose_ranks_changed_says_when():
    run = metrics("baseline", 1)
    run["provenance"] |= {"ranks": [[0, 4], [1200, 1]]}
    assert "a CPU, 2 threads, 4 ranks, 1 rank from step 1,200 on." in scale([RunResult.parse(run)], "p")


def test_runs_that_differ_are_all_named():
    runs = [metrics("baseline", seed, epochs=epochs) for seed, epochs in ((3, 5), (1, 2), (1, 5))]
    runs[1]["provenance"] |= {"device": "a GPU", "threads": 1, "ranks": 4}
    assert scale([RunResult.parse(run) for run in runs], "p").endswith(
        "2 or 5 epochs of batches of 1,500 target tokens, d = 16, 2 + 3 layers, seeds 1, 3, "
        f"a CPU, 2 threads; a GPU, 1 thread, 4 ranks. {TOY}"
    )


def test_a_variants_own_sizes_and_batches_are_named_too():
    runs = [metrics("baseline", 1), metrics("direct-8", 1), metrics("direct-8", 2)]
    for run in runs[1:]:
        run["config"]["model"] |= {"d_model": 32}
        run["config"]["train"] |= {"tokens_per_batch": 3000}
    said = "batches of 1,500 or 3,000 target tokens, d = 16, 2 + 3 layers or d = 32, 2 + 3 layers, seeds 1, 2"
    assert said in scale([RunResult.parse(run) for run in runs], "p")


def test_more_than_two_lengths_are_a_range():
    runs = [metrics("baseline", seed, epochs=epochs) for seed, epochs in ((1, 33), (2, 31), (3, 40), (4, 33))]
    assert ", 31 to 40 epochs of batches of" in scale([RunResult.parse(run) for run in runs], "p")


@pytest.mark.parametrize(
    ("task", "changes", "sentences"),
    [
        (
            "lm",
            {"refused": {"the document is empty": 2}, "stream": STREAM | {"refused": {"the document is empty": 31}}},
            [
                "Records left out: 2 (the document is empty: 2).",
                "Records left out of the training stream: 31 (the document is empty: 31).",
            ],
        ),
        (
            "summarisation",
            {
                "train": {"source_truncated_share": 0.3712, "target_truncated_share": 1.0},
                "test": {"source_truncated_share": 0.0001},
            },
            [
                "Cut at 400 words: 37.1 % (training), 0.010 % (test) of the articles.",
                "Cut at 60 words: 100.0 % (training) of the summaries.",
            ],
        ),
        (
            "qa",
            {
                "valid": {"target_truncated_share": 0.25, "answers_cut_off": 1700},
                "test": {"answers_cut_off": 2, "answers_not_on_word_borders": 3},
            },
            [
                "Cut at 300 words: 25.0 % (validation) of the passages.",
                "Answers after the cut (not learnt from, but scored): 1,700 (validation), 2 (test).",
                "Answers that do not begin and end with a word (whole words are learnt): 3 (test).",
            ],
        ),
    ],
)
def test_what_the_data_lost_is_named_by_split(task, changes, sentences):
    run = metrics("baseline", 1, task=task)
    for section, values in changes.items():
        run["data"][section] |= values
    assert data_losses(RunResult.parse(run)) == sentences
