"""What configurations say of methods, without the methods themselves."""

import subprocess
import sys

from headdiv.methods.base import Method
from headdiv.methods.combined import Combined
from headdiv.methods.options import OPTIONS
from headdiv.methods.registry import METHODS


def test_options_are_checked_without_torch():
    code = (
        "import sys; from headdiv.methods.options import check_method; from headdiv.nn.sizes import ModelConfig; "
        "check_method({'name': 'combined', 'methods': [{'name': 'mixing'}, {'name': 'dpp', 'term': 'output'}]}, "
        "ModelConfig()); sys.exit(' '.join({'torch', 'numpy'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_method_has_the_options_of_its_name():
    assert {name: method.Options for name, method in METHODS.items()} == dict(OPTIONS)


def test_a_method_has_few_members_and_a_combination_combines_each():
    members = {name for name in vars(Method) if not name.startswith("_")}
    assert len(members) <= 14
    assert members - set(vars(Combined)) == set()
