"""Every mistake in a configuration file is one sentence with file, line and key."""

import pytest
from faulty import exactly

from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check, nearest

PROFILE = """\
title: test
seeds: [1]
experiments:
  deacon/translation:
    data: {name: toy}
    model:
      d_model: 16
      heads: 8
    train:
      epochs: 2
      learning_rate: 0.01
"""
HERE = "experiments.deacon/translation"
MISTAKES = {  # what is replaced in the profile, by what: line, key and problem
    ("title: test\n", ""): "line 1: title: is missing",
    ("seeds: [1]", "seed: 1"): "line 2: seed: unknown key; did you mean 'seeds'?",
    ("epochs", "epoch"): f"line 10: {HERE}.train.epoch: unknown key; did you mean 'epochs'?",
    ("d_model", "zzz"): f"line 7: {HERE}.model.zzz: unknown key; known here: activation, attention_bias, d_ff, d_",
    ("{name: toy}", "{}"): f"line 5: {HERE}.data.name: is missing",
    ("[1]", "[1, two]"): "line 2: seeds.1: input should be a valid integer",
    ("[1]", "[1, 2, 1]"): "line 2: seeds: input should name nothing twice, and 1 is, found [1, 2, 1]",
    ("  deacon/translation:", "  deacon:"): "line 4: experiments.deacon: found 'deacon', expected <paper>/<task>",
    ("heads: 8", "heads: 3"): f"line 8: {HERE}.model.heads: 3 does not divide d_model = 16",
    ("0.01", ".nan"): f"line 11: {HERE}.train.learning_rate: input should be a finite number, found nan",
    ("deacon/translation", "deacon/translatoin"): (
        "line 4: experiments.deacon/translatoin: task 'translatoin' of deacon is not known; did you mean 'translation'?"
    ),
    (PROFILE, "a: 1\nb: [1\nc: 2\n"): "line 3: not valid YAML (",
    (PROFILE, ""): "line 1: input should be a valid dictionary or instance of Profile, found None",
    ("heads: 8", "heads: 8\n      d_model: 8"): "line 9: the key 'd_model' is given twice",
}


@pytest.mark.parametrize("change", MISTAKES, ids=lambda change: change[1])
def test_a_mistake_is_named_with_file_line_and_key(home, change):
    assert PROFILE.count(change[0]) == 1
    path = home / "p.yaml"
    path.write_text(PROFILE)
    assert len(Runs(str(path)).all()) == 7
    path.write_text(PROFILE.replace(*change))
    with pytest.raises(ConfigError) as found:
        Runs(str(path))
    assert str(found.value).startswith(f"{path}, {MISTAKES[change]}")
    assert "\n" not in str(found.value)


def test_a_file_that_cannot_be_read_is_named(home):
    (home / "config").mkdir()
    (home / "config" / "tiny.yaml").write_text(PROFILE)
    (home / "config" / "latin.yaml").write_bytes(PROFILE.encode().replace(b"test", b"t\xe4st"))
    with exactly(f"{home}/config/tniy.yaml: no such file; did you mean 'tiny'?", ConfigError):
        Runs("tniy")
    with exactly(f"{home}/config/latin.yaml: not UTF-8 text (byte offset 8)", ConfigError):
        Runs("latin")


def test_without_a_file_only_the_key_is_named():
    with exactly("train.epochs: input should be greater than or equal to 1, found 0", ConfigError):
        check(TrainConfig, {"epochs": 0}, ("train",))
    assert nearest("adamw", ["Adam", "AdamW"]) == "; did you mean 'AdamW'?"
