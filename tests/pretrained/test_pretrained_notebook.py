"""notebooks/pretrained.ipynb, without the encoder and the captions, and the copy executed with them."""

from pathlib import Path

import papermill
import pytest
from tracked import ROOT

from headdiv.core.files import read_json

NOTEBOOK = ROOT / "notebooks" / "pretrained.ipynb"
EXECUTED = ROOT / "results" / "pretrained" / "companions" / "pretrained.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_offline_without_the_encoder_and_the_captions(tmp_path):
    parameters = {"captions": str(tmp_path / "none"), "ranking_images": 2, "counts": [18]}
    papermill.execute_notebook(NOTEBOOK, tmp_path / "executed.ipynb", parameters, progress_bar=False)
    assert "STAND-IN" in outputs(tmp_path / "executed.ipynb")


def test_the_executed_copy_is_of_the_real_encoder_on_all_images():
    text = outputs(EXECUTED)
    assert "STAND-IN" not in text
    assert "{'ranking': '200 images', 'validation': '814 images', 'test': '1000 images'}" in text
    for result in ("68.7  67.0  70.4", "-0.5  -1.1  0.2", "-0.27 -0.47 -0.05"):  # as the notebook says
        assert result in text


def outputs(notebook: Path) -> str:
    """What the notebook's cells print and show, as text."""
    cells = read_json(notebook)["cells"]
    cell_outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return "\n".join(
        "".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in cell_outputs
    )
