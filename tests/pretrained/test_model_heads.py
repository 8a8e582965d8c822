"""`headdiv heads`: from a saved model and a text to a table and drawings; measures of texts of any length."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from attachable import model_of
from click.testing import CliRunner
from faulty import exactly

import headdiv
from headdiv.companion.command_line import cli
from headdiv.companion.report.model_heads import MEASURES
from headdiv.core.errors import DataError

TEXTS = [
    "The old dog sees a small cat.",
    "Two men look at a red house.",
    "A child plays near the water.",
    "No one.",
] * 2


def saved(kind, folder, **settings):
    tokenizer = headdiv.pretrained.small_tokenizer(TEXTS, 300)
    model_of(kind, words=300, **settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_batches_hide_what_a_masked_model_predicts_and_shift_what_a_decoder_writes(kind):
    tokenizer, model = headdiv.pretrained.small_tokenizer(TEXTS, 300), model_of(kind, words=300)
    plain = list(headdiv.pretrained.text_batches(model, tokenizer, TEXTS, size=3, labels=False))
    batches = list(headdiv.pretrained.text_batches(model, tokenizer, TEXTS, size=3))
    assert [len(batch["input_ids"]) for batch in batches] == [3, 3, 2]
    for batch, without in zip(batches, plain, strict=True):
        assert "labels" not in without
        ids, labels, counted = without["input_ids"], batch["labels"], batch["labels"] != -100
        assert torch.isfinite(model(**batch).loss)
        if kind == "bert":
            assert (batch["input_ids"][counted] == tokenizer.mask_token_id).all()
            assert torch.equal(batch["input_ids"][~counted], ids[~counted])
            assert counted.any(1).all()
        else:
            assert torch.equal(labels.masked_fill(~counted, 0), ids)
    if kind == "t5":
        assert torch.equal(batch["decoder_input_ids"][:, 1:][counted[:, 1:]], labels[:, :-1][counted[:, 1:]])
        with pytest.raises(DataError, match="found 1 targets for 8 texts"):
            next(headdiv.pretrained.text_batches(model, tokenizer, TEXTS, ["one"]))


@pytest.mark.parametrize("name", ["/some/folder", "./folder", "a/b/c", "folder/"])
def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("\n".join(TEXTS))
    found = CliRunner().invoke(cli, ["heads", name, "--text", "text"]).exception
    assert str(found) == f"{name}: no such folder; expected a model's, or its name on the hub"
    with exactly("folder: no such folder; expected a model's, or its name on the hub"):
        headdiv.pretrained.load(Path("folder"))


def test_the_command_writes_table_and_maps(tmp_path):
    saved("gpt2", tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(TEXTS) + "\n")
    arguments = ["heads", str(tmp_path / "model"), "--text", str(tmp_path / "text"), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.output.strip().endswith("heads.csv")
    table = pd.read_csv(tmp_path / "out" / "heads.csv", index_col=["module", "head"])
    assert list(table.columns) == list(MEASURES)
    assert len(table) == 8
    assert not table.isna().any().any()
    assert {path.stem for path in (tmp_path / "out").glob("*.svg")} == set(MEASURES)
    with pytest.raises(DataError, match="expected a model with a tokenizer, in a folder or on the hub"):
        CliRunner().invoke(cli, ["heads", str(tmp_path), *arguments[2:]], catch_exceptions=False)


SENTENCES = """
import resource, sys, torch
from headdiv.pretrained import attach, small_model
torch.set_num_threads(1)
heads = attach(small_model("bert", 500))
def batches(count):
    draw = torch.Generator().manual_seed(1)
    for _ in range(count // 20):
        yield {"input_ids": torch.randint(4, 500, (20, 24), generator=draw)}
for count in (1000, 10000):
    measured = heads.measures(batches(count))[0][1]
    assert measured.queries == 24 * count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text():
    found = subprocess.run([sys.executable, "-c", SENTENCES], capture_output=True, text=True, check=True).stdout
    thousand, ten_thousand = map(int, found.split())
    assert ten_thousand - thousand < 4 * 1024, found
