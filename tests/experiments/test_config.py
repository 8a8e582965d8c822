"""What a configuration may hold, task by task, and the hash that names a run."""

import pytest
from faulty import exactly

import headdiv.companion.tasks.run_config as module
from headdiv.companion.data.data_config import SummarisationData, TranslationData
from headdiv.companion.tasks.qa import SpanConfig
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check
from headdiv.nn.sizes import DecodeConfig, LMConfig, ModelConfig

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


@pytest.mark.parametrize(
    "same",
    [
        {"variant": "another-name"},
        {"task": "another-name"},
        {"decode": DecodeConfig(beam=1)},
        {"train": {"epochs": 2, "checkpoint_seconds": 1.0}},
        {"train": {"epochs": 2, "tokens_per_batch": 1800}},  # a default, spelled out
    ],
)
def test_what_does_not_change_training_does_not_change_the_hash(same):
    assert run(**same).hash == run().hash


def test_what_changes_training_changes_the_hash():
    changes = [
        {},
        {"seed": 2},
        {"threads": 2},
        {"kind": "other"},
        {"data": TranslationData(name="toy", examples=61)},
        {"data": TranslationData(name="toy", examples=60, strict=False)},
        {"data": TranslationData(name="own", examples=60, files=OWN)},
        {"data": TranslationData(name="own", examples=60, files=OWN | {"test": OWN["valid"]})},
        {"data": SummarisationData(name="toy", examples=60)},
        {"data": SummarisationData(name="toy", examples=60, document_words=50)},
        {"model": ModelConfig(d_model=32)},
        {"model": ModelConfig(d_model=16, activation="gelu")},
        {"model": LMConfig(d_model=16)},
        {"train": {"epochs": 3}},
        {"train": {"epochs": 2, "batching": "bucketed"}},
        {"method": {"name": "baseline"}},
        {"method": {"name": "deacon", "architecture": "direct", "m": 7}},
    ]
    assert len({run(**change).hash for change in changes}) == len(changes)


def test_a_change_of_the_code_that_changes_results_changes_the_hash(monkeypatch):
    before = run().hash
    monkeypatch.setattr(module, "RECIPE", 1000)
    assert run().hash != before


def test_what_a_task_adds_to_its_data_is_written_out():
    """The fields are typed by what all tasks share; nothing of a task's own may be lost."""
    data = TranslationData(name="own", files=OWN, source="fr")
    settings = run(data=data, model=LMConfig(d_model=16), decode=SpanConfig(max_answer_words=3)).model_dump(mode="json")
    assert settings["data"]["source"] == "fr"
    assert settings["data"]["files"] == OWN
    assert settings["model"]["layers"] == 24
    assert settings["decode"] == {"max_answer_words": 3}


def test_a_choice_of_moses_rules_beside_another_tokenizer_is_named():
    with exactly("data.split_dashes: it is a choice of Moses rules, and the tokenizer is 'spacy'", ConfigError):
        check(TranslationData, {"name": "a", "tokenizer": "spacy", "split_dashes": False}, ("data",))
