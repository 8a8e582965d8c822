"""The head-to-head: its table, its bootstrap on stored outputs, its figures, and the time of a search."""

import math
import shutil

import numpy as np
import pytest
import yaml
from conftest import EXPERIMENT, TINY
from reported import metrics, worked_out
from sacrebleu import corpus_bleu

from headdiv.analysis.similarity import BY_HEAD, BY_PAIR, averages, compare_heads
from headdiv.companion.analysis import comparison
from headdiv.companion.data.corpora.seq2seq import load_translation
from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import OUTPUTS, RunResult, StoredOutputs, metrics_path, write_outputs
from headdiv.companion.experiments.running import load_run
from headdiv.companion.report import figures, tables
from headdiv.companion.report.formats import signed
from headdiv.companion.report.measures import MEASURES, measures_by_module
from headdiv.companion.report.plotting import BLUE, GREEN, GREY
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import observed_heads
from headdiv.companion.tasks.bleu import sentence_counts
from headdiv.core.errors import DataError
from headdiv.core.files import read_json

TABLE = "headtohead/translation"
DATA = TINY["experiments"][EXPERIMENT]["data"]
SEARCH = {"seconds": 2.0, "sentences": 100, "beam": 5, "batch_sentences": 64, "device": "a CPU", "threads": 2}


@pytest.fixture
def profile(project):
    variants = ["baseline", "direct-8", "direct-3", "moa-32-4"]
    sections = {"data": DATA, "model": {"d_model": 16, "heads": 8}, "variants": variants}
    content = {"title": "h", "seeds": [1, 2, 3], "experiments": {TABLE: sections}}
    return project.write_config("h", yaml.safe_dump(content, sort_keys=False))


def module(cosine, *, heads=2, entropy=1.0):
    matrix = np.full((heads, heads), float(cosine))
    np.fill_diagonal(matrix, 1)
    pairs = dict.fromkeys(BY_PAIR, matrix.tolist())
    return pairs | {"queries": 9, "confidence": [0.25, 0.75], "entropy": [entropy, entropy], "effective_rank": 7.5}


def result(variant, seed, bleu, *, seconds=10.0, speed=50.0):
    run = metrics(variant, seed, experiment=TABLE, bleu=bleu)
    run["config"]["data"] = DATA
    run["heads"] = {"measures": {"encoder 1": module(0.2), "cross 1": module(0.4)}}
    run["cost"] |= {"training_seconds": seconds, "other_load": 0.0}
    if speed:
        run["cost"]["search"] = SEARCH | {"sentences_per_second": speed}
    return run


def cell(table, variant, name):
    return table.set_index("variant").loc[variant, name]


# ---- numbers


def test_measures_agree_with_those_of_a_run(finished):
    config = Runs("tiny").config(EXPERIMENT, "direct-8", 1)
    run = load_run(config)
    observed = observed_heads(run)
    expected = [averages(measured) for _, measured in compare_heads(observed)]
    stored = RunResult.read(metrics_path("tiny", EXPERIMENT, "direct-8", 1))
    assert {*MEASURES} <= {*BY_HEAD, *BY_PAIR, "effective_rank"}
    for name in MEASURES:
        assert measures_by_module(stored, name) == pytest.approx([means[name] for means in expected], abs=1e-5)


def test_a_measure_that_is_not_there_is_no_number():
    run = result("baseline", 1, 3.0)
    for measured in run["heads"]["measures"].values():
        del measured["cka"]
    assert all(map(math.isnan, measures_by_module(RunResult.parse(run), "cka")))
    run["heads"]["measures"] = {"encoder 1": module(0.1, heads=1)}
    assert math.isnan(measures_by_module(RunResult.parse(run), "cosine")[0])


# ---- bootstrap


@pytest.fixture
def with_outputs(profile):
    """Two seeds of the baseline and of one method, with counts of translations: references with words left out."""
    references = [target for _, target in load_translation(TASKS["translation"].Data(**DATA)).test.text]
    for seed, shorter in ((1, 1), (2, 2)):
        for variant, cut in (("baseline", shorter), ("direct-8", 0)):
            lines = [" ".join(line.split()[: max(4, len(line.split()) - cut)]) for line in references]
            bleu = corpus_bleu(lines, [references]).score
            store.record(result(variant, seed, bleu), profile)
            counts = sentence_counts(lines, references).tolist()
            write_outputs(metrics_path(profile, TABLE, variant, seed), StoredOutputs(test=lines, counts=counts))
    return profile


def test_runs_without_counts_have_no_p_and_counts_of_another_run_are_refused(with_outputs):
    path, other_path = (
        metrics_path(with_outputs, TABLE, name, 2).with_name(OUTPUTS) for name in ("direct-8", "baseline")
    )
    write_outputs(path, StoredOutputs(test=["Ein Hund."]))
    data = tables.table_data(with_outputs, TABLE)
    assert cell(data.numbers, "direct-8", "p_seeds") == 1
    assert "without p: direct-8 (seed 2)." in data.markdown()
    shutil.copy(other_path, path)
    with pytest.raises(DataError, match=r"seed2: BLEU \d+\.\d+ .* expected the 100.0000 of metrics.json"):
        tables.table_data(with_outputs, TABLE)


def test_one_seed_has_no_interval_and_says_so(profile):
    for variant in ("baseline", "direct-8"):
        store.record(result(variant, 2, 20.0, speed=None), profile)
    text = tables.table_data(profile, TABLE).markdown()
    assert "One seed each, so there are no intervals" in text
    assert "±" not in text


# ---- figures


def put_losses(profile, losses):
    for variant, by_seed in losses.items():
        for seed, loss in by_seed.items():
            run = result(variant, seed, 50 - 10 * loss)
            run["curve"][-1]["validation_nll"] = loss
            store.record(run, profile)


LOSSES = {
    "baseline": {1: 1.5, 2: 1.6, 3: 1.7},
    "direct-8": {1: 1.39, 2: 1.5, 3: 1.61},
    "direct-3": {1: 1.51, 2: 1.61, 3: 1.69},
    "moa-32-4": {2: 0.9},
}


def test_the_forest_judges_by_the_lowest_loss_and_shades_the_margins(profile):
    put_losses(profile, LOSSES)
    figure = figures.draw("headtohead_forest", profile)
    loss, bleu, *_ = figure.axes
    names = [label.get_text() for label in loss.get_yticklabels()]
    assert names == ["DEACON, direct, m = 8", "DEACON, direct, m = 3", "MoA, 4 of 32 experts"]
    pairs = [(variant, "baseline") for variant in ("direct-8", "direct-3", "moa-32-4")]
    expected = worked_out(LOSSES, *pairs)
    assert [text.get_text() for text in loss.texts] == [signed(mean, 3, half) for mean, half, _ in expected.values()]
    for ax, margin, close in ((loss, 0.01, GREY), (bleu, 0.5, GREEN)):
        assert [bar.lines[0].get_color() for bar in ax.containers] == [BLUE, close, GREY]
        assert ax.containers[2].lines[0].get_markerfacecolor() == "white"  # one seed, however far
        shade = next(patch for patch in ax.patches if patch.get_zorder() == -1)
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((-margin, margin))
    assert loss.get_xlim()[0] > -0.7  # which would hide all others; an arrow says that it is there


def test_the_forest_names_rows_of_far_larger_residuals(profile, monkeypatch):
    monkeypatch.setattr(comparison, "COCHRAN", 0.5)  # four variants of three seeds do not stand out at 0.1 %
    even = {variant: {1: 1.5, 2: 1.6, 3: 1.7} for variant in ("baseline", "direct-3", "moa-32-4")}
    put_losses(profile, even | {"direct-8": {1: 1.2, 2: 1.9, 3: 1.1}})
    title = figures.draw("headtohead_forest", profile).get_suptitle().replace("\n", " ")
    assert "DEACON, direct, m = 8 (lowest validation loss), DEACON, direct, m = 8 (BLEU)." in title


def test_a_method_without_a_seed_of_the_baseline_has_no_difference(profile):
    for variant, seed, bleu in (("baseline", 1, 20.0), ("direct-8", 1, 19.0), ("direct-3", 2, 25.0)):
        store.record(result(variant, seed, bleu), profile)
    figure = figures.draw("headtohead_forest", profile)
    assert "intervals" not in figure.get_suptitle()
    differences = figure.axes[1]
    assert [text.get_text() for text in differences.texts] == ["−1.00", "no seed in common"]
    assert differences.get_xlabel() == "BLEU: difference (points)\nthe Transformer's: 20.00"


def test_times_are_shown_where_nothing_else_was_busy(profile):
    for seed, load in ((1, 0.0), (2, 0.3)):
        for variant, seconds in (("baseline", 10.0), ("direct-8", 15.0)):
            run = result(variant, seed, 20.0, seconds=seconds)
            run["cost"]["other_load"] = load
            store.record(run, profile)
    assert "Training (s)" in tables.table_data(profile, TABLE).markdown()
    run["cost"]["other_load"] = 1.0
    store.record(run, profile)
    text = tables.table_data(profile, TABLE).markdown()
    assert "Times are left out" in text
    assert "Training (s)" not in text


# ---- the time of a search


def test_a_search_is_timed_when_outputs_are_made(finished):
    run = load_run(Runs("tiny").config(EXPERIMENT, "baseline", 1))
    task = TASKS["translation"]
    path = task.outputs_file(run)
    measured = read_json(path)["time"]
    assert measured == evaluate(run)["cost"]["search"]  # of the pass that made the outputs
    assert measured["sentences"] == 8
    assert measured["sentences_per_second"] == pytest.approx(8 / measured["seconds"])
    assert (measured["beam"], measured["batch_sentences"], measured["threads"]) == (2, 64, 1)
    path.unlink()
    assert task.searched(run)["time"]["seconds"] > 0
    assert path.is_file()
