"""The sentences above a table: how large the runs were, and what their data lost on the way."""

import pytest
from reported import STREAM, metrics, write_profile

from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.scale import TOY, data_losses, scale, training_size


def run_of(task, changes=(), seed=1, **options):
    """A run's metrics with some values changed, by dotted key."""
    run = metrics("baseline", seed, task=task, **options)
    for key, value in dict(changes).items():
        section, *inner = key.split(".")
        values = run[section]
        for name in inner[:-1]:
            values = values[name]
        values[inner[-1]] = value
    return RunResult.parse(run)


def sentences_of(project, *runs):
    write_profile(project, "p")
    return scale(list(runs), "p")


def test_the_whole_sentence(project):
    assert sentences_of(project, run_of("translation")) == (
        "Profile p: toy, 29,000 training pairs, 1,000 test pairs, 2 epochs of batches of 1,500 target tokens, "
        "d = 16, 2 + 3 layers, seed 1, a CPU, 2 threads. "
        f"{TOY}"
    )


@pytest.mark.parametrize(
    ("task", "data", "share", "size"),
    [
        ("qa", "squad-part", 0.1, "10 % of 29,000 of 87,599 training questions"),
        ("translation", "mine-part", 1.0, "29,000 training pairs"),
    ],
)
def test_a_part_of_a_training_set_has_the_whole_beside_it(task, data, share, size):
    assert training_size(run_of(task, {"config.train.share": share}, data=data)) == size


def test_runs_that_differ_are_all_named(project):
    gpu = {"provenance.device": "a GPU", "provenance.threads": 1, "provenance.ranks": 4}
    wide = {"config.model.d_model": 32, "config.train.tokens_per_batch": 3000}
    runs = [("", 3, 33), (gpu, 1, 31), (wide, 1, 40), (wide, 2, 33)]
    text = sentences_of(
        project, *(run_of("translation", changes, seed, epochs=epochs) for changes, seed, epochs in runs)
    )
    for words in (
        "31 to 40 epochs of batches of 1,500 or 3,000 target tokens",
        "d = 16, 2 + 3 layers or d = 32, 2 + 3 layers, seeds 1, 2, 3",
        "a CPU, 2 threads; a GPU, 1 thread, 4 ranks",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("task", "changes", "sentences"),
    [
        (
            "lm",
            {"data.refused": {"it is empty": 2}, "data.stream": STREAM | {"refused": {"it is empty": 31}}},
            [
                "Records left out: 2 (it is empty: 2).",
                "Records left out of the training stream: 31 (it is empty: 31).",
            ],
        ),
        (
            "qa",
            {"data.valid.target_truncated_share": 0.25, "data.valid.answers_cut_off": 1700}
            | {"data.test.answers_not_on_word_borders": 3},
            [
                "Cut at 300 words: 25.0 % (validation) of the passages.",
                "Answers after the cut (not learnt from, but scored): 1,700 (validation).",
                "Answers that do not begin and end with a word (whole words are learnt): 3 (test).",
            ],
        ),
    ],
)
def test_what_the_data_lost_is_named_by_split(task, changes, sentences):
    assert data_losses(run_of(task, changes)) == sentences
