"""The registry of data sets: what it knows, and which entries it refuses."""

import re

import pytest
import yaml
from faulty import data_set

from headdiv.companion.data.public_sets import load_registry
from headdiv.core.errors import DataError


def test_every_file_is_shown_to_be_its_owners_and_names_of_prepared_corpora_stay():
    known = load_registry()
    assert all(file.authenticated for entry in known.values() for file in entry.files.values())
    assert (
        known["iwslt14"].files["de-en.tgz"].identity == "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
    )
    squad = known["squad"].files["dev-v1.1.json"]
    assert (squad.identity, squad.algorithm) == ("3e85deb501d4e538b6bc56f786231552", "sha256")


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (lambda e: e.update(colour="red"), "toy > colour", "Extra inputs are not permitted"),
        (lambda e: e["files"]["a.gz"].pop("sha256"), "toy > files > a.gz", "expected sha256 or md5"),
        (lambda e: e["files"]["a.gz"].update(pin=True), "a.gz", "or pin: true where no checksum is published"),
        (lambda e: e["files"]["a.gz"].update(sha256="abc"), "a.gz > sha256", "String should match pattern"),
        (lambda e: e["files"]["a.gz"].update(url="ftp://x"), "a.gz > url", "String should match pattern"),
        (lambda e: e["files"].update({"../b": e["files"]["a.gz"]}), "../b", "String should match pattern"),
        (lambda e: e["splits"]["train"].update(count=0), "train > count", "greater than 0"),
        (lambda e: e["splits"]["train"]["files"].update(de="b"), "toy", "split train names b, which is not"),
        (lambda e: e.pop("licence"), "toy > licence", "Field required"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(tmp_path, change, where, what):
    path = tmp_path / "sets.yaml"
    file = {"url": "https://example.org/a.gz", "sha256": "0" * 64}
    content = data_set({"a.gz": file}, {"train": (2, {"en": "a.gz"})})
    path.write_text(yaml.safe_dump({"toy": content}))
    assert load_registry(path)["toy"].splits["train"].count == 2
    change(content)
    path.write_text(yaml.safe_dump({"toy": content}))
    with pytest.raises(DataError) as caught:
        load_registry(path)
    assert str(caught.value).startswith(f"{path}, toy")
    assert where in str(caught.value)
    assert what in str(caught.value)


def test_registry_missing_or_not_yaml(tmp_path):
    path = tmp_path / "x.yaml"
    with pytest.raises(DataError, match=re.escape(f"{path}: no such file")):
        load_registry(path)
    path.write_text("a: [1\nb: }")
    with pytest.raises(DataError, match=re.escape(f"{path}: not valid YAML")):
        load_registry(path)
