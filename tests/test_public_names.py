"""The names that users import: there, found by completion, and without torch until one is used."""

import inspect
import subprocess
import sys

import pytest

import headdiv


def test_importing_headdiv_imports_no_torch():
    code = "import sys, headdiv, headdiv.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there_and_completes():
    for name in {*headdiv.__all__} - {"pretrained"}:
        found = getattr(headdiv, name)
        assert callable(found) or inspect.ismodule(found), name
    for name in headdiv.pretrained.__all__:
        assert callable(getattr(headdiv.pretrained, name)), name
    assert set(headdiv.__all__) <= set(dir(headdiv))
    with pytest.raises(AttributeError, match="trian"):
        headdiv.trian  # noqa: B018
