"""The trainer on a model that is no task's: batches, losses, optimisers, and what is refused."""

import json

import pytest
import torch
from surroundings import as_rank, fail_after
from torch import nn
from torch.utils.data import DataLoader

from headdiv.core import distributed
from headdiv.core.errors import ConfigError, TrainingError
from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.training.batch_streams import IterableBatchStream
from headdiv.training.learner import Losses
from headdiv.training.trainer import Trainer, on_device


class Reverser(nn.Module):
    """Two layers of attention, with dropout."""

    def __init__(self, method):
        super().__init__()
        self.embedding, self.output, self.drop = nn.Embedding(12, 8), nn.Linear(8, 12), nn.Dropout(0.2)
        layers = (MultiheadAttention(8, 2, method, batch_first=True, layer=layer) for layer in range(2))
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        h = self.embedding(x)
        for layer in self.layers:
            h = h + self.drop(layer(h, h, h, need_weights=False)[0])
        return self.output(h)


def loss(model, x):
    return nn.functional.cross_entropy(model(x).transpose(1, 2), x.flip(1), reduction="none")


def texts(count=24):
    return torch.randint(12, (count, 5), generator=torch.Generator().manual_seed(1))


def trainer_of(options=None, batches=None, **arguments):
    method = make_method(options or {"name": "baseline"})
    torch.manual_seed(3)
    arguments = {"epochs": 2, "learning_rate": 0.01, "warmup_steps": 2, "loss": loss, "seed": 1} | arguments
    batches = texts().split(6) if batches is None else batches
    return Trainer(Reverser(method), batches, method=method, **arguments)


def values(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_what_is_logged_is_the_mean_over_the_steps_since_the_last_time():
    logged = {1: [], 2: []}
    for every, log in logged.items():
        trainer_of(log=lambda numbers, step, log=log: log.append(numbers), log_every=every).run()
    every_step, every_second = ([x["training_loss"] for x in log if "learning_rate" in x] for log in logged.values())
    assert every_second == pytest.approx([(a + b) / 2 for a, b in zip(every_step[0::2], every_step[1::2], strict=True)])


def test_ranks_drop_different_values_out(monkeypatch):
    losses = []
    for rank in (0, 1, 1):
        as_rank(monkeypatch, rank, 1)
        losses.append(trainer_of().run().curve[0]["training_loss"])
    assert losses[0] != losses[1] == losses[2]


def test_a_finished_training_is_not_repeated(tmp_path, monkeypatch, capsys):
    first = trainer_of(folder=tmp_path, validate=lambda model: {"score": torch.tensor(2 + model.training)})
    state = first.run()
    assert [(point["score"], point["steps"]) for point in state.curve] == [(2.0, 4), (2.0, 8)]
    again = trainer_of(folder=tmp_path)
    fail_after(monkeypatch, 0)
    assert (again.run(), again.model.training) == (state, False)
    assert "going on" not in capsys.readouterr().out
    torch.testing.assert_close(values(again.model), values(first.model), rtol=0, atol=0)


def test_a_folder_belongs_to_one_training(tmp_path):
    trainer_of(folder=tmp_path).run()
    for changed, key in (({"learning_rate": 0.9}, "learning_rate"), ({"seed": 5}, "seed")):
        with pytest.raises(TrainingError, match=f"{tmp_path}: a training with {key} = .* expected a folder of its own"):
            trainer_of(folder=tmp_path, **changed).run()
    with pytest.raises(TrainingError, match="a training with method = "):
        trainer_of({"name": "mixing"}, folder=tmp_path).run()


def test_each_rank_goes_on_with_its_own_draws(monkeypatch):
    """One process in place of two: the second has drawn a number more."""
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    torch.rand(1, generator=generators[1])
    states = [generator.get_state() for generator in generators]
    stored = IterableBatchStream(DataLoader(texts(), shuffle=True, generator=generators[0]))
    stored.start = [torch.get_rng_state(), states[0]]
    for name, value in (("world", 2), ("rank", 1)):
        monkeypatch.setattr(distributed, name, lambda value=value: value)
    monkeypatch.setattr(distributed, "gathered", lambda own: torch.stack([own, states[1][: len(own)]]))
    again = IterableBatchStream(DataLoader(texts(), shuffle=True, generator=torch.Generator()))
    again.restore(json.loads(json.dumps(stored.state())))
    assert torch.equal(again.start[1], states[1])


def test_a_layer_outside_the_loss_stays_as_it_is():
    method = make_method({"name": "deacon", "architecture": "direct", "m": 2})
    model = Reverser(method)
    model.unused = MultiheadAttention(8, 2, method, batch_first=True)
    before = values(model.unused)
    Trainer(model, texts().split(6), loss, method=method, epochs=1).run()
    assert all(torch.equal(value, before[name]) for name, value in values(model.unused).items())


def test_a_loss_may_be_of_each_prediction_their_mean_or_sums():
    def sums(model, x):
        values = loss(model, x)
        return Losses(values.sum(), values.sum().detach(), torch.tensor(0), values.numel(), tokens=30)

    runs = [trainer_of(loss=form) for form in (loss, mean_loss, sums)]
    separate, averaged, summed = (run.run().curve for run in runs)
    assert [point["training_loss"] for point in averaged] == pytest.approx([p["training_loss"] for p in separate])
    assert summed[0]["training_accuracy"] == 0
    assert {"training_nll", "training_accuracy"} == summed[0].keys() - separate[0].keys()
    routed = [trainer_of({"name": "moa", "experts": 4, "k": 2}, loss=form).run().curve for form in (loss, mean_loss)]
    assert routed[1][1]["auxiliary_loss"] == pytest.approx(routed[0][1]["auxiliary_loss"])


DPP = {"name": "dpp", "term": "output"}
OBSERVING = {"name": "dynamic-rotation", "choice": "hard", "swaps": 1}
CROSS = {"name": "homeostasis", "attention": "kwta", "s_att": 0.5, "kinds": ["cross"]}
COMBINED = {"name": "combined", "methods": [{"name": "hsic", "term": "output"}, {"name": "mixing"}]}


def returning(value):
    return lambda *_: value


def mean_loss(model, x):
    return loss(model, x).mean()


REFUSALS = [  # the error, its key words, and arguments
    (ConfigError, "^lerning_rate: unknown key; did you mean 'learning_rate'", {"lerning_rate": 1}),
    (ConfigError, "^optimiser.name: unknown optimiser 'Muon'; ", {"optimiser": "Muon"}),
    (TrainingError, "^batches: found generator without a length; expected", {"batches": (x for x in texts())}),
    (TrainingError, "batches: found none", {"batches": []}),
    (TrainingError, r"epoch 2/2: batches: found none; expected .* every epoch",
     {"batches": lambda epoch: [] if epoch else texts().split(6)}),
    (TrainingError, r"^the method chooses heads .* 'observe'$", {"options": OBSERVING}),
    (TrainingError, r"^method\.kinds: the model has no cross attention, only encoder$", {"options": CROSS}),
    (TrainingError, r"^mine, epoch 1/2: the score is nan at step 4; ",
     {"validate": returning({"score": float("nan")}), "name": "mine"}),
    (ValueError, "^log_every: found 0, expected 1 or more$", {"log_every": 0}),
    (TrainingError, r"patience: expected .*'validate'.*'validation_nll'", {"patience": 1}),
    (TypeError, r"^loss: found 1\.5, expected a function that returns a tensor, or Losses", {"loss": returning(1.5)}),
    (TrainingError, "a batch has no prediction; expected one", {"loss": lambda model, x: loss(model, x)[:0]}),
    (TrainingError, r"the loss is a scalar, and the method weighs .* predictions; expected",
     {"options": DPP, "loss": mean_loss}),
    (TrainingError, "loss is on heads, and none ran",
     {"options": DPP, "loss": lambda model, x: sum(p.sum() for p in model.parameters()).expand(4)}),
    (TrainingError, "parameters have no gradient",
     {"options": {"name": "deacon", "m": 2}, "loss": lambda model, x: next(model.parameters()).sum().expand(4)}),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words", "arguments"), REFUSALS)
def test_a_mistake_is_one_sentence(error, words, arguments):
    with pytest.raises(error, match=words):
        trainer_of(**arguments).run()


@pytest.mark.parametrize("options", [{"name": "drop-head"}, COMBINED], ids=lambda options: options["name"])
def test_a_method_that_would_change_nothing_is_refused(options):
    with pytest.raises(TrainingError, match="the method found no heads: no attention that headdiv built"):
        Trainer(nn.Linear(2, 2), [torch.ones(3, 2)], loss, method=make_method(options))


def test_batches_are_moved_however_they_are_nested():
    x = torch.zeros(2)
    moved = on_device({"a": [x, (x, "text")], "b": 3}, torch.device("meta"))
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == "meta"
    assert (moved["a"][1][1], moved["b"]) == ("text", 3)


# ---- the method


DIRECT = {"name": "deacon", "architecture": "direct", "m": 2, "gha_steps": 5}
DISAGREEMENT = {"name": "disagreement", "term": "output"}


@pytest.mark.parametrize(
    ("built", "given", "message"),
    [
        (DIRECT, None, r"Deacon\(m=2, gha_steps=5\) is in the model's attention, found no method"),
        (DIRECT, {**DIRECT, "m": 1}, r"Deacon\(.*m=2.* is in the model's attention, found Deacon\(.*m=1"),
        ({"name": "baseline"}, {"name": "mixing"}, r"Method\(\) is in the model's attention, found Mixing\("),
        (DISAGREEMENT, None, r"Disagreement\(.* is in the model's attention, found no method"),
    ],
)
def test_the_method_is_the_one_that_built_the_models_attention(built, given, message):
    with pytest.raises(TrainingError, match=message):
        Trainer(Reverser(make_method(built)), texts().split(6), loss, method=given and make_method(given))


@pytest.mark.parametrize(
    ("built", "given"), [(DISAGREEMENT, {"name": "dpp", "term": "output"}), ({"name": "baseline"}, DISAGREEMENT)]
)
def test_a_method_of_a_loss_alone_may_be_another(built, given):
    Trainer(Reverser(make_method(built)), texts().split(6), loss, method=make_method(given))
