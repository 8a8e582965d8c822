"""BLEU after every epoch: what it is of, that training goes on as without it, and the scores made of its curve."""

import shutil

import pytest
from conftest import Project
from small_runs import as_rank, enter, interrupt, result, small_config

from headdiv.core.errors import ConfigError
from headdiv.data.tokenization.torchtext06 import token_bleu
from headdiv.experiments.evaluation import evaluate
from headdiv.experiments.profiles import run_config
from headdiv.experiments.running import load_run, run_folder, train
from headdiv.nn.config import DecodeConfig
from headdiv.nn.decoding import translate
from headdiv.tasks import TASKS

TASK = TASKS["translation"]
NAMES = {"training_bleu", "validation_bleu"}
SMART = {"name": "homeostasis", "attention": "rfb-kwta", "block": "smart", "s_att": 0.5, "q_att": 3, "q_bo": 3}
DEACON = {"name": "deacon", "architecture": "direct", "m": 2, "gha_steps": 5}


def configured(project, method=None, model=None, **train):
    """A tiny run that scores 10 pairs after each epoch, where ``train`` does not say otherwise."""
    told = {"epochs": 3, "epoch_scores": 10} | train
    define = {"own": method or {"name": "baseline"}}
    sizes = {"heads": 4} | (model or {})
    project.write_profile("scored", train=told, model=sizes, define=define, variants=["own"])
    return run_config("scored", "deacon/translation", "own", 1)


def literal(run, count):
    """The same from the run's last model, one sentence at a time."""
    told = {}
    for name, split in (("training_bleu", run.corpus.train), ("validation_bleu", run.corpus.valid)):
        count_here = min(count, len(split.pairs))
        found = [
            translate(run.model, [split.pairs.source[i]], DecodeConfig(beam=1), run.device)[0]
            for i in range(count_here)
        ]
        words = [[run.corpus.target.words[index] for index in line] for line in found]
        references = [[run.corpus.target.words[index] for index in split.pairs.target[i]] for i in range(count_here)]
        told[name] = token_bleu(words, references)
    return told


@pytest.fixture(scope="module")
def learnt(prepared_home, tmp_path_factory):
    """A run that has learnt so much that its BLEU is not 0."""
    home = shutil.copytree(prepared_home, tmp_path_factory.mktemp("learnt") / "project")
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, home)
        yield train(configured(Project(home), epochs=25, model={"d_model": 64, "dropout": 0.0}))


def test_every_epoch_has_the_bleu_of_the_first_pairs_of_both_splits(learnt):
    curve = learnt.record["curve"]
    assert all(point.keys() >= NAMES for point in curve)
    last = {name: curve[-1][name] for name in NAMES}
    assert last == pytest.approx(literal(learnt, 10), abs=1e-6)
    assert 20 < last["training_bleu"] <= 100


def test_more_pairs_than_there_are_means_all_of_them(learnt):
    config = learnt.config.model_copy(update={"train": learnt.config.train.model_copy(update={"epoch_scores": 1000})})
    found = TASK.epoch_scores(learnt.model, learnt.corpus, config, "cpu")
    assert found == pytest.approx(literal(learnt, 1000), abs=1e-6)


def test_the_search_is_greedy_whatever_the_run_searches_by(learnt):
    """A model is trained once for all searches, and its curve is a part of it."""
    other = learnt.config.model_copy(update={"decode": DecodeConfig(beam=2, max_length_offset=1, max_length_factor=0)})
    assert learnt.config.hash == other.hash
    found = TASK.epoch_scores(learnt.model, learnt.corpus, other, "cpu")
    assert found == pytest.approx(literal(learnt, 10), abs=1e-6)


@pytest.mark.parametrize("method", [{"name": "baseline"}, SMART, DEACON], ids=lambda told: told["name"])
def test_training_goes_on_as_without(project, method):
    tensors, curve = result(train(configured(project, method)).folder)
    plain, expected = result(train(configured(project, method, epoch_scores=0)).folder)
    assert tensors == plain
    assert [{key: value for key, value in point.items() if key not in NAMES} for point in curve] == expected


@pytest.mark.parametrize("steps", [5, 7])  # five an epoch: between two epochs, and within one
def test_an_interrupted_run_has_the_curve_of_a_whole_one(project, steps):
    config = configured(project, SMART)
    expected = result(train(config).folder)
    again = configured(project, SMART, checkpoint_seconds=1e-9)
    assert again.hash == config.hash
    folder = run_folder(config)
    folder.rename(folder.with_name("before"))
    interrupt(again, steps)
    assert (folder / "checkpoints").is_dir()
    assert result(train(again).folder) == expected


def test_every_rank_finds_the_same(learnt, monkeypatch):
    alone = TASK.epoch_scores(learnt.model, learnt.corpus, learnt.config, "cpu")
    for rank in (0, 1):
        as_rank(monkeypatch, rank, 2)
        assert TASK.epoch_scores(learnt.model, learnt.corpus, learnt.config, "cpu") == alone


def test_nothing_is_scored_where_nothing_is_asked(project, tmp_path, monkeypatch):
    run = train(configured(project, epoch_scores=0))
    assert all(not point.keys() & NAMES for point in run.record["curve"])
    assert not TASK.scores(run).keys() & {*NAMES, "training_imi"}
    enter(monkeypatch, tmp_path)
    config = small_config("lm", train={"epoch_scores": 5})
    assert TASKS["lm"].epoch_scores(None, None, config, "cpu") == {}


def test_a_number_of_pairs_below_zero_is_refused(project):
    with pytest.raises(
        ConfigError, match=r"train\.epoch_scores: input should be greater than or equal to 0, found -1$"
    ):
        configured(project, epoch_scores=-1)


# ---- the scores of a run


def test_scores_are_the_best_of_the_run_and_the_area_under_its_curve(project):
    run = train(configured(project))
    for point, training, validation in zip(run.record["curve"], (40, 80, 60), (9, 7, 8), strict=True):
        point |= {"training_bleu": training, "validation_bleu": validation}
    told = TASK.scores(run)
    assert told["training_bleu"]["value"] == 80
    assert told["validation_bleu"]["value"] == 9
    assert told["training_imi"]["value"] == pytest.approx((60 + 70) / 200)
    assert [told[name]["unit"] for name in ("training_bleu", "validation_bleu", "training_imi")] == [
        "0 to 100", "0 to 100", "0 to 1",
    ]  # fmt: skip
    assert told["validation_bleu"]["signature"] == (
        "BLEU of words by torchtext 0.6.0, greedy, of the first 10 pairs of validation, after the best of 3 epochs"
    )
    assert told["training_imi"]["signature"] == (
        "area under the curve of BLEU of words by torchtext 0.6.0, greedy, of the first 10 pairs of training, "
        "over that of 100 from epoch 1 to 3"
    )


def test_one_epoch_has_no_area(project):
    config = configured(project, epochs=1)
    train(config)
    scores = evaluate(load_run(config))["scores"]
    assert scores.keys() >= NAMES
    assert "training_imi" not in scores
