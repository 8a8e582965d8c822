"""What a configuration may hold, task by task, and the hash that names a run."""

import pytest
from faulty import exactly

from headdiv.companion.models.sizes import DecodeConfig, LMConfig, ModelConfig
from headdiv.companion.tasks.run_config import RunConfig, difference
from headdiv.companion.tasks.summarisation import SummarisationData
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check

OWN = {split: {"en": f"{split}.en", "de": f"{split}.de"} for split in ("train", "valid", "test")}


def run(**changes):
    settings = {
        "paper": "deacon",
        "task": "translation",
        "kind": "translation",
        "variant": "direct-8",
        "data": TranslationData(name="toy", examples=60),
        "model": ModelConfig(d_model=16),
        "method": {"name": "deacon", "architecture": "direct", "m": 8},
        "train": {"epochs": 2},
        "seed": 1,
    }
    return RunConfig.model_validate(settings | changes)


def test_what_changes_training_and_nothing_else_changes_the_hash():
    for same in (
        {"variant": "another-name", "task": "another-name", "decode": DecodeConfig(beam=1)},
        {"train": {"epochs": 2, "checkpoint_seconds": 1.0, "tokens_per_batch": 1800}},  # the last is the default
    ):
        assert run(**same).hash == run().hash
    changes = [
        {},
        {"seed": 2},
        {"threads": 2},
        {"kind": "other"},
        {"data": TranslationData(name="toy", examples=61)},
        {"data": TranslationData(name="own", examples=60, files=OWN)},
        {"data": TranslationData(name="own", examples=60, files=OWN | {"test": OWN["valid"]})},
        {"data": SummarisationData(name="toy", examples=60)},
        {"model": ModelConfig(d_model=16, activation="gelu")},
        {"model": LMConfig(d_model=16)},
        {"train": {"epochs": 3}},
        {"method": {"name": "baseline"}},
        {"method": {"name": "deacon", "architecture": "direct", "m": 7}},
    ]
    assert len({run(**change).hash for change in changes}) == len(changes)


def test_a_choice_of_moses_rules_beside_another_tokenizer_is_named():
    with exactly("data.split_dashes: it is a choice of Moses rules, and the tokenizer is 'spacy'", ConfigError):
        check(TranslationData, {"name": "a", "tokenizer": "spacy", "split_dashes": False}, ("data",))


# ---- optimisers, and options that came later


MISTAKES = [
    ({"optimiser": "SDG"}, "train.optimiser.name: unknown optimiser 'SDG'; did you mean 'SGD'?"),
    ({"optimiser": {"name": "SGD", "momentun": 1}}, "train.optimiser.SGD: SGD.__init__() got an unexpected keyword"),
    ({"optimiser": "SGD", "weight_decay": 0.1}, "train.weight_decay: is an option of AdamW; expected"),
    ({"optimiser": {"name": "AdamW", "eps": 1e-8}, "epsilon": 1e-7}, "train.epsilon: stands under 'optimiser' too"),
]


def test_a_mistake_in_an_optimiser_is_named(project):
    for settings, message in MISTAKES:
        with pytest.raises(ConfigError) as error:
            project.config(train=settings)
        assert str(error.value).partition("deacon/translation.")[2].startswith(message)


def test_the_default_optimiser_leaves_no_trace_in_a_configuration(project):
    """What was trained before the key existed keeps its name."""
    plain = project.config()
    for setting in ("AdamW", {"name": "AdamW"}, None):
        config = project.config(train={"optimiser": setting})
        assert (config, config.hash) == (plain, plain.hash)
        assert "optimiser" not in config.model_dump()["train"]
    other = project.config(train={"optimiser": {"name": "SGD", "momentum": 0.9}})
    assert other.hash != plain.hash
    stored = [config.model_dump(mode="json") for config in (plain, other)]
    for config, other_config in (stored, stored[::-1]):
        assert difference(config, other_config, ["data", "train"]).startswith("train.optimiser is ")
    assert other.model_dump()["train"]["optimiser"] == {"name": "SGD", "momentum": 0.9}


def test_options_that_are_stored_only_where_they_are_not_the_default_make_runs_different(project):
    plain, slow = project.config(), project.config(train={"accumulate": 4, "activation_checkpointing": True})
    stored = [config.model_dump(mode="json") for config in (plain, slow)]
    assert difference(*stored, ["train"]) == "train.accumulate is 'left at its default', but 4"
    assert difference(*stored[::-1], ["train"]) == "train.accumulate is 4, but 'left at its default'"
    method = {"name": "deacon", "m": 8}
    rarely = {"method": {**method, "update_every": 16}}
    assert difference(rarely, {"method": method}, ["method"]).startswith("method.update_every is 16")
    assert difference({"method": method}, {"method": {**method, "xi": 0.8}}, ["method"]) is None  # came later
    assert "patience" not in stored[0]["train"]
    assert project.config(train={"patience": 3}).hash != plain.hash
