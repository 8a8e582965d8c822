"""One embedding of source, target and output: its storage, gradient, first values, count, checkpoints."""

import pytest
import torch
from safetensors.torch import load_file
from small_runs import interrupt, result

from headdiv.companion.experiments.parameters import count, parameters_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import build_model, load_run, run_folder, train
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import vocabulary_of
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check

TASK = TASKS["translation"]
NAMES = ("source_embedding.weight", "target_embedding.weight", "output_embedding.weight")
JOINT = {"data": {"joint_vocabulary": True}}
TIED = JOINT | {"model": {"tied": "all"}}


def built(config):
    corpus = TASK.load(config.data)
    return corpus, build_model(config, vocabulary_of(corpus))[0]


@pytest.mark.parametrize("merges", [None, 40])
def test_a_joint_vocabulary_has_the_words_of_both_sides(project, merges):
    data = {"joint_vocabulary": True, "merges": merges}
    joint, separate = (TASK.load(project.config(data=settings).data) for settings in (data, {"merges": merges}))
    assert joint.source.words == joint.target.words
    assert set(joint.source.words) == {*separate.source.words, *separate.target.words}
    assert joint.statistics["vocabulary"] == {"source": len(joint.source), "target": len(joint.source)}
    for side in ("source", "target"):
        joint_lines, separate_lines = (getattr(corpus.train.pairs, side) for corpus in (joint, separate))
        words = [getattr(separate, side).decode(line) for line in separate_lines]
        assert [getattr(joint, side).decode(line) for line in joint_lines] == words


def test_the_three_are_one_and_its_gradient_is_the_sum(project):
    config = project.config(**TIED)
    corpus, model = built(config)
    V, D = len(corpus.source), config.model.d_model
    assert model.source_embedding.weight is model.target_embedding.weight is model.output_embedding.weight
    _, untied = built(project.config(**JOINT))
    untied.load_state_dict(model.state_dict())
    batch = TASK.pack(corpus.train, range(6))
    for transformer in (model, untied):
        TASK.loss(transformer.eval(), transformer.output_weight, batch).loss.backward()
    parts = dict(untied.named_parameters())
    expected = sum(parts[name].grad for name in NAMES)
    assert torch.allclose(model.output_weight.grad, expected, rtol=1e-4, atol=1e-6)
    assert parameters_of(config, (V, V)) == parameters_of(project.config(**JOINT), (V, V)) - 2 * V * D
    assert count("translation", {"name": "baseline"}, {"tied": "all"}, (90, 90)) == (
        count("translation", {"name": "baseline"}, {"tied_output": True}, (90, 90)) - 90 * 256
    )


def test_first_values_are_those_of_the_target_embedding(project):
    """All other parameters begin as without tying, too."""
    tied, untied = (built(project.config(**sections))[1].state_dict() for sections in (TIED, JOINT))
    for name, value in tied.items():
        assert torch.equal(value, untied[NAMES[1] if name in NAMES else name])


def test_a_run_is_stored_loaded_and_resumed(project):
    config = project.config(**TIED | {"train": {"checkpoint_seconds": 1e-9}})
    expected = result(train(config).folder)
    stored = load_file(run_folder(config) / "model.safetensors")
    assert all(torch.equal(stored[name], stored[NAMES[0]]) for name in NAMES)
    model = load_run(config).model
    assert model.source_embedding.weight is model.output_embedding.weight
    run_folder(config).rename(run_folder(config).with_name("before"))
    interrupt(config, 3, 4)
    assert result(train(config).folder) == expected


def test_what_cannot_be_tied_is_refused(project):
    for sections, message in (
        ({"model": {"tied": "all"}}, r"wrong\.yaml, line \d+: .*model\.tied: .* expected data\.joint_vocabulary: true"),
        (JOINT | {"model": {"tied": "all", "tied_output": True}}, r"line \d+: .*model\.tied_output: .* one of the two"),
    ):
        name = project.write_profile("wrong", **sections)
        with pytest.raises(ConfigError, match=message):
            Runs(name)
    with pytest.raises(ConfigError, match="question answering are not words"):
        count("qa", {"name": "baseline"}, {"tied": "all"}, (90,))
    with pytest.raises(ConfigError, match=r"^tied_output: expected false"):
        check(TASKS["qa"].Model, {"tied_output": True})
    TASKS["summarisation"].check_model(TASK.Model(tied="all"), None)  # one vocabulary of both
