"""Operations, memory and days of a run against their formulas written out."""

import pytest
from small_runs import METHODS, small_config

from headdiv.companion.experiments import cost
from headdiv.companion.experiments.cost import DEVICES, GIB, cost_of, profile_hours
from headdiv.companion.experiments.profiles import run_config
from headdiv.core.errors import ConfigError
from headdiv.methods import check_method
from headdiv.methods.base import Method
from headdiv.training.learner import Learner

D, F, V, N, WINDOWS, LAYERS = 16, 16, 300, 32, 8, 2


def lm(variant="baseline", **train):
    config = small_config("lm", variant, model={"layers": LAYERS}, train=train)
    return config.model_copy(update={"method": check_method(METHODS[variant], config.model)})


def literal_operations():
    """Of one token, each product three times: forward, for the gradient of its input, and of its weights."""
    weights = LAYERS * (4 * D * D + 2 * D * F) + V * D
    attention = LAYERS * 2 * N * D  # queries with keys, weights with values
    return 3 * 2 * (weights + attention)


def test_operations_and_days_of_the_plain_transformer(monkeypatch):
    monkeypatch.setattr(cost, "LAUNCH", 0.0)
    found = cost_of(lm(epochs=10**6), "h100", 4, 0.5)
    assert found["operations_a_token"] == literal_operations()
    assert found["tokens_a_batch"] == N * WINDOWS
    assert found["tokens_a_second"] == round(4 * 0.5 * DEVICES["h100"].float32 / literal_operations())
    assert found["tokens"] == 10**6 * round(3200 / (N * WINDOWS)) * N * WINDOWS
    seconds = found["tokens"] * literal_operations() / (4 * 0.5 * DEVICES["h100"].float32)
    assert found["days"] == pytest.approx(seconds / (24 * 60 * 60), abs=5e-4)


def test_a_small_model_waits_for_launches_which_larger_batches_do_not_add_to():
    one, larger = (cost_of(lm(tokens_per_batch=N * WINDOWS * factor), "h100", 1, 0.4) for factor in (1, 10))
    assert one["launches_a_batch"] == larger["launches_a_batch"]
    assert one["waits_for_launches"]
    assert one["tokens_a_second"] == round(N * WINDOWS / (cost.LAUNCH * one["launches_a_batch"]))
    assert cost_of(lm(accumulate=4), "h100", 1, 0.4)["tokens_a_second"] == one["tokens_a_second"]  # of one batch each
    assert "by the launches of" in cost.message(one)
    assert not cost_of(lm(), "h100", 1, 1e-9)["waits_for_launches"]
    assert not cost_of(lm(), "cpu", 1, 0.4)["waits_for_launches"]


@pytest.mark.slow
def test_memory_by_part(monkeypatch):
    monkeypatch.setattr(cost, "LAUNCH", 0.0)  # else two devices wait for as many launches as one
    one, two = (cost_of(lm(), "a100", count, 0.4) for count in (1, 2))
    parameters = one["parameters"]
    assert one["memory_gib"]["weights"] == round(4 * parameters / GIB, 2)
    narrow = cost_of(run_config("paper", "deacon/lm", "baseline", 1), "a100", 8, 0.4)
    sizes = narrow["memory_gib"]
    assert narrow["parameters"] == 354_818_048
    assert (sizes["gradients"], sizes["optimiser"]) == (2 * sizes["weights"], 2 * sizes["weights"])
    # In bfloat16, by token and layer: 9 D around attention and norms, and what GELU reads and gives, 4 D each.
    by_hand = 65536 * 24 * 2 * (9 + 2 * 4) * 1024 / GIB
    assert sizes["activations"] == pytest.approx(by_hand, rel=0.2)
    assert narrow["total_with_activation_checkpointing_gib"] < narrow["total_gib"] / 4
    assert two["tokens_a_second"] == pytest.approx(2 * one["tokens_a_second"], abs=1)


@pytest.mark.slow
def test_deacons_inner_loop_is_counted_once_a_step():
    plain, pca, twice = (cost_of(c, "h100", 1, 0.4) for c in (lm(), lm("direct-2"), lm("direct-2", accumulate=2)))
    assert plain["operations_a_token"] < twice["operations_a_token"] < pca["operations_a_token"]


def test_operations_of_a_mixture_of_heads_are_those_of_the_chosen_ones():
    E, k, K = 4, 2, D // small_config("lm").model.heads
    layer = 2 * k * D * K + 2 * D * K + D * E + 2 * N * k * K + 2 * D * F  # heads, shared keys and values, router
    moa = lm().model_copy(update={"method": {"name": "moa", "experts": E, "k": k}})
    assert cost_of(moa, "h100", 1, 0.4)["operations_a_token"] == 3 * 2 * (LAYERS * layer + V * D)


def test_what_cannot_be_worked_out_is_said(monkeypatch):
    with pytest.raises(ConfigError, match="device: 'h10' is not known; did you mean 'h100'"):
        cost_of(lm(), "h10", 1, 0.4)

    def reads(self, model, progress):
        return next(model.parameters()).sum().item()

    monkeypatch.setattr(Method, "after_backward", reads)
    with pytest.raises(ConfigError, match="its operations depend on values"):
        cost_of(lm(), "h100", 1, 0.4)


def test_this_machines_cpu_is_measured_and_its_memory_counts_the_process():
    found = cost_of(lm(), "cpu", 1, 0.4)
    assert found["tokens_a_second"] > 0
    assert found["memory_gib"]["process without a model"] > 0.1
    assert found["total_gib"] == pytest.approx(sum(found["memory_gib"].values()), abs=0.02)


PROFILE = """
title: two language models
seeds: [1, 2]
threads: {threads}
experiments:
  moa/mlm:
    data: {{name: toy, vocabulary_size: 300, context: 32, epoch_tokens: 3200}}
    model: {{d_model: 16, heads: 2, d_ff: 16, layers: 1}}
    train: {{epochs: 3, tokens_per_batch: 256}}
    variants: [baseline, own]
    define: {{own: {{name: moa, experts: 4, k: 2}}}}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_the_hours_of_a_profile_on_this_cpu_are_those_of_timed_steps(project, monkeypatch, threads):
    """A step of one second, or two for a batch of two windows, by either clock."""
    project.write_config("p", PROFILE.format(threads=threads))
    clock, real = [0.0], Learner.step

    def step(self, batch, *arguments):
        clock[0] += len(batch.inputs) / 32
        return real(self, batch, *arguments)

    monkeypatch.setattr(Learner, "step", step)
    for name in ("thread_time", "perf_counter"):
        monkeypatch.setattr(cost.time, name, lambda: clock[0])
    monkeypatch.setattr(cost, "_rate", lambda kind: 1e12)
    *rows, total = profile_hours("p", "cpu", 1, 0.4)
    assert [(row["variant"], row["epochs"]) for row in rows] == [("baseline", 6), ("own", 6)]
    batches = round(3200 / 256)
    assert all(row["hours"] == pytest.approx(6 * batches * 256 / 32 / 3600) for row in rows)
    assert total["hours"] == pytest.approx(sum(row["hours"] for row in rows))


def test_an_unknown_device_is_named_for_a_whole_profile_too(project):
    project.write_config("p", PROFILE.format(threads=1))
    with pytest.raises(ConfigError, match="device: 'h10' is not known; did you mean 'h100'"):
        profile_hours("p", "h10", 1, 0.4)
