"""Every mistake in a configuration file is one sentence with file, line and key."""

import pytest
from faulty import exactly

from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import Source, check, config_error, nearest

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


def refusal(project, text):
    """The error of a profile, without the folder before its name."""
    project.write_config("p", text)
    with pytest.raises(ConfigError) as found:
        Runs("p")
    folder = f"{project.home}/config/"
    assert str(found.value).startswith(folder)
    assert "\n" not in str(found.value)
    return str(found.value).removeprefix(folder)


MODEL_KEYS = (
    "activation, attention_bias, d_ff, d_model, decoder_layers, dropout, encoder_layers, heads, tied, tied_output"
)
MISTAKES = {  # what is replaced in the profile, by what: line, key and problem
    ("title: test\n", ""): "1: title: is missing",
    ("seeds: [1]", "seed: 1"): "2: seed: unknown key; did you mean 'seeds'?",
    ("epochs", "epoch"): f"10: {HERE}.train.epoch: unknown key; did you mean 'epochs'?",
    ("d_model", "zzz"): f"7: {HERE}.model.zzz: unknown key; known here: {MODEL_KEYS}",
    ("{name: toy}", "{}"): f"5: {HERE}.data.name: is missing",
    ("[1]", "[1, two]"): "2: seeds.1: input should be a valid integer",
    ("[1]", "[true]"): "2: seeds: input should not be true or false, found [True]",
    ("[1]", "[1, 2, 1]"): "2: seeds: input should name nothing twice, and 1 is, found [1, 2, 1]",
    ("epochs: 2", "epochs: true"): f"10: {HERE}.train.epochs: input should not be true or false, found True",
    ("  deacon/translation:", "  deacon:"): "4: experiments.deacon: found 'deacon', expected <paper>/<task>",
    ("    model:", "    variants: [baseline, direct-8, baseline]\n    model:"): (
        f"6: {HERE}.variants: input should name nothing twice, and 'baseline' is"
    ),
    ("heads: 8", "heads: 3"): f"8: {HERE}.model.heads: 3 does not divide d_model = 16",
    ("0.01", ".nan"): f"11: {HERE}.train.learning_rate: input should be a finite number, found nan",
    ("epochs: 2", "betas: [0.9, 1.0]"): f"10: {HERE}.train.betas.1: input should be less than 1, found 1.0",
    ("deacon/translation", "deacon/translatoin"): (
        "4: experiments.deacon/translatoin: task 'translatoin' of deacon is not known; did you mean 'translation'?"
    ),
}


@pytest.mark.parametrize("change", MISTAKES, ids=lambda change: change[1])
def test_a_mistake_is_named_with_file_line_and_key(project, change):
    project.write_config("p", PROFILE)
    assert len(Runs("p").all()) == 7
    assert PROFILE.count(change[0]) == 1
    assert refusal(project, PROFILE.replace(*change)).startswith(f"p.yaml, line {MISTAKES[change]}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1\nc: 2\n", ", line 3: not valid YAML ("),
        ("a: 1\n\tb: 2\n", ", line 2: not valid YAML ("),
        ("a: \x07\n", ": not valid YAML (unacceptable character #x0007: "),
        ("", ", line 1: input should be a valid dictionary or instance of Profile, found None"),
        ("a: &a [*a]", ": not valid YAML ("),
        ("a: 1\nb: 2026-13-45\n", ": not valid YAML (month must be in 1..12"),
    ],
)
def test_a_file_that_is_no_profile_is_named(project, text, message):
    assert refusal(project, text).startswith(f"p.yaml{message}")


def test_a_file_that_cannot_be_read_is_named(project):
    folder = project.home / "config"
    project.write_config("other", PROFILE)
    (folder / "p.yaml").write_bytes(PROFILE.encode().replace(b"test", b"t\xe4st"))
    (folder / "q.yaml").mkdir()
    elsewhere = f"{project.home}/elsewhere/p.yaml"
    for profile, message in {
        "tniy": f"{folder}/tniy.yaml: no such file; did you mean 'tiny'?",
        elsewhere: f"{elsewhere}: no such file; known here: none",
        "p": f"{folder}/p.yaml: not UTF-8 text (byte offset 8)",
        "q": f"{folder}/q.yaml: cannot be read (Is a directory)",
    }.items():
        with exactly(message, ConfigError):
            Runs(profile)


def test_without_a_file_only_the_key_is_named():
    with exactly("train.epochs: input should be greater than or equal to 1, found 0", ConfigError):
        check(TrainConfig, {"epochs": 0}, ("train",))
    assert str(config_error((), "nothing")) == "nothing"


def test_lines_of_keys_and_list_entries(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a:\n  - x\n  -\n    b: 1\n    c: 2\n")
    source = Source(path)
    lines = {("a",): 1, ("a", 0): 2, ("a", 1, "c"): 5, ("a", 1, "zzz"): 4, ("a", 7): 1, ("zzz", "a"): 1, (): 1}
    assert {keys: source.place(keys) for keys in lines} == {k: f"{path}, line {n}: " for k, n in lines.items()}


def test_a_key_given_twice_is_refused_at_every_depth(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("a:\n  - {b: 1}\n  - c: 1\n    d: 2\n    c: 3\n", encoding="utf-8")
    with exactly(f"{path}, line 5: the key 'c' is given twice", ConfigError):
        Source(path)


def test_a_near_name_is_found_whatever_its_case():
    assert nearest("adamw", ["Adam", "AdamW"]) == "; did you mean 'AdamW'?"
