"""Training: it learns, it is done once, and an interruption changes nothing, to the last bit."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from conftest import STEPS
from faulty import put_pairs
from small_runs import interrupt, result
from surroundings import Power, fail_after

from headdiv.companion.data.cache import content_key
from headdiv.companion.experiments import running
from headdiv.companion.experiments.running import load_run, run_folder, train
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import run_name
from headdiv.core.errors import DamageError, TrainingError
from headdiv.core.files import read_json
from headdiv.training import checkpoints
from headdiv.training.learner import Learner

# ---- one run


@pytest.mark.parametrize("variant", ["baseline", "direct-8"])
def test_a_run_learns(project, variant):
    config = project.config(variant, train={"epochs": 4})
    logged = []
    run = train(config, log=lambda numbers, step: logged.append((step, numbers["validation_nll"])))
    curve = run.record["curve"]
    assert logged == [(point["steps"], point["validation_nll"]) for point in curve]
    assert [(point["epoch"], point["steps"]) for point in curve] == [(1, 5), (2, 10), (3, 15), (4, 20)]
    assert curve[-1]["training_loss"] < 0.9 * curve[0]["training_loss"]
    assert curve[-1]["validation_nll"] < curve[0]["validation_nll"]
    assert curve[-1]["training_accuracy"] > curve[0]["training_accuracy"]
    assert run.folder == project.home / "work" / run_name(config)
    names = [".lock", "SHA256SUMS", "config.json", "model.safetensors", "training.json"]
    assert sorted(path.name for path in run.folder.iterdir()) == names
    assert read_json(run.folder / "config.json") == config.model_dump(mode="json")
    assert run.record["parameters"] == sum(p.numel() for p in run.model.parameters())
    assert run.record["data"] == run.corpus.statistics | {"content": content_key(config.data), "stream": {}}
    assert run.record["cost"]["target_tokens_per_second"] > 0
    assert (run.record["provenance"]["threads"], run.record["provenance"]["ranks"]) == (1, 1)
    loaded = load_run(config)
    for trained in (run, loaded):
        assert trained.record == read_json(run.folder / "training.json")
        assert not trained.model.training
        assert all(p.grad is None for p in trained.model.parameters())
    state = loaded.model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in run.model.state_dict().items())


def test_the_curve_has_the_literal_loss_and_accuracy_of_the_training_text(project):
    """Of a model that hardly moves: smoothed and plain nats a token, and the percentage that is right."""
    train_options = {"epochs": 1, "learning_rate": 1e-12, "label_smoothing": 0.2}
    run = train(project.config(train=train_options, model={"dropout": 0.0}))
    smoothed = plain = correct = count = 0.0
    for batch in TASKS["translation"].batch_stream(run.corpus, run.config).epoch(0):
        log_p = (run.model(batch) @ run.model.output_weight.T).log_softmax(-1).detach()
        for row, target in zip(log_p, batch.target_out.tolist(), strict=True):
            smoothed -= 0.8 * row[target].item() + 0.2 * row.mean().item()
            plain -= row[target].item()
            correct += int(row.argmax()) == target
            count += 1
    (point,) = run.record["curve"]
    measured = [point[name] for name in ("training_loss", "training_nll", "training_accuracy")]
    assert measured == pytest.approx([smoothed / count, plain / count, 100 * correct / count], rel=1e-4)
    assert correct > 0


def test_a_finished_run_is_not_trained_again(finished, monkeypatch):
    config = finished.config("direct-8")
    fail_after(monkeypatch, 0)
    assert train(config).record == load_run(config).record
    # another name and another search are the same training
    train(finished.config("direct-8", define={"x": config.method}, variants=["x", "direct-8"], decode={"beam": 1}))


def test_the_seed_decides(project, finished_home):
    expected = result(finished_home / "work" / run_name(project.config()))
    torch.manual_seed(5)  # whatever the state was
    assert result(train(project.config()).folder) == expected
    other = result(train(project.config(seed=2)).folder)
    assert len({point["training_loss"] for point in (*other[1], *expected[1])}) == 4


def test_a_changed_file_is_another_run(project):
    """Its name and place are as before: what has been trained on the old text is not taken for it."""
    pairs = [(f"Dog {i % 7} runs.", f"Hund {i % 7} rennt.") for i in range(40)]
    files = put_pairs(project.home, {"train": pairs, "valid": pairs[:4], "test": pairs[:4]})
    config = project.config(data={"name": "mine", "files": files, "examples": 40, "held_out": 500}, train={"epochs": 1})
    first = train(config)
    (project.home / "test.de").write_text("Katze 1 rennt.\n" * 4)
    with pytest.raises(TrainingError) as error:
        load_run(config)
    assert "`headdiv train deacon/translation baseline --seed 1 --profile …`" in str(error.value)
    second = train(config)
    assert second.folder != first.folder
    assert second.corpus.test.text != first.corpus.test.text


def test_two_processes_that_ask_for_one_run_train_it_once(project, monkeypatch):
    """The second waits for the first, and finds the run finished."""
    done = fail_after(monkeypatch, 1000)
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(train, [project.config()] * 2)
    assert done == [STEPS]
    assert all(torch.equal(*pair) for pair in zip(first.model.parameters(), second.model.parameters(), strict=True))


# ---- interruptions


def test_an_interruption_changes_nothing(project, finished_home, monkeypatch, capsys):
    config = project.config("direct-8", train={"checkpoint_seconds": 1e-9})
    interrupt(config, 2, 1, 3)
    assert {path.name for path in (run_folder(config) / "checkpoints").glob("*")} == {"step5", "step6"}
    done = fail_after(monkeypatch, 1000)
    run = train(config)
    assert done == [STEPS - 6]
    assert "translation direct-8 seed 1: going on from step 6" in capsys.readouterr().out
    uninterrupted = finished_home / "work" / run_name(config)
    assert result(run.folder) == result(uninterrupted)
    costs = [record["cost"] for record in (run.record, read_json(uninterrupted / "training.json"))]
    tokens = [cost["target_tokens_per_second"] * cost["training_seconds"] for cost in costs]
    assert tokens[0] == pytest.approx(tokens[1])  # earlier tries counted
    assert not (run.folder / "checkpoints").exists()


def test_an_interruption_after_the_last_step_changes_nothing(project, finished_home):
    """Before the model is written, while it is, and after it."""
    config = project.config("direct-8", train={"checkpoint_seconds": 1e-9})
    folder = run_folder(config)

    def failing_for(write, unfinished):  # the checkpoints' own files are written as ever
        def fail(*args):
            path = next((a for a in args if isinstance(a, Path)), None)
            if unfinished is None or (path.parent == folder and unfinished in path.name):
                raise Power
            write(*args)

        return fail

    for module, name, unfinished in (
        (running, "held_out_loss", None),
        (checkpoints, "save_model", "model.safetensors"),
        (running, "write_json", "training.json"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, failing_for(getattr(module, name), unfinished))
            with pytest.raises(Power):
                train(config)
        assert not (folder / "training.json").exists()
    assert result(train(config).folder) == result(finished_home / "work" / run_name(config))


@pytest.mark.parametrize(("name", "damage"), [("model.safetensors", "flipped"), ("training.json", "cut")])
def test_a_damaged_run_is_trained_again(finished, caplog, name, damage):
    config = finished.config("direct-8")
    folder = run_folder(config)
    expected, path = result(folder), folder / name
    content = path.read_bytes()
    path.write_bytes(content[:-300] + (bytes([content[-300] ^ 1]) + content[-299:] if damage == "flipped" else b""))
    with pytest.raises(DamageError) as error:
        load_run(config)
    assert str(error.value).startswith(f"{path}: damaged, its sha256 is ")
    assert str(error.value).endswith(
        "translation direct-8 --seed 1 --profile …` with the run's profile trains it again"
    )
    assert result(train(config).folder) == expected
    assert caplog.records[-1].getMessage().endswith("the run is trained again")
    assert result(load_run(config).folder) == expected


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damaged_outputs_are_made_again(finished, caplog, damage):
    run = load_run(finished.config("baseline"))
    task = TASKS["translation"]
    path, lines = task.outputs_file(run), task.outputs(run)
    content = path.read_text()
    path.write_text(content.replace(lines[0], lines[0] + "x") if damage == "flipped" else content[:20])
    assert task.outputs(run) == lines
    assert caplog.records[-1].getMessage().endswith("; the search is made again")
    assert read_json(path)["test"] == lines


# ---- methods


def test_the_auxiliary_loss_is_the_mean_over_the_steps_of_an_epoch(project, monkeypatch):
    records, step = [], Learner.step

    def kept(self, *args):
        records.append(step(self, *args))
        return records[-1]

    monkeypatch.setattr(Learner, "step", kept)
    config = project.config("dpp", define={"dpp": {"name": "dpp", "term": "subspace"}}, variants=["dpp"])
    curve = train(config).record["curve"]
    for first, point in zip((0, STEPS // 2), curve, strict=True):
        sums = records[first : point["steps"]]
        assert point["auxiliary_loss"] == pytest.approx(sum(s.auxiliary for s in sums) / len(sums))
        assert point["training_loss"] == pytest.approx(sum(s.loss for s in sums) / sum(s.count for s in sums))
        assert point["auxiliary_loss"] < 0  # λ·det L is taken off
    assert len(records) == STEPS


# ---- what cannot go on, and options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_norm": None}, "epoch 1/2: the loss is nan at step 2"),
        ({"tokens_per_batch": 10000, "epochs": 1}, "epoch 1/1: the validation nll is nan at step 1"),  # after the last
    ],
)
def test_a_loss_that_is_not_finite_ends_the_run(project, options, message):
    config = project.config(train={"learning_rate": 1e30, "warmup_steps": 0} | options)
    with pytest.raises(TrainingError) as error:
        train(config)
    assert f"deacon/translation baseline seed 1, {message}; nothing was recorded" in str(error.value)
    assert sorted(path.name for path in run_folder(config).iterdir()) == [".lock", "config.json"]


def test_bfloat16_learns_too(project, finished_home):
    curve = train(project.config("direct-8", train={"epochs": 3, "precision": "bfloat16"})).record["curve"]
    assert curve[-1]["training_loss"] < 0.92 * curve[0]["training_loss"]
    plain = read_json(finished_home / "work" / run_name(project.config("direct-8")) / "training.json")["curve"]
    assert curve[0]["training_loss"] != plain[0]["training_loss"]
    assert curve[0]["training_loss"] == pytest.approx(plain[0]["training_loss"], rel=0.1)
