"""The toy corpora at other sizes than the pinned ones (`tests/net/prepared.json`): the same for a seed and a number."""

import pytest
from faulty import exactly

from headdiv.companion.data.toy.corpora import articles, questions, translation, write_shards
from headdiv.core.errors import ConfigError


@pytest.mark.parametrize("make", [translation, articles, questions])
def test_a_seed_decides_and_held_out_text_does_not_depend_on_the_training_text(make):
    found = make(40, 10, 10, 1)
    assert {split: len(examples) for split, examples in found.items()} == {"train": 40, "valid": 10, "test": 10}
    assert found == make(40, 10, 10, 1) != make(40, 10, 10, 2)
    assert {name: make(80, 10, 10, 1)[name] for name in ("valid", "test")} == {n: found[n] for n in ("valid", "test")}


def test_a_document_of_each_source_needs_enough_documents(tmp_path):
    with exactly("data.examples: found 69 documents of generated text, expected at least 70", ConfigError):
        write_shards(tmp_path, 69, 1)
