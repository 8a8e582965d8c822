"""The store of metrics."""

import re

import pytest
from conftest import EXPERIMENT
from faulty import exactly
from reported import metrics, put, write_profile

from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.run_result import metrics_path, read_outputs
from headdiv.core.errors import DataError
from headdiv.core.files import write_json


@pytest.fixture(autouse=True)
def profile(project):
    write_profile(project, "p")


def test_metrics_lie_where_the_pipeline_looks_for_them(project):
    runs = [("baseline", 1), ("baseline", 2), ("direct-8", 1), ("direct-8", 2), ("own", 1)]
    put(*(metrics(*run) for run in reversed(runs)))
    path = project.home / "results" / "p" / "deacon" / "translation" / "direct-8" / "seed2" / "metrics.json"
    assert metrics_path("p", EXPERIMENT, "direct-8", 2) == path
    assert path.is_file()
    assert [(run.variant, run.seed) for run in store.stored("p", EXPERIMENT)] == runs


@pytest.mark.parametrize(
    ("key", "change", "found"),
    [
        ("train.examples", {"train": {"examples": 28999}}, "28999, but 29000"),
        ("valid.unigram_nll", {"valid": {"unigram_nll": 4.001}}, "4.001, but 4.0"),
        ("content", {"content": "new"}, "'new', but 'old'"),
    ],
)
def test_runs_of_another_corpus_are_refused(key, change, found):
    """As where one's own files were changed, of which the settings have the names alone."""
    runs = [metrics("baseline", 1), metrics("own", 1)]
    for run in runs:
        run["data"] |= {"valid": {"unigram_nll": 4.0}, "content": "old"}
    store.record(runs[0], "p")
    runs[1]["data"] |= {
        "a key that came later": 1,
        "valid": {"unigram_nll": 4.0 + 1e-12},
        "stream": {"tokens": {"a": 1}},
    }
    store.record(runs[1], "p")
    assert len(store.stored("p", EXPERIMENT)) == 2
    store.record(runs[1] | {"data": runs[1]["data"] | change}, "p")
    one, other = (metrics_path("p", EXPERIMENT, variant, 1) for variant in ("own", "baseline"))
    with pytest.raises(DataError, match=re.escape(f"{one}: data.{key} is {found} in {other}; remove the older")):
        store.stored("p", EXPERIMENT)


def test_runs_of_a_variant_that_were_trained_with_other_code_are_refused():
    for variant, seed, code in (("own", 1, "a"), ("own", 2, None), ("direct-8", 1, "b")):
        run = metrics(variant, seed)
        run["provenance"]["method_code"] = code
        store.record(run, "p")
    assert len(store.stored("p", EXPERIMENT)) == 3
    store.record(run | {"variant": "own", "seed": 2}, "p")
    one, other = (metrics_path("p", EXPERIMENT, "own", seed) for seed in (2, 1))
    with pytest.raises(DataError, match=re.escape(f"{one}: provenance.method_code is 'b', but 'a' in {other}")):
        store.stored("p", EXPERIMENT)


@pytest.mark.parametrize(("variant", "seed"), [("direct-8", 1), ("baseline", 2)])
def test_runs_that_were_not_made_alike_are_refused(variant, seed):
    """As where a profile was changed and a part of it run again."""
    other = metrics(variant, seed)
    other["config"]["train"] |= {"tokens_per_batch": 77, "a key that came later": 1}
    put(metrics("baseline", 1), other)
    one, there = metrics_path("p", EXPERIMENT, "baseline", 1), metrics_path("p", EXPERIMENT, variant, seed)
    with exactly(
        f"{there}: train.tokens_per_batch is 77, but 1500 in {one}; remove the "
        "older of the two, and `snakemake reproduce-all --config profile=p` makes it anew"
    ):
        store.stored("p", EXPERIMENT)


def test_variants_may_differ_in_size_and_runs_in_when_they_are_saved(project):
    first, other = metrics("baseline", 1), metrics("direct-8", 1)
    first["config"]["model"], other["config"]["model"] = {"heads": 8}, {"heads": 4}
    first["config"]["train"]["checkpoint_seconds"], other["config"]["train"]["checkpoint_seconds"] = 60, 600
    put(first, other)
    assert [run.variant for run in store.stored("p", EXPERIMENT)] == ["baseline", "direct-8"]


@pytest.mark.parametrize(
    ("content", "message"), [({}, "format None, expected 3"), ({"format": 2}, "format 2"), ({"format": 3}, "paper")]
)
def test_metrics_of_another_format_and_without_a_key_are_refused(content, message):
    path = store.record(metrics("baseline", 2), "p")
    write_json(path, content)
    command = f"headdiv train {EXPERIMENT} baseline --seed 2 --profile p"
    with pytest.raises(DataError, match=rf"^{path}: .*{message}.*; `{command}` makes it anew$"):
        store.stored("p", EXPERIMENT)


@pytest.mark.parametrize(("key", "other"), [("seed", 2), ("paper", "dpp")])
def test_metrics_of_another_run_than_their_path_names_are_refused(key, other):
    """As where a folder was copied: its interval over seeds would have the width 0."""
    run = metrics("baseline", 1)
    path = store.record(run, "p")
    write_json(path, run | {key: other})
    with pytest.raises(DataError, match=f"^{path}: {key}: found '{other}', expected '{run[key]}', as in its path"):
        store.stored("p", EXPERIMENT)


def test_the_outputs_of_a_run_are_stored_beside_its_metrics(project):
    write_json(project.home / "work" / "a" / "outputs-b.json", {"test": ["Ein Hund.", "Eine Katze."]})
    path = store.record(metrics("baseline", 1) | {"outputs": "work/a/outputs-b.json"}, "p")
    assert read_outputs(path).test == ["Ein Hund.", "Eine Katze."]
    path = store.record(metrics("baseline", 1, task="lm"), "p")
    assert not read_outputs(path).test
