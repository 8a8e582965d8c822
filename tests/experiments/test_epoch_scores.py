"""BLEU after every epoch: of which pairs it is, that training goes on as without it, and the scores of its curve."""

import shutil
from dataclasses import replace

import pytest
from conftest import Project
from hypothesis import given
from hypothesis import strategies as st
from small_runs import result
from surroundings import as_rank, enter

from headdiv.companion.experiments.evaluation import head_measures
from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.run_result import CurvePoint
from headdiv.companion.experiments.running import train
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.sizes import DecodeConfig
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.bleu import token_bleu
from headdiv.companion.tasks.imi import imi
from headdiv.methods.deacon import pca_weights

TASK = TASKS["translation"]
NAMES = {"training_bleu", "validation_bleu"}
SMART = {"name": "homeostasis", "attention": "rfb-kwta", "block": "smart", "s_att": 0.5, "q_att": 3, "q_bo": 3}
DEACON = {"name": "deacon", "architecture": "direct", "m": 2, "gha_steps": 5}


def configured(project, method=None, model=None, **settings):
    """A tiny run that scores 10 pairs after each epoch, where ``settings`` do not say otherwise."""
    settings = {"epochs": 3, "epoch_scores": 10} | settings
    define = {"own": method or {"name": "baseline"}}
    sizes = {"heads": 4} | (model or {})
    project.write_profile("scored", train=settings, model=sizes, define=define, variants=["own"])
    return run_config("scored", "deacon/translation", "own", 1)


def literal(run, count):
    """The same from the run's last model, one sentence at a time."""
    scores, words = {}, run.corpus.target.words
    for name, split in (("training_bleu", run.corpus.train), ("validation_bleu", run.corpus.valid)):
        sides = [(split.pairs.source[i], split.pairs.target[i]) for i in range(min(count, len(split.pairs)))]
        translations = [translate(run.model, [source], DecodeConfig(beam=1), run.device)[0] for source, _ in sides]
        outputs = [[words[index] for index in line] for line in translations]
        scores[name] = token_bleu(outputs, [[words[index] for index in target] for _, target in sides])
    return scores


def found(run, **changes):
    return TASK.epoch_scores(run.model, run.corpus, run.config.model_copy(update=changes), "cpu")


@pytest.fixture(scope="module")
def learnt(prepared_home, tmp_path_factory):
    """A run that has learnt so much that its BLEU is not 0."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter(patch, shutil.copytree(prepared_home, tmp_path_factory.mktemp("learnt") / "project"))
        yield train(configured(Project(home), epochs=16, learning_rate=0.02, model={"d_model": 64, "dropout": 0.0}))


def test_every_epoch_has_the_bleu_of_the_first_pairs_of_both_splits(learnt, monkeypatch):
    """Greedy whatever the run searches by: a model is trained once for all searches, and its curve is a part of it."""
    curve = learnt.record["curve"]
    assert all(point.keys() >= NAMES for point in curve)
    assert len(learnt.corpus.valid.pairs) < 10 < len(learnt.corpus.train.pairs)
    last = {name: curve[-1][name] for name in NAMES}
    assert last == pytest.approx(literal(learnt, 10), abs=1e-6)
    assert 20 < last["training_bleu"] <= 100
    search = DecodeConfig(beam=2, max_length_offset=1, max_length_factor=0)
    assert found(learnt, decode=search) == pytest.approx(last, abs=1e-6)
    swapped = replace(learnt.corpus, train=learnt.corpus.valid, valid=learnt.corpus.train)
    of_swapped = TASK.epoch_scores(learnt.model, swapped, learnt.config, "cpu")
    assert of_swapped["validation_bleu"] == pytest.approx(last["training_bleu"])  # that of new text may be 0
    alone = found(learnt)
    for rank in (0, 1):
        as_rank(monkeypatch, rank, 2)
        assert found(learnt) == alone


def test_scores_are_of_the_pairs_that_there_are_and_of_training_those_that_are_learnt_from(learnt):
    part = learnt.config.train.model_copy(update={"epoch_scores": 1000, "share": 0.1})
    learnt_from = round(0.1 * len(learnt.corpus.train.pairs))
    assert found(learnt, train=part)["training_bleu"] == pytest.approx(literal(learnt, learnt_from)["training_bleu"])
    scores = TASK.scores(replace(learnt, config=learnt.config.model_copy(update={"train": part})))
    pairs = {"training": learnt_from, "validation": len(learnt.corpus.valid.pairs)}
    for split, count in pairs.items():
        assert f"the first {count} pairs of {split}" in scores[f"{split}_bleu"]["signature"]


@pytest.mark.parametrize("method", [SMART, DEACON], ids=lambda options: options["name"])
def test_training_goes_on_as_without(project, method):
    config = configured(project, method, epoch_heads=True)
    tensors, curve = result(train(config).folder)
    run = train(configured(project, method, epoch_scores=0))
    plain, expected = result(run.folder)
    assert tensors == plain
    added = {*NAMES, "heads"}
    assert all(point.keys() >= added for point in curve)
    assert [{key: value for key, value in point.items() if key not in added} for point in curve] == expected
    assert all(not point.keys() & added for point in expected)
    assert not TASK.scores(run).keys() & {*NAMES, "training_imi"}


def test_every_epoch_has_measures_of_the_heads_and_of_the_methods_own_weights(project):
    run = train(configured(project, DEACON, epoch_heads=True))
    curve = [CurvePoint.model_validate(point).heads for point in run.record["curve"]]
    measured = head_measures(run)
    weights = {layer["place"]: layer["mean_absolute_cosine"] for layer in pca_weights(run.model).values()}
    assert curve[-1].keys() == set(measured.index) == weights.keys()
    for place, row in measured.iterrows():
        assert curve[-1][place] == pytest.approx(dict(row) | {"column_cosine": weights[place]}, abs=1e-6)
    assert curve[0] != curve[1] != curve[2]


def test_scores_are_the_best_of_the_run_and_the_area_under_its_curve(project):
    run = train(configured(project))
    for point, training, validation in zip(run.record["curve"], (40, 80, 60), (9, 7, 8), strict=True):
        point |= {"training_bleu": training, "validation_bleu": validation}
    scores = TASK.scores(run)
    assert [scores[name]["value"] for name in ("training_bleu", "validation_bleu")] == [80, 9]
    assert scores["training_imi"]["value"] == pytest.approx((60 + 70) / 200)
    assert "the first 8 pairs of validation, after the best of 3 epochs" in scores["validation_bleu"]["signature"]
    del run.record["curve"][1:]
    one_epoch = TASK.scores(run)
    assert one_epoch.keys() >= NAMES
    assert "training_imi" not in one_epoch  # one epoch has no area


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_the_area_under_a_curve_is_the_mean_of_the_trapezoids(curve):
    trapezoids = sum(curve[i + 1] + curve[i] for i in range(len(curve) - 1)) / (2 * (len(curve) - 1))
    assert imi(curve) == pytest.approx(trapezoids, abs=1e-12)
    assert -1e-12 <= imi(curve) <= 1 + 1e-12
    assert imi([100 * value for value in curve], ideal=100) == pytest.approx(imi(curve), abs=1e-12)
