"""What names the code of a class from outside headdiv."""

import os
import subprocess
import sys

import pytest

from headdiv.core.code import code_of

IMPORTS = """
from dataclasses import dataclass, field
from functools import cache, cached_property, partial, wraps
from types import SimpleNamespace
import numpy as np
import torch
from torch import Tensor, nn
from headdiv.methods.base import Method
from headdiv.methods.disagreement import Disagreement
from headdiv.methods.orthogonality import Orthogonality

def cosine(): return 1

def distance(): return 2

"""
# One line of a class, or what stands in front of it, with a gap, and two values for it.
IN_CLASS = {
    "constant": ("x = #", "1", "1.0"),
    "groups": ("x = #", "[[0, 1], [2]]", "[[0], [1, 2]]"),
    "sets": ("x = [#]", "{1, 2}, {3}", "{1}, {2, 3}"),
    "one of two functions": ("x, y = [cosine, distance], #", "cosine", "distance"),
    "function of another module": ("x = nn.functional.#", "relu", "gelu"),
    "class of another module": ("x = nn.#", "ReLU", "GELU"),
    "tensor": ("x = torch.tensor([1, #])", "2.0", "3.0"),
    "narrow tensor": ("x = torch.tensor(#, dtype=torch.bfloat16)", "2.0", "3.0"),
    "sparse tensor": ("x = torch.tensor([0, #]).to_sparse()", "2.0", "3.0"),
    "array": ("x = np.array([1, #])", "2.0", "3.0"),
    "kind of number": ("x = torch.#", "float32", "bfloat16"),
    "partial": ("x = partial(nn.functional.leaky_relu, negative_slope=#)", "0.1", "0.2"),
    "lambda": ("x = lambda self: #", "1", "2"),
    "static method": ("@staticmethod\n    def f(): return #", "1", "2"),
    "special class method": ("@classmethod\n    def __get_validators__(cls): return #", "1", "2"),
    "setter": ("x = property(lambda self: 0, lambda self, value: #)", "1", "2"),
    "cached property": ("@cached_property\n    def x(self): return #", "1", "2"),
    "decorator of another module": ("@torch.#()\n    def f(self): return 1", "no_grad", "enable_grad"),
    "keyword default": ("def f(self, *, x=0, y=0): return #", "x", "y"),
    "options": ("class Options(Method.Options):\n        @property\n        def x(self): return #", "1", "2"),
}
IN_FRONT = {  # of x, which a method of the class names
    "helper": ("def x(): return #", "1", "2"),
    "cached helper": ("@cache\ndef x(): return #", "1", "2"),
    "closure": ("def make(y): return lambda: y\n\nx = make(#)", "1", "2"),
    "decorator": (
        "def times(y):\n    return lambda f: wraps(f)(lambda: y * f())\n\n@times(#)\ndef x(): return 1", "1", "2"
    ),
    "namespace": ("x = SimpleNamespace(y=#)", "1", "2"),
    "dataclass": ("@dataclass\nclass X:\n    y: int\n\nx = X(#)", "1", "2"),
    "factory": ("@dataclass\nclass x:\n    y: list = field(default_factory=lambda: [#])", "1", "2"),
    "bound method": ("class X:\n    def __init__(self, y): self.y = y\n    def f(self): return self.y\n\nx = X(#).f",
                     "1", "2"),
    "module": ("import # as x", "json", "math"),
}  # fmt: skip
USER = "class Own(Method):\n    def f(self): return x\n"
CASES = {
    "base": (f"class Own(#):\n    '''{'A method.'}'''\n", "Disagreement", "Orthogonality"),
    **{what: (f"class Own(Method):\n    {line}\n", *values) for what, (line, *values) in IN_CLASS.items()},
    **{what: (f"{front}\n\n{USER}", *values) for what, (front, *values) in IN_FRONT.items()},
}


def defined(code):
    """What a notebook has after a cell with this code."""
    exec(IMPORTS + code, notebook := {"__name__": "notebook"})
    return notebook


@pytest.mark.parametrize(("code", "one", "other"), CASES.values(), ids=CASES)
def test_a_class_of_a_notebook_is_another_when_anything_of_it_changes(code, one, other):
    first, again, changed = (code_of(defined(code.replace("#", value))["Own"]) for value in (one, one, other))
    assert first == again
    assert first != changed


def test_cells_that_run_again_count_and_other_variables_do_not():
    notebook = defined("x = 1\n\nclass Own(Method):\n    def f(self, records): return x * records.weight\n")
    found = []
    for cell in ("", "weight, records = 3, []", "x = 2"):
        exec(cell, notebook)
        found.append(code_of(notebook["Own"]))
    assert found[0] == found[1] != found[2]


def test_the_code_of_a_class_has_one_name_in_all_processes():
    body = "    kinds = {Tensor, cosine, 'a', 'b'}\n    source, unlike = torch.Generator(), object()\n"
    program = (
        f"{IMPORTS}class Own(Method):\n{body}    def f(self, x): return isinstance(x, Tensor) or 'a' in {{'a', 'b'}}\n"
    )
    program += "\nfrom headdiv.core.code import code_of\nprint(code_of(Own))\n"
    names = set()
    for seed in "123":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
        names.add(done.stdout)
    assert len(names) == 1
