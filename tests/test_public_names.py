"""The names that users import: there, found by completion, and quick to import."""

import inspect
import subprocess
import sys

import pytest

import headdiv


def test_importing_headdiv_imports_little_besides_torch():
    heavy = {"transformers", "pandas", "matplotlib", "lightning", "headdiv.companion.report.tables"}
    code = f"import sys, headdiv, headdiv.__main__, headdiv.companion; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_every_public_name_is_there_and_completes():
    for name in {*headdiv.__all__} - {"pretrained"}:
        found = getattr(headdiv, name)
        assert callable(found) or inspect.ismodule(found), name
    for name in headdiv.pretrained.__all__:
        assert callable(getattr(headdiv.pretrained, name)), name
    assert set(headdiv.__all__) <= set(dir(headdiv))
    with pytest.raises(AttributeError, match="trian"):
        headdiv.trian  # noqa: B018
