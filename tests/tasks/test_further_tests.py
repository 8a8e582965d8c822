"""Further test sets that a translation run is scored on, which decide no training."""

import pytest
from conftest import EXPERIMENT
from faulty import put_pairs

from headdiv.companion.data.corpora.seq2seq import load_translation
from headdiv.companion.experiments.checking import rescore
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import record
from headdiv.companion.experiments.run_result import read_outputs
from headdiv.companion.experiments.running import train
from headdiv.companion.tasks import TASKS, seq2seq
from headdiv.companion.tasks.run_config import difference, run_name
from headdiv.core.errors import ConfigError, DataError

TASK = TASKS["translation"]
SIZES = {"train": 40, "valid": 4, "test": 5, "other": 6}


@pytest.fixture
def mine(project):
    """Makes the configuration of a run on one's own files, with a further split "other"."""
    splits = {}
    for shift, (name, count) in enumerate(SIZES.items()):
        numbers = [((i + shift) % 7, (i * shift) % 5) for i in range(count)]
        splits[name] = [(f"Dog {one} sees {other}.", f"Hund {one} sieht {other}.") for one, other in numbers]
    data = {"name": "mine", "files": put_pairs(project.home, splits), "held_out": 500, "examples": 40}
    return lambda **more: project.config(data=data | more, train={"epochs": 3}, model={"dropout": 0.0})


@pytest.mark.parametrize("merges", [None, 10])
def test_a_further_set_is_scored_as_if_it_were_the_test_set(mine, merges):
    run = train(mine(merges=merges, more_tests=["other"]))
    metrics = evaluate(run)
    alone = train(mine(merges=merges, test="other"))
    expected = evaluate(alone)
    for name in ("bleu", "chrf"):
        found = metrics["scores"][f"{name}_other"]
        assert found["value"] == expected["scores"][name]["value"]
        assert found["signature"] == expected["scores"][name]["signature"] + "; other"
    path = record(metrics, "tiny")
    stored = read_outputs(path)
    assert stored.more == {"other": TASK.outputs(alone)}
    assert len(stored.test) == SIZES["test"]
    assert TASK.score_label("bleu_other") == "BLEU on other"
    assert TASK.score_label("chrf_best") == "chrF of the best epoch"


def test_training_corpus_and_name_do_not_depend_on_it(mine, project, monkeypatch):
    more = mine(more_tests=["other"])
    plain = mine(files={name: of for name, of in more.data.files.items() if name != "other"})
    assert plain.hash == more.hash
    assert run_name(plain) == run_name(more)
    assert "more_tests" not in plain.model_dump(mode="json")["data"]
    first = train(plain)
    load_translation(more.data)
    assert len([path for path in (project.home / "data/prepared").glob("mine-*") if path.is_dir()]) == 1
    evaluate(first)
    sizes, translate = [], seq2seq.translate

    def counted(model, sources, *rest):
        sizes.extend([len(sources)] if len(sources) > 1 else [])
        return translate(model, sources, *rest)

    monkeypatch.setattr(seq2seq, "translate", counted)
    metrics = evaluate(train(more))  # not trained again, and only the further set is searched
    assert sizes == [SIZES["other"]]
    (project.home / "other.de").write_text("Hund 1 sieht 2.\n" * SIZES["other"])
    again = evaluate(train(more))
    assert sizes == [SIZES["other"]] * 2
    assert again["scores"]["bleu_other"] != metrics["scores"]["bleu_other"]
    assert again["scores"]["bleu"] == metrics["scores"]["bleu"]
    sections = [config.model_dump(mode="json") for config in (plain, more)]
    differs = difference(*sections, ["data"], {"data.files"})
    assert differs.startswith("data.more_tests is ")  # a stored run is outdated


def test_a_further_set_that_has_changed_is_not_scored_anew(mine, project):
    config = mine(more_tests=["other"])
    sections = {key: config.model_dump(mode="json")[key] for key in ("data", "train", "model")}
    project.write_profile("tiny", {"seeds": [1]}, variants=["baseline"], **sections)
    path = record(evaluate(train(config)), "tiny")
    assert rescore("tiny") == {f"{EXPERIMENT} baseline seed 1": {}}
    before = path.read_bytes()
    (project.home / "other.de").write_text("Hund 1 sieht 2.\n" * SIZES["other"])
    with pytest.raises(DataError, match=r"further test set other-\w+, expected other-\w+ by .* makes it anew"):
        rescore("tiny")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("othr", r"more_tests\.0: 'othr' is not known; there are: .*other"),
        ("half", r"more_tests\.0: 'half' has no file for one of the languages; found en"),
        ("best", r"more_tests\.0: found 'best', but bleu_best is another score's name"),
        ("tokens", r"more_tests\.0: found 'tokens', but bleu_tokens is another score's name"),
    ],
)
def test_a_set_that_cannot_be_scored_is_named(project, split, message):
    files = {name: {"en": "a.en", "de": "a.de"} for name in [*SIZES, "best", "tokens"]} | {"half": {"en": "a.en"}}
    data = {"name": "mine", "files": files, "examples": 40, "held_out": 500, "more_tests": [split]}
    name = project.write_profile("wrong", data=data)
    with pytest.raises(ConfigError, match=rf"wrong\.yaml, line \d+: .*{message}"):
        Runs(name)


def test_generated_text_has_none_and_an_empty_set_is_named(mine, project):
    with pytest.raises(ConfigError, match=r"data\.more_tests: .* generated text .*has no other splits"):
        project.config(data={"more_tests": ["other"]})
    run = train(mine(more_tests=["other"]))
    for side in ("en", "de"):
        (project.home / f"other.{side}").write_text("")
    with pytest.raises(DataError, match="other"):
        TASK.further_tests(run)
