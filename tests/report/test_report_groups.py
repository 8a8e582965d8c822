"""Which stored runs a figure shows, from metrics written by hand."""

import pytest
from reported import headed, write_profile

from headdiv.experiments import results as store
from headdiv.experiments.results import RunResult
from headdiv.report import groups

MHR = "mhr/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", MHR)


def test_runs_come_by_variant_in_the_order_asked_for():
    for variant, seed in (("own", 1), ("alphas", 2), ("alphas", 1), ("baseline", 1)):
        store.record(headed(variant, seed), "p")
    assert list(groups.chosen("p", MHR, "F")) == ["baseline", "alphas", "own"]
    found = groups.chosen("p", MHR, "F", ["alphas", "manual", "baseline"])
    assert [(variant, [run.seed for run in runs]) for variant, runs in found.items()] == [
        ("alphas", [1, 2]),
        ("baseline", [1]),
    ]


def test_titles_say_how_many_seeds():
    one, two = (RunResult.parse(headed("baseline", seed, epochs=1)) for seed in (1, 2))
    assert groups.title("T", {"baseline": [one]}) == "T: toy, 1 epoch, seed 1"
    assert groups.title("T", {"a": [one, two], "b": [two, one]}) == "T: toy, 1 epoch, mean over 2 seeds"
    assert groups.title("T", {"a": [one, two], "b": [two]}) == "T: toy, 1 epoch, mean over 1 or 2 seeds"
    assert groups.title("T", {"a": [two, one]}, first=True) == "T: toy, 1 epoch, seed 2"
