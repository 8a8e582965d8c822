"""Checkpoints: everything is restored, only the newest is kept, damage is named."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from headdiv.core.errors import TrainingError
from headdiv.training import checkpoints


def build(seed, width=3):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


def step(model, optimiser):
    optimiser.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimiser.step()


def test_generators_of_all_ranks_are_kept(tmp_path, monkeypatch):
    model, optimiser = build(1)
    own = torch.get_rng_state()
    torch.manual_seed(77)
    second = torch.get_rng_state()
    monkeypatch.setattr(checkpoints.distributed, "gathered", lambda state: torch.stack([own, second]))
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")
        checkpoints.save(tmp_path, 2, model, optimiser, {"step": 2})
    assert list(tmp_path.iterdir()) == []  # the first one alone writes
    checkpoints.save(tmp_path, 2, model, optimiser, {"step": 2})
    assert load_file(tmp_path / "step2" / "optimiser.safetensors")["random"].shape == (2, len(own))
    with pytest.raises(TrainingError, match=r"step2: written by 2 ranks, found 1; start as many, or delete"):
        checkpoints.restore(tmp_path, model, optimiser)
    monkeypatch.setattr(checkpoints.distributed, "world", lambda: 2)
    monkeypatch.setattr(checkpoints.distributed, "wait", lambda: None)
    for rank, expected in enumerate((own, second)):
        monkeypatch.setattr(checkpoints.distributed, "rank", lambda rank=rank: rank)
        torch.manual_seed(5)
        assert checkpoints.restore(tmp_path, model, optimiser)[0] == {"step": 2}
        assert torch.equal(torch.get_rng_state(), expected)


def test_the_newest_two_whole_ones_are_kept_and_the_newest_counts(tmp_path):
    model, optimiser = build(1)
    others, killed = ("step700.tmp", "stepless"), (".step700.0123abcd.tmp", ".step5.0123abcd.old")
    for name in (*others, *killed):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    kept = []
    for number in (1, 9, 10, 10, 100):  # a step may be saved twice
        checkpoints.save(tmp_path, number, model, optimiser, {"step": number})
        kept = [*dict.fromkeys([*kept, number])][-2:]
        assert sorted(path.name for path in tmp_path.glob("step*[0-9]")) == sorted(f"step{n}" for n in kept)
        assert checkpoints.restore(tmp_path, model, optimiser)[0] == {"step": number}
        assert not any((tmp_path / name).exists() for name in killed)
    assert all((tmp_path / name).exists() for name in others)
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoints.save(tmp_path, 101, model, optimiser, {"loss": float("nan")})


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:-3] + b"\x21" + content[-2:],
    "missing": None,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json", "SHA256SUMS"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, caplog, name, damage):
    for number in (1, 2):
        model, optimiser = build(number)
        step(model, optimiser)
        checkpoints.save(tmp_path, number, model, optimiser, {"step": number})
    for number, instead in ((2, "the training goes on from step 1"), (1, "the training begins anew")):
        folder = tmp_path / f"step{number}"
        path = folder / name
        if DAMAGES[damage] is None:
            path.unlink()
        else:
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        restored = checkpoints.restore(tmp_path, *build(3))
        assert restored == (({"step": 1}, None, []) if number == 2 else None)
        message = caplog.records[-1].getMessage()
        assert message.startswith(str(folder) if name == "SHA256SUMS" else str(path))
        assert message.endswith(f"; {instead}")
        assert not folder.exists()
        assert (tmp_path / f"damaged-step{number}").is_dir()  # in case it is the manifest that is wrong


def test_a_checkpoint_of_another_model_is_named(tmp_path):
    checkpoints.save(tmp_path, 5, *build(1), {"step": 5})
    with pytest.raises(TrainingError, match=f"^{tmp_path}/step5/model.safetensors: does not fit this model"):
        checkpoints.restore(tmp_path, *build(1, width=5))


def test_views_and_buffers_are_kept(tmp_path):
    model = nn.BatchNorm1d(6)
    model.weight = nn.Parameter(torch.arange(12.0).view(6, 2).T[0])  # not contiguous
    path = tmp_path / "model.safetensors"
    checkpoints.save_model(model, path)
    other = nn.BatchNorm1d(6)
    checkpoints.load_model(other, path)
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
