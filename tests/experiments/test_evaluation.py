"""Scores, translations and the file that tables and figures are made from."""

import json
import math

import numpy as np
import pytest
from conftest import EXPERIMENT

import headdiv
from headdiv.companion import paths
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.results import record, score_table
from headdiv.companion.experiments.run_result import FORMAT, metrics_path, read_outputs
from headdiv.companion.experiments.running import train
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.bleu import paired_bootstrap
from headdiv.companion.tasks.run_config import run_name
from headdiv.core.files import canonical_json, read_json
from headdiv.methods import check_method

TRANSLATION = TASKS["translation"]
SCORES = (
    "training_loss validation_accuracy validation_nll unigram_nll bleu chrf length_ratio brevity_penalty "
    "unknown_words unknown_share bleu_references bleu_tokens "
    "validation_nll_best best_epoch bleu_best chrf_best"
)


def test_metrics_hold_everything_that_is_reported_and_are_recorded_in_their_place(run, finished):
    metrics = evaluate(run)
    assert json.loads(canonical_json(metrics)) == metrics  # no NaN, nothing but JSON
    assert (metrics["format"], metrics["variant"], metrics["seed"]) == (FORMAT, "direct-8", 1)
    assert metrics["hash"] == run_name(run.config) == run.folder.name
    assert metrics["config"] == run.config.model_dump(mode="json")
    assert metrics["curve"] == run.record["curve"]
    assert len(metrics["heads"]["pca_weights"]) == 3
    assert metrics["provenance"]["commit"] is metrics["provenance"]["evaluated_at_commit"] is None  # outside git
    assert metrics["provenance"]["packages"]["torch"]
    scores = metrics["scores"]
    assert list(scores) == SCORES.split()
    for key in ("training_loss", "validation_accuracy", "validation_nll"):
        assert scores[key]["value"] == metrics["curve"][-1][key]
    assert scores["unigram_nll"]["value"] == metrics["data"]["valid"]["unigram_nll"]
    assert scores["unigram_nll"]["unit"] == scores["validation_nll"]["unit"] == "nats/token"
    assert read_json(paths.home() / metrics["outputs"])["test"] == TRANSLATION.outputs(run)
    for score in scores.values():
        assert set(score) == {"value", "unit", "signature"}
        assert math.isfinite(score["value"])
        assert score["unit"]
        assert score["signature"]
    assert scores["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert scores["chrf"]["signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    path = record(metrics, "elsewhere")
    assert path == finished.home / "results" / "elsewhere" / EXPERIMENT / "direct-8" / "seed1" / "metrics.json"
    assert read_json(path) == metrics
    assert record(metrics, "my/elsewhere.yaml") == path  # a profile may be given as a path
    assert score_table(metrics).loc["bleu", "value"] == scores["bleu"]["value"]
    bleu = paired_bootstrap(np.array(read_outputs(path).counts), {}).baseline
    assert bleu == pytest.approx(scores["bleu"]["value"], abs=1e-9)


def test_examples_are_the_first_sentences_of_the_test_set_with_their_outputs(run):
    table = TRANSLATION.examples(run, 3)
    assert list(table.columns) == ["text", "reference", "translation"]
    assert list(zip(table["text"], table["reference"], strict=True)) == run.corpus.test.text[:3]
    assert list(table["translation"]) == TRANSLATION.outputs(run)[:3]
    assert len(TRANSLATION.examples(run, 100)) == 8


def test_runs_are_compared_as_frames(finished):
    frame, epochs = headdiv.companion.runs("tiny"), headdiv.companion.runs("tiny", by_epoch=True)
    stored = [read_json(metrics_path("tiny", EXPERIMENT, variant, 1)) for variant in ("baseline", "direct-8")]
    assert list(frame["variant"]) == ["baseline", "direct-8"]
    line = frame.iloc[1]
    assert (line["paper"], line["task"], line["seed"], line["hash"]) == ("deacon", "translation", 1, stored[1]["hash"])
    values = {name: score["value"] for name, score in stored[1]["scores"].items()}
    assert {name: line[name] for name in values} == values
    for name in ("epoch", "validation_nll"):
        assert list(epochs[name]) == [point[name] for run in stored for point in run["curve"]]


def test_a_runs_results_hold_its_routers_and_measures_of_its_slots(project):
    plain = project.config()
    moa = check_method({"name": "moa", "experts": 5, "k": 3}, plain.model)
    config = plain.model_copy(update={"method": moa})
    heads = evaluate(train(config))["heads"]
    assert json.loads(json.dumps(heads)) == heads
    assert list(heads["router"]) == list(heads["measures"]) == ["encoder 1", "decoder 1", "cross 1"]
    vocabularies = TRANSLATION.load(config.data)
    for name, router in heads["router"].items():
        known = vocabularies.source.words if name.startswith("encoder") else vocabularies.target.words
        words = [word for expert in router["words"] for word in expert]
        assert words
        assert {word["word"] for word in words} <= set(known)
        assert all(word["ratio"] > 1 and word["count"] >= 5 for word in words)
        measures = heads["measures"][name]
        assert len(measures["confidence"]) == len(measures["entropy"]) == 3
        assert [len(row) for row in measures["cosine"]] == [3] * 3
