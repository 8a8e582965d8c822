"""What a type checker says of the library: nothing of right code, at its strictest, and where a mistake is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headdiv

USER = Path(__file__).with_name("user.py")

MISTAKES = """\
import headdiv

headdiv.MultiheadAttention("64", batchfirst=True)
headdiv.insrt
headdiv.MultiheadAttention("64", 8)
headdiv.make_method({"name": "deacon", "m": 8}).output_stages
"""


@pytest.mark.slow
def test_pyright_takes_a_users_script_and_finds_its_mistakes(tmp_path):
    (tmp_path / "user.py").write_text(USER.read_text())
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    library = str(Path(headdiv.__file__).parents[1])
    settings = {"typeCheckingMode": "strict", "extraPaths": [library], "reportUnusedExpression": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", tmp_path]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    errors = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    assert {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors} == {
        ("mistakes.py", line) for line in (3, 4, 5, 6)
    }, errors
    assert any("batchfirst" in one["message"] for one in errors)
