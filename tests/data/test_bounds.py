"""What a corpus cannot be made from is named before anything is trained."""

import pytest
from faulty import put_pairs

from headdiv.companion.data.corpora.lm import load_lm
from headdiv.companion.data.corpora.seq2seq import load_translation
from headdiv.companion.experiments.running import train
from headdiv.companion.tasks.lm import LMData
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import ConfigError, DataError


def pairs(folder, train, **options):
    """A corpus of one's own: these training lines on either side, two held-out pairs."""
    splits = {"train": train, "valid": ["a b"] * 2, "test": ["a b"] * 2}
    files = put_pairs(folder, {split: [(line, line) for line in lines] for split, lines in splits.items()})
    return TranslationData(**{"name": "mine", "files": files, "min_frequency": 1} | options)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a b"] * 3, {"examples": 4}, "data.examples: 4 asked for, but the training text has 3"),
        (["a b"] * 3, {"valid_every": 2, "examples": 3}, "data.examples: 3 asked for, but the training text has 2"),
        (["ab"] * 3, {"merges": 2}, "data.merges: 2 asked for, but the training text has pairs for 1"),
        (["a b"] * 3, {"min_frequency": 4}, "data.min_frequency: no word of the training text occurs 4 times; every"),
        (["a b", "\x7f\x85"], {}, "{folder}/train.en, line 2: the sentence is empty"),
    ],
)
def test_parallel_text_that_cannot_be_used(folder, lines, options, message):
    with pytest.raises(DataError) as found:
        load_translation(pairs(folder, lines, **options))
    assert str(found.value).startswith(message.replace("{folder}", str(folder)))


def test_a_batch_holds_the_longest_example(project):
    with pytest.raises(ConfigError, match=r"^train.tokens_per_batch: 3 is below the \d+ tokens of the longest"):
        train(project.config(train={"tokens_per_batch": 3}))


def test_held_out_text_is_as_long_as_asked_for(folder):
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("The lobster sings of the lobster that sings.\n" * 9, encoding="utf-8")
    files = {split: [f"{split}.txt"] for split in ("train", "valid", "test")}
    options = {"name": "mine", "files": files, "vocabulary_size": 270, "context": 8, "epoch_tokens": 9}
    with pytest.raises(DataError, match=r"^data.held_out_tokens: 100,000 asked for of the text, but valid.txt has"):
        load_lm(LMData(**options, held_out_tokens=100_000))
    toy = load_lm(
        LMData(name="toy", examples=80, held_out=3, vocabulary_size=300, epoch_tokens=9, held_out_tokens=40000)
    )
    assert 0 < toy.valid.targets < 40000  # as many documents as are generated
    with pytest.raises(ValueError, match=r"context\n.*less than or equal to 65536"):
        LMData(**options | {"context": 10**8})
    with pytest.raises(ValueError, match=r"examples: files are read as a stream"):
        LMData(**options, examples=3)
