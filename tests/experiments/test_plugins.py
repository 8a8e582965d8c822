"""Files of the user's own, which register methods."""

import importlib
import sys
from hashlib import sha256

import pytest

from headdiv.companion.experiments.plugins import load_plugin
from headdiv.companion.experiments.profiles import Runs
from headdiv.core.errors import ConfigError
from headdiv.methods import METHODS
from headdiv.methods.registry import code_of


@pytest.mark.usefixtures("own_methods")
def test_two_plugins_of_one_name_do_not_replace_each_other(tmp_path):
    files = [tmp_path / folder / "mine.py" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text("import headdiv\n\n@headdiv.register\nclass Mine(headdiv.Method):\n    name = 'mine'\n")
    module = load_plugin(files[0])
    assert load_plugin(files[0]) is module
    with pytest.raises(ConfigError, match=r"^'mine' cannot .* is taken by headdiv_plugin_mine_\w+\.Mine$"):
        load_plugin(files[1])
    assert METHODS["mine"] is module.Mine


def test_a_plugins_code_is_what_was_loaded_of_it(tmp_path, caplog):
    file, codes = tmp_path / "mine.py", []
    for text in ("class Mine: ...\n", "class Mine: ...  # changed\n"):
        file.write_text(text)
        module = load_plugin(file)
        assert load_plugin(file) is module
        assert not caplog.messages
        file.write_text(f"{text}# later, which nobody has read\n")
        codes.append(code_of(module.Mine))
        for _ in range(2):
            assert load_plugin(file) is module
        (message,) = caplog.messages
        assert message.startswith(f"plugin {file}: has changed since it was loaded")
        caplog.clear()
        del sys.modules[module.__name__]
    assert len({*codes}) == 2
    assert code_of(METHODS["deacon"]) is None


@pytest.mark.usefixtures("own_methods")
def test_an_imported_methods_code_is_its_file_as_it_was_imported(tmp_path, monkeypatch):
    """In a notebook the file may be edited before the first run of the method."""
    text = "import headdiv\n\nclass Mine(headdiv.Method):\n    name = 'imported'\n\nheaddiv.register(Mine)\n"
    (tmp_path / "imported_method.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("imported_method")
    (tmp_path / "imported_method.py").write_text(f"{text}# edited\n")
    assert code_of(module.Mine) == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("code", ["import sys; sys.exit(0)", "[][1]", "def ("])
def test_a_plugin_that_fails_is_named_with_the_profiles_line(project, code):
    file = project.home / "bad.py"
    file.write_text(code)
    project.write_profile("tiny", {"plugins": ["bad.py"]})
    for _ in range(2):  # nothing of it stays
        with pytest.raises(ConfigError, match=rf"tiny\.yaml, line \d+: plugins\.0: plugin {file}: \w+ \("):
            Runs("tiny")
