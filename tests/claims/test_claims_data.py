"""The papers' claims as data: their form, what comes from the tables, and the mistakes a file can have."""

import pytest
import yaml

from headdiv.companion.experiments.claims import files as claims_data
from headdiv.companion.experiments.claims.files import claims_of, load_claims, papers_with_claims
from headdiv.companion.experiments.papers import FOLDER, load_paper
from headdiv.core.errors import ConfigError

PAPERS = ["deacon", "dpp", "homeostasis", "mhr", "moa"]
NUMBER = "expected a whole number, one with decimals in quotes ('2.10'), or true for a relation"
REFUSED = {  # a mistake in the file, and the sentence about it
    "verdict: follows": "unknown key; known here: also, cause, kind, note, sign, unit, value, working",
    "value: 2.1": f"{NUMBER}, found 2.1",
    "value: about 2": f"{NUMBER}, found 'about 2'",
    "value: false": f"{NUMBER}, found False",
    "kind: table": "input should be 'parameter count', 'score', 'cost', 'arithmetic' or 'setting', found 'table'",
    "sign: ~": "input should be '=', 'about', '<', '<=', '>' or '>=', found None",
    "value: true": "'%' with the value True; a relation, and no number, is true",
    "unit: relation": "'relation' with the value 2; a relation, and no number, is true",
}


@pytest.fixture
def write_claims(tmp_path, monkeypatch):
    """Write deacon.yaml into a folder of claims of the test's own."""
    monkeypatch.setattr(claims_data, "CLAIMS", tmp_path)
    load_claims.cache_clear()

    def write(content):
        path = tmp_path / "deacon.yaml"
        path.write_text(
            content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        )
        return path

    yield write
    load_claims.cache_clear()


def test_every_paper_has_its_claims():
    known = {path.stem for path in FOLDER.glob("*.yaml")}
    assert papers_with_claims() == PAPERS == sorted(known - {"headtohead"})  # which is the project's own


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_whole_and_distinguished_by_their_places(paper):
    claims = claims_of(paper)
    places = [claim.place for claim in claims]
    assert len(set(places)) == len(places)
    assert all(claim.unit for claim in claims)
    parts = ("Table", "§", "Abstract", "The code's README", "Results", "Dataset", "Hyper-parameters")
    assert [place for place in places if not place.startswith(parts)] == []
    assert all((claim.value is True) == (claim.unit == "relation") for claim in claims)
    assert all(claim.working for claim in claims if claim.value is True)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_number_of_the_tables_is_a_claim(paper):
    claims, known = claims_of(paper), load_paper(paper)
    rows = [row.reported for task in known.tasks.values() for row in task.variants.values()]
    rows += [row for table in known.tables.values() for row in table.rows.values()]
    tables = [claim.value for claim in claims if claim.at[0] == "workings"]
    assert sorted(tables) == sorted(value for row in rows for value in row.values())


@pytest.mark.parametrize(
    ("place", "value", "unit", "kind", "working"),
    [
        ("Table 3, Direct-8, BLEU", 28.9, "BLEU", "score", "ours.translation.direct_8.bleu"),
        ("Table 3, Direct-8, Parameters", 5373616, "parameters", "parameter count", "params.translation.direct_8"),
        ("Table 3, Direct-8, Parameters of base", 100.07, "%", "arithmetic",
         "100 * translation.direct_8.parameters / translation.baseline.parameters"),
        ("Table 6, Direct-16, Inference time", 42, "ms", "cost", "ours.lm.direct_16.inference_ms"),
        ("Table 2, C4, Validation tokens", 48.06, "millions", "setting", None),
        ("Table 2, C4, Share of training tokens", 15, "%", "arithmetic",
         "100 * sources.C4.train_billions / sum(sources.all.train_billions)"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_number_in_a_table(place, value, unit, kind, working):
    (claim,) = [claim for claim in claims_of("deacon") if claim.place == place]
    assert (claim.value, claim.unit, claim.kind) == (value, unit, kind)
    assert (claim.working.text if claim.working else None) == working


@pytest.mark.parametrize(
    ("paper", "place", "step"),
    [
        ("deacon", "Table 3, Direct-8, BLEU", 0.1), ("deacon", "Table 3, Direct-8, Parameters", 0),
        ("homeostasis", "Table 1, (A) Small, Parameters", 100_000),
        ("deacon", "§5.1, Direct-8, training loss below the baseline's", 0.01),
        ("deacon", "§5.1, Average-3, training loss above Average-8's", 1),
    ],
)  # fmt: skip
def test_a_claim_knows_its_last_digit(paper, place, step):
    (claim,) = [claim for claim in claims_of(paper) if claim.place == place]
    assert claim.step == pytest.approx(step)


@pytest.mark.parametrize(("line", "sentence"), REFUSED.items())
def test_a_sentence_that_cannot_be_is_refused(write_claims, line, sentence):
    content = {"value": "2", "unit": "'%'", "working": "1 + 1"} | dict([line.split(": ")])
    body = "\n".join(f"      {key}: {value}" for key, value in content.items())
    path = write_claims(f"sentences:\n  §1:\n    two:\n{body}\n")
    with pytest.raises(ConfigError) as error:
        load_claims("deacon")
    key = "unit" if line in ("value: true", "unit: relation") else line.partition(":")[0]
    assert str(error.value).startswith(f"{path}, line ")
    assert str(error.value).endswith(f": sentences.§1.two.{key}: {sentence}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"scale": {"lmm": {"data": {}, "epochs": 1}}}, "scale.lmm: unknown task; did you mean 'lm'?"),
        ({"scale": {"lm": {"data": {}}}}, "scale.lm.epochs: expected one of epochs and steps"),
        ({"scale": {"lm": {"data": {}, "epochs": 1, "steps": 1}}}, "scale.lm.epochs: expected one of epochs and steps"),
        ({"tables": {"lm": {"blue": "Table 1"}}}, "tables.lm.blue: unknown row or column; known here: "),
        ({"workings": {"source": {"share": "1"}}}, "workings.source: unknown table; did you mean 'sources'?"),
        ({"workings": {"lm": {"bleu": "1"}}}, "workings.lm.bleu: expected <column> or <row>.<column> of that table"),
        ({"workings": {"lm": {"direct_8.perplexity": "1"}}},
         "workings.lm.direct_8.perplexity: expected <column> or <row>.<column> of that table"),
        ({"models": {"big": {"task": "llm", "vocabulary": [1]}}}, "models.big.task: unknown task; did you mean 'lm'?"),
        ({"notes": {"train_loss": "x"}}, "notes.train_loss: unknown column; did you mean 'training_loss'?"),
        ({"settings": {"mt": {}}},
         "settings.mt: unknown task; known here: dissection, lm, qa, regulariser, summarisation, translation"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_said(write_claims, content, message):
    path = write_claims(content | {"sentences": {}})
    with pytest.raises(ConfigError) as error:
        load_claims("deacon")
    assert str(error.value).startswith(f"{path}, line ")
    assert message in str(error.value)


def test_a_working_that_is_no_expression_is_said_with_its_line(write_claims):
    path = write_claims('sentences:\n  §1:\n    two:\n      {value: 2, unit: heads, working: "open(1)"}\n')
    with pytest.raises(ConfigError) as error:
        claims_of("deacon")
    assert str(error.value).startswith(f"{path}, line 3: sentences.§1.two: 'open(1)' has no place in a working; ")


def test_a_paper_without_claims_is_said():
    with pytest.raises(ConfigError, match=r"^claims of 'mh' are not known; did you mean 'mhr'\?$"):
        claims_of("mh")
