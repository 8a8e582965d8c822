"""What names the code of a class from outside headdiv."""

import linecache
import runpy

import pytest

from headdiv.core.errors import ConfigError
from headdiv.methods.registry import code_of

IMPORTS = "from headdiv.methods.base import Method\nfrom headdiv.methods.losses import Orthogonality\n"
CASES = {
    "constant": ("class Own(Method):\n    x = #", "1", "1.0"),
    "function": ("class Own(Method):\n    def f(self): return #", "1", "2"),
    "base of headdiv": ("class Own(#):\n    pass", "Method", "Orthogonality"),
    "base in the notebook": ("class Base(Method):\n    x = #\n\nclass Own(Base):\n    pass", "1", "2"),
    "options": ("class Own(Method):\n    class Options(Method.Options):\n        x: int = #", "1", "2"),
}


def defined(code, cell):
    """What a notebook has after a cell with this code, which is kept as IPython keeps it."""
    name = f"<cell {cell}>"
    linecache.cache[name] = (len(code), None, (IMPORTS + code).splitlines(keepends=True), name)
    exec(compile(IMPORTS + code, name, "exec"), notebook := {"__name__": "notebook"})
    return notebook["Own"]


@pytest.fixture(autouse=True)
def cells(monkeypatch):
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))


@pytest.mark.parametrize(("code", "one", "other"), CASES.values(), ids=CASES)
def test_a_class_of_a_notebook_is_another_when_its_source_changes(code, one, other):
    first = code_of(defined(code.replace("#", one), 1))
    assert first == code_of(defined(code.replace("#", one) + "  # a comment", 2))
    assert first != code_of(defined(code.replace("#", other), 3))


def test_a_class_of_a_script_is_another_when_its_source_changes(tmp_path):
    script, codes = tmp_path / "script.py", set()
    for value in (1, 2):
        own = f"class Own(Method):\n    x = {value}  # a comment\n"
        script.write_text(f"{IMPORTS}from headdiv.methods.registry import code_of\n\n{own}\ncode = code_of(Own)\n")
        codes.add(runpy.run_path(str(script), run_name="__main__")["code"])
    assert len(codes) == 2


def test_a_class_without_source_is_refused_in_a_sentence():
    exec("class Own: pass", notebook := {"__name__": "notebook"})
    with pytest.raises(ConfigError, match="Own: its source is not found"):
        code_of(notebook["Own"])
