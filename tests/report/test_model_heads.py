"""`headdiv heads`: from a saved model and a text to a table and drawings."""

import pandas as pd
import pytest
from attachable import model_of
from click.testing import CliRunner

import headdiv
from headdiv.companion.command_line import cli
from headdiv.core.errors import DataError

TEXTS = [
    "The old dog sees a small cat.",
    "Two men look at a red house.",
    "A child plays near the water.",
    "No one.",
] * 2


MEASURES = ["importance", "confidence", "entropy", "cosine", "l2", "correlation", "cka", "js"]


def test_the_command_writes_table_and_maps(tmp_path):
    model_of("gpt2", vocab_size=300).save_pretrained(tmp_path / "model")
    headdiv.pretrained.small_tokenizer(TEXTS, 300).save_pretrained(tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(TEXTS) + "\n")
    arguments = ["heads", str(tmp_path / "model"), "--text", str(tmp_path / "text"), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.output.strip().endswith("heads.csv")
    table = pd.read_csv(tmp_path / "out" / "heads.csv", index_col=["module", "head"])
    assert list(table.columns) == MEASURES
    assert len(table) == 8
    assert not table.isna().any().any()
    assert {path.stem for path in (tmp_path / "out").glob("*.svg")} == set(MEASURES)
    with pytest.raises(DataError, match="expected a model with a tokenizer, in a folder or on the hub"):
        CliRunner().invoke(cli, ["heads", str(tmp_path), *arguments[2:]], catch_exceptions=False)
