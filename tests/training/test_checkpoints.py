"""Checkpoints: everything comes back, only the newest stays, damage is named."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from headdiv.core.errors import TrainingError
from headdiv.training import checkpoints


def build(seed, width=3):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def step(model, optimiser):
    """One step on random data: it moves parameters, running statistics, moments and the generator."""
    optimiser.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimiser.step()


def everything(model, optimiser):
    moments = [
        value for _, state in sorted(optimiser.state_dict()["state"].items()) for _, value in sorted(state.items())
    ]
    return [*model.state_dict().values(), *moments, torch.get_rng_state()]


CPU = torch.device("cpu")


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    model, optimiser = build(1)
    for _ in range(3):
        step(model, optimiser)
    state = {"step": 3, "curve": [{"loss": 0.1}], "seconds": 1.5}
    checkpoints.save(tmp_path, 3, model, optimiser, state)
    saved = [value.clone() for value in everything(model, optimiser)]
    for _ in range(2):
        step(model, optimiser)
    expected = everything(model, optimiser)

    model, optimiser = build(2)
    assert checkpoints.restore(tmp_path, model, optimiser, CPU) == state
    restored = everything(model, optimiser)
    assert len(restored) == len(saved)
    assert all(torch.equal(a, b) for a, b in zip(restored, saved, strict=True))
    for _ in range(2):
        step(model, optimiser)
    assert all(torch.equal(a, b) for a, b in zip(everything(model, optimiser), expected, strict=True))


def test_generators_of_all_ranks_are_kept(tmp_path, monkeypatch):
    """Each rank goes on with its own; one that was not there before with one that is always the same."""
    model, optimiser = build(1)
    step(model, optimiser)
    checkpoints.save(tmp_path, 1, model, optimiser, {})
    path = tmp_path / "step1" / "optimiser.safetensors"
    own = torch.get_rng_state()
    assert torch.equal(load_file(path)["random"], own[None])

    torch.manual_seed(77)
    second = torch.get_rng_state()
    monkeypatch.setattr(checkpoints.distributed, "gathered", lambda state: torch.stack([own, second]))
    checkpoints.save(tmp_path, 2, model, optimiser, {})
    assert load_file(tmp_path / "step2" / "optimiser.safetensors")["random"].shape == (2, len(own))
    found = {}
    for rank in range(4):
        monkeypatch.setattr(checkpoints.distributed, "rank", lambda rank=rank: rank)
        states = []
        for seed in (5, 6):  # whatever came before
            torch.manual_seed(seed)
            assert checkpoints.restore(tmp_path, model, optimiser, CPU) == {}
            states.append(torch.get_rng_state())
        assert torch.equal(*states)
        found[rank] = states[0]
    assert torch.equal(found[0], own)
    assert torch.equal(found[1], second)
    assert len({state.numpy().tobytes() for state in found.values()}) == 4


def test_the_first_rank_alone_writes(tmp_path, monkeypatch):
    model, optimiser = build(1)
    gathered = []
    monkeypatch.setattr(checkpoints.distributed, "gathered", lambda state: gathered.append(state) or state[None])
    monkeypatch.setenv("RANK", "1")
    checkpoints.save(tmp_path, 1, model, optimiser, {})
    assert len(gathered) >= 1  # which takes all ranks
    assert list(tmp_path.iterdir()) == []


def test_saving_changes_nothing(tmp_path):
    model, optimiser = build(1)
    step(model, optimiser)
    before = [value.clone() for value in everything(model, optimiser)]
    checkpoints.save(tmp_path, 1, model, optimiser, {})
    assert all(torch.equal(a, b) for a, b in zip(everything(model, optimiser), before, strict=True))


@pytest.mark.parametrize("folder", ["", "nothing/here"])
def test_without_a_checkpoint_nothing_is_restored(tmp_path, folder):
    model, optimiser = build(1)
    before = [value.clone() for value in everything(model, optimiser)]
    assert checkpoints.restore(tmp_path / folder, model, optimiser, CPU) is None
    assert all(torch.equal(a, b) for a, b in zip(everything(model, optimiser), before, strict=True))


def test_only_the_newest_is_kept(tmp_path):
    model, optimiser = build(1)
    for number in (1, 9, 10, 10, 100):  # a step may be saved twice
        checkpoints.save(tmp_path, number, model, optimiser, {"step": number})
        assert [path.name for path in tmp_path.iterdir()] == [f"step{number}"]
        assert checkpoints.restore(tmp_path, model, optimiser, CPU) == {"step": number}
    assert sorted(path.name for path in (tmp_path / "step100").iterdir()) == [
        "model.safetensors",
        "optimiser.safetensors",
        "state.json",
    ]


def test_the_newest_counts_when_an_older_one_was_not_removed(tmp_path):
    model, optimiser = build(1)
    checkpoints.save(tmp_path, 9, model, optimiser, {"step": 9})
    (tmp_path / "step9").rename(tmp_path / "aside")
    checkpoints.save(tmp_path, 10, model, optimiser, {"step": 10})
    (tmp_path / "aside").rename(tmp_path / "step9")
    assert checkpoints.restore(tmp_path, model, optimiser, CPU) == {"step": 10}


def test_what_was_half_written_is_ignored(tmp_path):
    model, optimiser = build(1)
    checkpoints.save(tmp_path, 5, model, optimiser, {"step": 5})
    for name in (".step7.0123abcd.tmp", "step7.tmp", ".step5.0123abcd.old", "stepless"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    assert checkpoints.restore(tmp_path, model, optimiser, CPU) == {"step": 5}
    checkpoints.save(tmp_path, 6, model, optimiser, {"step": 6})
    assert checkpoints.restore(tmp_path, model, optimiser, CPU) == {"step": 6}


def test_a_failed_save_leaves_the_last_one(tmp_path):
    model, optimiser = build(1)
    checkpoints.save(tmp_path, 5, model, optimiser, {"step": 5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoints.save(tmp_path, 6, model, optimiser, {"loss": float("nan")})
    assert [path.name for path in tmp_path.iterdir()] == ["step5"]


@pytest.mark.parametrize("damage", [b"", b"\x00" * 100, "half"])
def test_a_damaged_model_file_is_named(tmp_path, damage):
    model, optimiser = build(1)
    checkpoints.save(tmp_path, 5, model, optimiser, {})
    path = tmp_path / "step5" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20] if damage == "half" else damage)
    with pytest.raises(TrainingError) as found:
        checkpoints.restore(tmp_path, model, optimiser, CPU)
    assert str(found.value).startswith(f"{path}: cannot be read (")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("damage", [b"", b"\x80\x02garbage", b"PK\x03\x04", "half", "another"])
def test_a_damaged_optimiser_file_is_named(tmp_path, damage):
    model, optimiser = build(1)
    step(model, optimiser)
    checkpoints.save(tmp_path, 5, model, optimiser, {})
    path = tmp_path / "step5" / "optimiser.safetensors"
    if damage == "another":  # of a model with fewer parameters
        save_file({"random": torch.get_rng_state()[None], "0.exp_avg": torch.ones(2)}, path)
    else:
        path.write_bytes(path.read_bytes()[:-200] if damage == "half" else damage)
    with pytest.raises(TrainingError) as found:
        checkpoints.restore(tmp_path, model, optimiser, CPU)
    problem = "does not fit this model" if damage == "another" else "cannot be read ("
    assert str(found.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(found.value)


def test_a_missing_model_file_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(TrainingError) as found:
        checkpoints.load_model(build(1)[0], path)
    assert str(found.value).startswith(f"{path}: cannot be read (")


def test_a_model_of_another_shape_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    checkpoints.save_model(build(1)[0], path)
    with pytest.raises(TrainingError) as found:
        checkpoints.load_model(build(1, width=5)[0], path)
    assert str(found.value).startswith(f"{path}: does not fit this model (size mismatch for ")
    assert "\n" not in str(found.value)
    with pytest.raises(TrainingError, match="does not fit this model"):
        checkpoints.load_model(nn.Linear(4, 3), path)


def test_views_and_buffers_are_kept(tmp_path):
    model = nn.BatchNorm1d(6)
    model.weight = nn.Parameter(torch.arange(12.0).view(6, 2).T[0])  # not contiguous
    path = tmp_path / "model.safetensors"
    checkpoints.save_model(model, path)
    other = nn.BatchNorm1d(6)
    checkpoints.load_model(other, path)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
