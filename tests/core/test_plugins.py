"""Registries that files of the user's own add to."""

import pytest

from headdiv.core import registry
from headdiv.core.errors import ConfigError


def test_two_plugins_of_one_name_do_not_replace_each_other(tmp_path, monkeypatch):
    known = registry.Registry("headdiv.nothing", {})
    monkeypatch.setattr(registry, "known", known, raising=False)
    files = [tmp_path / folder / "mine.py" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_text("from headdiv.core.registry import known\n\nclass Mine: ...\n\nknown.add('mine', Mine)\n")
    module = registry.load_plugin(files[0])
    assert registry.load_plugin(files[0]) is module
    taken = r"^'mine' cannot be registered in headdiv.nothing: the name is taken by headdiv_plugin_mine_\w+\.Mine$"
    with pytest.raises(ConfigError, match=taken):
        registry.load_plugin(files[1])
    assert known["mine"] is module.Mine
