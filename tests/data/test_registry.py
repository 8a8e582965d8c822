"""The registry of data sets: what it knows, and which entries it refuses."""

import re

import pytest
import yaml
from faulty import data_set

from headdiv.companion.data.public_sets import load_registry
from headdiv.core.errors import ConfigError


def test_names_of_prepared_corpora_stay():
    known = load_registry()
    assert (
        known["iwslt14"].files["de-en.tgz"].identity == "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
    )
    squad = known["squad"].files["dev-v1.1.json"]
    assert squad.identity == "3e85deb501d4e538b6bc56f786231552"
    assert squad.checksum.startswith("sha256:")


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (lambda e: e.update(colour="red"), "toy.colour", "unknown key"),
        (lambda e: e["files"]["a.gz"].pop("sha256"), "toy.files.a.gz.sha256", "expected it or md5"),
        (lambda e: e["files"]["a.gz"].update(pin=True), "toy.files.a.gz.sha256", "or pin: true"),
        (lambda e: e["files"]["a.gz"].update(url="ftp://x"), "toy.files.a.gz.url", "pattern"),
        (
            lambda e: e["files"].update(b={"url": "http://x.org/b", "md5": "0" * 32}),
            "toy.files.b.url",
            "expected https",
        ),
        (lambda e: e["files"].update({"../b": e["files"]["a.gz"]}), "toy.files.../b", "pattern"),
        (lambda e: e["splits"]["train"]["files"].update(de="b"), "toy.splits.train", "b, which is not among the files"),
    ],
)
def test_a_wrong_entry_is_refused_by_file_line_and_key(tmp_path, change, where, what):
    path = tmp_path / "sets.yaml"
    content = data_set(
        {"a.gz": {"url": "https://example.org/a.gz", "sha256": "0" * 64}}, {"train": (2, {"en": "a.gz"})}
    )
    path.write_text(yaml.safe_dump({"toy": content}))
    assert load_registry(path)["toy"].splits["train"].count == 2
    change(content)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump({"toy": content}))
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(wrong))}, line \d+: {re.escape(where)}.*{what}"):
        load_registry(wrong)
