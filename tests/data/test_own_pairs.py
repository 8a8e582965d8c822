"""`headdiv init --data`: a profile of one's own pairs that trains, and one sentence about pairs that cannot be used."""

import gzip
import itertools
import sys

import pytest
import yaml
from conftest import EXPERIMENT

from headdiv.companion.command_line import main
from headdiv.companion.data.own_pairs import SPLITS, write_profile
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.parameters import audit
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import record
from headdiv.companion.experiments.running import train
from headdiv.companion.report.tables import table_data
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import ConfigError, DataError

NAMES, DAYS = ["Léa", "Noé", "Zoé", "Max", "Tom", "Ana", "Eva", "Luc"], ["lundi", "mardi", "jeudi", "samedi"]
WHAT = {"sings": "chante", "reads": "lit", "sleeps": "dort", "can't see": "n’y voit rien"}
PAIRS = [
    (f"Today {name} {english} “well”, on a {day}.", f"Aujourd’hui, {name} {french} « bien », un {day}\u00a0!")
    for name, day, (english, french) in itertools.product(NAMES, DAYS, WHAT.items())
]
TEST_FIRST = [f"{split}.{language}" for split in ("test", "train", "valid") for language in ("en", "fr")]
FRENCH_FIRST = ["train.en", "train.fr", "dev.fr", "dev.en", "test.en", "test.fr"]


def put(folder, name, lines):
    text = "".join(f"{line}\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder / name


@pytest.fixture
def sides(tmp_path):
    return [put(tmp_path, f"cats.{language}", [pair[at] for pair in PAIRS]) for at, language in enumerate(("en", "fr"))]


def written(profile):
    folder = profile.parents[1] / "data" / profile.stem
    lines = ((folder / f"{split}.{language}").read_text().splitlines() for split in SPLITS for language in ("en", "fr"))
    return {split: list(zip(next(lines), next(lines), strict=True)) for split in SPLITS}


def test_own_pairs_train_and_outputs_equal_to_the_references_score_100(project, sides, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["headdiv", "init", "--data", *map(str, sides)])
    main()
    assert "--config profile=cats-en-fr" in capsys.readouterr().out
    profile = project.home / "config" / "cats-en-fr.yaml"
    profile.write_text(
        profile.read_text().replace("epochs: 20", "epochs: 1").replace("variants: [baseline, ", "variants: [")
    )
    (config,) = Runs("cats-en-fr").configs()
    assert (config.variant, config.data.source, config.data.target) == ("direct-8", "en", "fr")
    run, task = train(config), TASKS[config.kind]
    assert task.score_lines(run, task.references(run))["bleu"]["value"] == pytest.approx(100)
    assert len(task.references(run)) == 13
    assert any("Aujourd’hui" in line for line in task.references(run))

    record(evaluate(run), "cats-en-fr")
    shown = table_data("cats-en-fr", EXPERIMENT)
    assert shown.markdown().startswith("# cats, en to fr: Machine translation\n")
    for foreign in ("Table 3", "Multi30k", "German", "WMT", "28.9", "5,373,616", ", paper", "the paper"):
        assert foreign not in shown.markdown()
    assert not [column for column in shown.numbers.columns if column.endswith("_paper")]
    counts = audit("cats-en-fr", EXPERIMENT)["direct-8"]
    assert counts["parameters"] > 0
    assert {counts[key] for key in ("at_paper_sizes", "paper", "follows")} == {None}


def test_the_split_is_the_same_each_time_and_shares_no_source_sentence(tmp_path, sides):
    other = [("Today Max sings “well”, on a lundi.", "Max chante."), ("", "vide")]
    table = put(tmp_path, "cats.en-fr.tsv.gz", ["\t".join(pair) for pair in PAIRS + other])
    first, second = (written(write_profile(tmp_path / home, [table])) for home in "ab")
    assert first == second
    assert sorted(itertools.chain(*first.values())) == sorted([*PAIRS, other[0]])
    sources = [{source for source, _ in pairs} for pairs in first.values()]
    assert not any(one & another for one, another in itertools.combinations(sources, 2))
    assert [len(one) for one in sources] == [102, 13, 13]
    assert "1 pairs with an empty sentence" in (tmp_path / "a/config/cats-en-fr.yaml").read_text()


def test_splits_of_ones_own_stay(tmp_path):
    parts = dict(zip(SPLITS, (PAIRS[:100], PAIRS[100:110], PAIRS[110:]), strict=True))
    files = [
        put(tmp_path, f"{split}.{language}", (pair[at] for pair in pairs))
        for split, pairs in parts.items()
        for at, language in enumerate(("en", "fr"))
    ]
    assert written(write_profile(tmp_path, files)) == parts
    (tmp_path / "config/pairs-en-fr.yaml").unlink()
    files[4] = put(tmp_path, "copy.en", (source for source, _ in parts["train"][:18]))
    files[0] = put(tmp_path, "train.en", (source for source, _ in parts["train"][:18]))
    files[1] = put(tmp_path, "train.fr", (target for _, target in parts["train"][:18]))
    with pytest.raises(DataError, match=r"train\.en is both train and test \(as .*copy\.en\)"):
        write_profile(tmp_path, files)
    files[2:4] = [put(tmp_path, f"valid.{language}", [""]) for language in ("en", "fr")]
    with pytest.raises(DataError, match=r"valid\.en and .*valid\.fr: expected a pair at least without an empty"):
        write_profile(tmp_path / "own", files)
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    ("names", "lines", "error", "sentence"),
    [
        (["a.en", "a.fr"], (3, 2), DataError, r"a\.en, line 3: has no partner, .*a\.fr ends at sentence 2"),
        (["a.en", "a.fr"], (3, 3), DataError, "found 3 different source sentences, expected at least 100"),
        (["a.en", "a.jp"], (3, 3), ConfigError, r"a\.jp: 'jp' is no language's code"),
        (["a.tsv"], (3,), ConfigError, r"a\.tsv: 'a' is no language's code|has no two languages"),
        (["a.en-fr.tsv"], (3,), DataError, r"a\.en-fr\.tsv, line 1: expected two columns .*, found 1"),
        (["a.en", "b.en"], (3, 3), ConfigError, "expected two languages, found 'en' twice"),
        (["a.en"], (3,), ConfigError, r"expected two texts or one \.tsv, .*found .*a\.en"),
        (TEST_FIRST, (3,) * 6, ConfigError, r"test\.en: found a name of test in the place of train; expected .* order"),
        (FRENCH_FIRST, (3,) * 6, ConfigError, r"dev\.fr and .*dev\.en: found fr and en, expected en and fr"),
        (["a.en-fr.tsv", "b.en-de.tsv", "c.en-fr.tsv"], (3,) * 3, ConfigError, r"b\.en-de\.tsv: found en and de"),
    ],
)
def test_what_cannot_be_used_is_said_with_file_and_line(tmp_path, names, lines, error, sentence):
    files = [
        put(tmp_path, name, (f"sentence {line}" for line in range(count)))
        for name, count in zip(names, lines, strict=True)
    ]
    with pytest.raises(error, match=sentence):
        write_profile(tmp_path, files)
    assert not (tmp_path / "config").exists()


def test_languages_are_named_where_names_do_not_say(tmp_path):
    table = put(tmp_path, "2024.tsv", ["\t".join(pair) for pair in PAIRS])
    assert write_profile(tmp_path, [table], ("nds", "fr")).name == "2024-nds-fr.yaml"
    norwegian = yaml.safe_load(write_profile(tmp_path, [table], ("no", "fr")).read_text())
    data = norwegian["experiments"][EXPERIMENT]["data"]
    assert (data["name"], data["source"], set(data["files"]["test"])) == ("2024", "no", {"no", "fr"})
    with pytest.raises(ConfigError, match="'english' is no language's code"):
        write_profile(tmp_path, [table], ("english", "fr"))


@pytest.mark.parametrize(
    ("data", "papers"),
    [
        ({"name": "multi30k"}, True),
        ({"name": "multi30k-sample"}, True),
        ({"name": "multi30k", "source": "de", "target": "en"}, False),
        ({"name": "iwslt14"}, False),
    ],
)
def test_the_papers_numbers_stand_beside_runs_on_its_data_alone(data, papers):
    task = task_of(EXPERIMENT)
    shown = task.shown_on({"source": "en", "target": "de"} | data)
    assert (shown is task) == papers
    assert bool(shown.notes) == any(shown.numbers().values()) == papers
    assert [row.label for row in shown.variants.values()] == [row.label for row in task.variants.values()]
