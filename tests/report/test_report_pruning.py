"""Stored importance of heads, its table, and the drawing of the loss against heads masked."""

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT
from faulty import exactly
from reported import metrics, write_profile

from headdiv.companion.command_line import cli
from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.importance import (
    importance_path,
    record_importance,
    stored_importance,
)
from headdiv.companion.pipeline import Plan
from headdiv.companion.report import figures
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import DataError, NotStoredError
from headdiv.core.files import read_json, write_json


def importance(variant, seed=1, **more):
    """As `importance_record` gives it; ``more`` replaces keys."""
    paper, task = EXPERIMENT.split("/")
    run = {"paper": paper, "task": task, "kind": "translation", "variant": variant, "seed": seed}
    return {
        "format": 1,
        **run,
        "hash": f"hash-of-{variant}-{seed}",
        "config": {"data": {"name": "toy"}} | ({"method": {"name": "baseline"}} if variant == "baseline" else {}),
        "modules": {"encoder 1": 4, "decoder 1": 4, "cross 1": 4},
        "loss": {"value": 1.0, "unit": "nats/token", "signature": "s"},
        "score": None,
        "heads": [
            {"place": "cross 1", "head": 2, "change": -0.001},
            {"place": "encoder 1", "head": 1, "change": 0.25, "score": None},
        ],
        "order": [["cross 1", 2], ["encoder 1", 1]],
        "curve": [{"kept": kept, "loss": 2.0, "score": None} for kept in (12, 6, 0)],
    } | more


@pytest.fixture
def profile(project):
    return write_profile(project, "p", "translation", "qa")


# ---- files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (importance("baseline", format=0), "importance of format 0, expected 1"),
        (importance("baseline", hash="other"), "of run other, expected hash-of-baseline-1 as in the metrics"),
        ({key: value for key, value in importance("baseline").items() if key != "curve"}, "curve"),
        ([], "format None, expected 1; `headdiv importance deacon/translation baseline --seed 1 --profile p`"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(profile, content, message):
    store.record(metrics("baseline", 1), profile)
    path = importance_path(profile, EXPERIMENT, "baseline", 1)
    write_json(path, content)
    with pytest.raises(DataError, match=message) as found:
        stored_importance(profile, EXPERIMENT)
    assert str(found.value).startswith(f"{path}: ")
    assert "makes it anew" in str(found.value)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"not valid JSON .*; `headdiv importance .* makes it anew"):
        stored_importance(profile, EXPERIMENT)


def test_importance_of_another_search_is_refused(profile, project):
    """A run's hash leaves the search out."""
    config = {"data": {"name": "toy"}, "decode": {"beam": 5}}
    path = record_importance(importance("direct-8", config=config), profile)
    assert stored_importance(profile, EXPERIMENT)
    text = (project.home / "config" / "p.yaml").read_text()
    project.write_config("p", text.replace("deacon/translation:", "deacon/translation:\n    decode: {beam: 4}"))
    with exactly(
        f"{path}: decode.beam is 5, but 4 in {project.home}/config/p.yaml; "
        "`headdiv importance deacon/translation direct-8 --seed 1 --profile p` makes it anew"
    ):
        stored_importance(profile, EXPERIMENT)


# ---- the loss


def by_loss(variant, seed, *rises):
    """A curve whose loss rises so much with each of the masked heads."""
    curve = [{"kept": 12 - i, "loss": 1.0 + rise, "score": None} for i, rise in enumerate((0.0, *rises))]
    return importance(variant, seed, curve=curve)


def test_heads_that_can_be_masked_end_where_the_loss_first_rises_too_far(profile):
    for seed, extra in ((1, 0), (2, 1)):
        record_importance(by_loss("baseline", seed, 0.01, 0.04, *[0.049] * extra, 0.06, 0.02, 1.0), profile)
        record_importance(by_loss("own", seed, *[-0.01] * (7 + extra), float(10**6)), profile)
    stored = stored_importance(profile, EXPERIMENT)
    assert [run.can_be_masked(0.05) for runs in stored.values() for run in runs] == [2, 3, 7, 8]
    assert stored["own"][0].can_be_masked(-1.0) == 0
    data = table_data(profile, f"{EXPERIMENT}_pruning")
    numbers = data.numbers.set_index("variant")
    assert numbers["heads_to_mask"].to_dict() == {"baseline": 2.5, "own": 7.5}
    assert numbers["heads_to_mask_difference"]["own"] == 5.0
    assert "Heads that can be masked, of 12" in data.markdown()


def test_without_stored_importance_it_says_what_makes_it(profile):
    text = "_pruning: profile p has no stored importance of heads of deacon/qa; `headdiv importance deacon/qa "
    with pytest.raises(NotStoredError, match=f"deacon_qa{text}"):
        figures.draw("deacon_qa_pruning", profile)
    with pytest.raises(NotStoredError, match=f"deacon/qa{text}"):
        table_data(profile, "deacon/qa_pruning")


def test_the_rise_of_the_loss_and_the_number_of_heads_are_drawn(profile):
    for seed in (1, 2):
        record_importance(by_loss("baseline", seed, 0.01, 0.06 + 0.001 * seed, 0.2), profile)
        record_importance(by_loss("own", seed, 0.0, 0.0, 0.2 + 0.01 * seed), profile)
    figure = figures.draw("deacon_translation_pruning", profile)
    left, right = figure.axes
    assert ": toy, mean over 2 seeds; simultaneous" in figure.get_suptitle().replace("\n", " ")
    assert left.get_xlim()[1] == 12  # heads that there are
    base, own = (line for line in left.lines if line.get_linestyle() == "-")
    assert list(own.get_ydata()) == pytest.approx([0, 0, 0, 0.215])
    assert list(base.get_xdata()) == [0, 1, 2, 3]
    assert [text.get_text() for text in right.get_yticklabels()] == ["own"]


def test_a_profile_plans_the_pruning_that_it_asks_for(profile, project):
    assert "deacon_translation_pruning" not in Plan(profile).figures
    text = (project.home / "config" / "p.yaml").read_text()
    project.write_config("p", text.replace("deacon/translation:", "deacon/translation:\n    pruning: 12"))
    plan = Plan(profile)
    assert plan.pruned == {EXPERIMENT: 12}
    assert "deacon_translation_pruning" in plan.figures
    assert "deacon_translation_pruning" in plan.tables
    read = [path for path in plan.drawn_from("deacon") if path.endswith("/importance.json")]
    assert read == plan.results([EXPERIMENT], "importance.json")


# ---- the command


def test_the_command_records_a_trained_run_in_the_profiles_steps(finished):
    finished.write_profile(pruning=2)
    result = CliRunner().invoke(cli, ["importance", EXPERIMENT, "direct-8", "--profile", "tiny"])
    path = importance_path("tiny", EXPERIMENT, "direct-8", 1)
    assert result.output.splitlines()[-1] == str(path)
    record, run = read_json(path), read_json(path.with_name("metrics.json"))
    assert len(record["heads"]) == 24
    assert [point["kept"] for point in record["curve"]] == [24, 12, 0]
    assert record["hash"] == run["hash"]
    assert record["loss"]["value"] == pytest.approx(run["scores"]["validation_nll"]["value"])
