"""Stored outputs scored anew: what changes, what stays, and what is refused."""

import pytest

from headdiv.companion.experiments.outdated import of_other_content
from headdiv.companion.experiments.rescoring import rescore
from headdiv.companion.experiments.results import doubts
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.experiments.stored_outputs import FILE, StoredOutputs, read_outputs, write_outputs
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json

EXPERIMENT = "deacon/translation"


@pytest.fixture
def path(finished):
    """The stored metrics of a run."""
    return metrics_path("tiny", EXPERIMENT, "baseline", 1)


def of_another_run(path, content):
    """The metrics with another hash, and another content of the data."""
    metrics = read_json(path)
    write_json(path, metrics | {"hash": "0" * 16, "data": metrics["data"] | {"content": content}})


def test_a_run_scored_by_its_own_tokens_stays_as_it_is(path):
    before = path.read_bytes()
    assert all((run.differing, run.renewed) == ({}, 0) for run in rescore("tiny"))
    assert path.read_bytes() == before
    assert read_outputs(path).tokens


def test_scores_are_made_anew_from_outputs_and_references_alone(path):
    right = read_json(path)
    wrong = read_json(path)
    wrong["scores"]["bleu"] |= {"value": 99.0, "signature": "another measure"}
    del wrong["scores"]["unknown_share"]
    write_json(path, wrong)
    stored = read_outputs(path)
    write_outputs(path, stored.model_copy(update={"counts": None}))
    runs = rescore("tiny")
    assert read_json(path) == wrong  # nothing is written yet
    differing = {run.name: run.differing for run in runs}
    expected = {"bleu": (99.0, right["scores"]["bleu"]["value"])}
    assert differing == {"deacon/translation, baseline, seed 1": expected, "deacon/translation, direct-8, seed 1": {}}
    assert [run.renewed for run in runs] == [1, 0]  # the share of unknown words was not stored
    for run in runs:
        run.write()
    assert read_json(path) == right
    assert read_outputs(path) == stored


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.with_name(FILE).unlink(), "missing.*makes it anew"),
        (
            lambda path: write_outputs(path, StoredOutputs(test=["a"])),
            "seed1/outputs.json.xz: BLEU: found 1 translations and 8 references.*makes it anew",
        ),
        (lambda path: of_another_run(path, "0"), "data.content is 0, expected .* checksums of its data"),
    ],
    ids=["no outputs", "another number", "other references"],
)
def test_what_cannot_be_scored_is_named(path, spoil, message):
    spoil(path)
    with pytest.raises(DataError, match=message):
        rescore("tiny")


def test_outputs_of_a_method_whose_code_has_changed_are_scored(path):
    of_another_run(path, read_json(path)["data"]["content"])
    assert [run.differing for run in rescore("tiny")] == [{}, {}]


def test_runs_whose_data_or_code_has_changed_are_named(finished, path):
    assert of_other_content("tiny") == []
    of_another_run(path, "0")
    (found,) = of_other_content("tiny")
    assert found.startswith(f"{path}: hash is {'0' * 16}, expected ")
    finished.write_profile(top={"threads": 2})
    assert of_other_content("tiny") == [found]
    finished.write_profile(train={"epochs": 3})
    assert of_other_content("tiny") == []  # `outdated` says it


def test_doubtful_scores_are_named(path):
    metrics = read_json(path)
    metrics["scores"]["length_ratio"]["value"] = 1.117
    metrics["scores"]["unknown_share"]["value"] = 6.0
    metrics["scores"]["bleu_references"] |= {"value": 92.96, "signature": "of the references: (l’enfant)"}
    write_json(path, metrics)
    length, references, unknown = doubts("tiny")
    assert references == f"{EXPERIMENT}: BLEU 92.96, of the references: (l’enfant)"
    assert "baseline (seed 1) 1.12" in length
    assert "<unk>" in unknown
