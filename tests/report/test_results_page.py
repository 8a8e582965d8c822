"""Tables and the headline of docs/results.md and its appendix, and the checklist's hours, show the stored runs."""

import csv
import re
from functools import cache

import pytest
from tracked import ROOT, git_files

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.statistics import interval
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.run_result import read_outputs
from headdiv.companion.report.families import reported_difference
from headdiv.companion.report.groups import judged_with
from headdiv.companion.report.measures import MEASURES, mean_measure
from headdiv.core.files import read_json

NUMBER = re.compile(r"[+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
RUNS = {
    "long": ("multi30k-30", "deacon/translation"),
    "alone": ("multi30k-30", "deacon/dissection"),
    "float32": ("multi30k-float32", "deacon/translation"),
    "parts": ("dissection", "deacon/dissection"),
    "dropout": ("dissection-dropout", "deacon/dissection"),
    "ten": ("headtohead-10", "headtohead/translation"),
    "sweep": ("diversity", "headtohead/translation"),
    "tuned": ("contest", "headtohead/tuned"),
    "qa": ("tables", "deacon/qa"),
    "mhr": ("tables", "mhr/translation"),
    "lm": ("tables", "deacon/lm"),
    "swaps": ("rows", "mhr/translation"),
    "heart": ("rows", "homeostasis/memorisation"),
    "sum": ("rows", "deacon/summarisation"),
}


def over(name, rows):
    """Each row minus its baseline; a row may be of several variants, and its cells have a number for each."""
    return [", ".join(f"{name}/{variant} - {name}/baseline" for variant in row.split()) for row in rows.split("; ")]


ROWS = "direct-8; direct-3; average-8; average-3; nonlinear-8; nonlinear-3"
PARTS = "direct-8; batch-norm; frozen; optimiser; no-norm"
FLOATS = [f"parts/{variant} - float32/{variant}" for variant in ("baseline", "direct-8")]
SWEEP = """dis-o-03 dis-o-1 dis-o-3 dis-o-10 dis-o-30; dpp-o-1e1 dpp-o-1e2 dpp-o-1e3 dpp-o-1e4 dpp-o-1e5; \
alphas-10 alphas-40 alphas-160 alphas-640 alphas-2560; orthogonality-1 orthogonality-10 orthogonality-100; \
hsic-1 hsic-10 hsic-100"""
OWN = ["long/baseline", "parts/baseline", "dropout/baseline", "", "tuned/baseline"]
PART = ["mhr/baseline", "mhr/alphas", "mhr/manual", "mhr/soft", "mhr/cosine"]
DEACON = "direct-8; batch-norm"
MHR = "alphas; manual; soft; cosine"
SWAPS = "alphas-plain; manual; hard; soft; random"
EVIDENCE = [
    *over("tuned", "batch-norm; direct-8; alphas; layer-dropout; rfb-80"),
    *(f"regulariser/{variant}{level}" for variant in ("direct-8", "batch-norm") for level in ("", "-d2", "-d3")),
    *over("long", "direct-8; average-8; nonlinear-8"),
    *(f"shares/{variant}{share}" for share in ("", "-10", "-30") for variant in ("direct-8", "batch-norm")),
    *over("ten", "direct-8; rfb-80; layer-dropout; alphas; dis-o; soft; manual; dpp-o; direct-8-dis-o; alphas-kwta-80"),
    *over("mhr", MHR),
    *over("swaps", SWAPS),
    *over("lm", DEACON),
    *over("sum", DEACON),
    *over("qa", "direct-8"),
]
HEART = [f"heart/{variant}" for variant in ("baseline", "kwta-20", "kwta-50", "rfb-50")]
BY_HEART = " ".join(f"{score} paper:{score}" for score in ("training_bleu", "validation_bleu", "training_imi"))
EIGHT = ["swaps/baseline", *(f"swaps/{variant}" for variant in SWAPS.split("; "))]
LONG_ROWS = [*over("long", ROWS), "alone/batch-norm - alone/baseline"]
# Page, heading and number of a table, the runs of its rows, and what its columns show of them ("" and "-": nothing
# stored): a score, or the paper's; where the row is a difference, also the score "of" the first or of the one taken
# "off".
TABLES = [
    ("results", "Evidence in one table", 0, EVIDENCE, "- seeds lowest bleu"),
    ("results", "DEACON", 0, LONG_ROWS, "lowest validation_accuracy paper:validation_accuracy bleu paper:bleu"),
    ("results", "DEACON", 1, over("parts", PARTS), "seeds training_loss lowest bleu"),
    ("results", "How strong is the baseline?", 0, ["long/baseline", *[""] * 7], "- paper:bleu"),
    ("results", "How strong is the baseline?", 0, ["", *OWN, "", ""], "- bleu"),
    ("results", "Does diversity help?", 0, over("sweep", SWEEP), "- validation_nll of:cka of:effective_rank"),
    ("appendix", "SQuAD, trained on a part", 0, ["qa/baseline", "qa/direct-8", "qa/batch-norm"], "lowest - em f1"),
    ("appendix", "SQuAD, trained on a part", 0, ["", *over("qa", DEACON)], "- lowest"),
    ("appendix", "IWSLT'14, trained on a part", 0, PART, "lowest - bleu"),
    ("appendix", "IWSLT'14, trained on a part", 0, ["", *over("mhr", MHR)], "- lowest - bleu"),
    ("appendix", "IWSLT'14, trained on a part", 0, [*PART[:4], ""], "- - - - paper:bleu"),
    ("appendix", "IWSLT'14, 8 % of the pairs", 0, EIGHT, "lowest - bleu - paper:bleu"),
    ("appendix", "IWSLT'14, 8 % of the pairs", 0, ["", *over("swaps", SWAPS)], "- lowest - bleu"),
    ("appendix", "DialogSum", 0, ["sum/baseline", "sum/batch-norm", "sum/direct-8"], "lowest - rouge1 - rouge2 rougeL"),
    ("appendix", "DialogSum", 0, ["", *over("sum", "batch-norm; direct-8")], "- lowest - rouge1"),
    ("appendix", "WikiText-2", 0, ["lm/baseline", "lm/direct-8", "lm/batch-norm"], "lowest - perplexity"),
    ("appendix", "WikiText-2", 0, ["", *over("lm", DEACON)], "- lowest - perplexity"),
    ("appendix", "WikiText-2", 0, ["lm/baseline", "lm/direct-8", ""], "- - - - paper:perplexity"),
    ("appendix", "Memorisation with kWTA", 0, [*HEART[:3], ""], BY_HEART),
    ("appendix", "Memorisation with kWTA", 0, HEART, "training_bleu - validation_bleu - training_imi"),
    ("appendix", "bfloat16 against float32", 0, [*FLOATS, ""], "off:validation_nll validation_nll off:bleu bleu"),
    ("appendix", "bfloat16 against float32", 0, ["", "", *over("float32", "direct-8")], "validation_nll - bleu"),
]  # fmt: skip
STORED = {  # tables of which each row has a baseline of its own
    "regulariser": "results/regulariser/tables/deacon_regulariser.csv",
    "shares": "results/shares/tables/headtohead_shares.csv",
}
ENDS = ("", "_low", "_high")
BATCH_NORM = ("batch-norm", "baseline")
OF_TWO = {"dropout": "parts", "float32": "parts"}  # tables whose rows are of two profiles
runs_of = cache(judged_with)


def tables(page):
    """Each table's rows of cells, the header first, by the heading above it and its number under that."""
    by_place = {}
    for heading, *text in (part.split("\n") for part in re.split(r"^#+ ", (ROOT / page).read_text(), flags=re.M)):
        for number, table in enumerate(re.findall(r"(?:^\|.*\n?)+", "\n".join(text), re.M)):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
            by_place[heading, number] = [rows[0], *rows[2:]]
    return by_place


def by_seed(row, score):
    name, variant = row.split("/", 1)
    runs = {run.seed: run for run in runs_of(*RUNS[name])[variant]}
    if score == "lowest":
        return {seed: min(point.validation_nll for point in run.curve) for seed, run in runs.items()}
    return {seed: mean_measure(run, score) if score in MEASURES else run.value(score) for seed, run in runs.items()}


def scores(name, score):
    """A score of all variants of a table, by "table/variant" and seed."""
    rows = {f"{name}/{variant}": by_seed(f"{name}/{variant}", score) for variant in runs_of(*RUNS[name])}
    return {row: {seed: y for seed, y in values.items() if y is not None} for row, values in rows.items()}


@cache
def against_baseline(name, score):
    return comparison.against(scores(name, score), f"{name}/baseline")


def difference(row, other, score):
    """Against a table's baseline with Dunnett's interval; else of a pair alone; each table's rows have one model."""
    name, other_name = row.split("/")[0], other.split("/")[0]
    model_name = OF_TWO.get(name, other_name)
    if model_name == name and other.endswith("/baseline"):
        return against_baseline(name, score)[row]
    return comparison.differences(scores(name, score) | scores(model_name, score), [(row, other)])[row, other]


def numbers(entry, column):
    """What a column shows of runs, or of their differences to others: the mean and half its interval."""
    (kind, _, score), (row, _, other) = column.rpartition(":"), entry.partition(" - ")
    name, variant = row.split("/")
    if name in STORED:
        return stored_difference(name, variant, score)
    if kind == "paper":
        task = task_of(RUNS[name][1])
        reported = [task.variants[variant].reported.get(score)]
        return reported_difference(task, variant, other.split("/")[1], score) if other else reported
    if score == "seeds":
        return [len(by_seed(row, "bleu"))]
    if other and not kind:
        estimate = difference(row, other, score)
    else:
        estimate = interval(list(by_seed(other if kind == "off" else row, score).values()))
    return [estimate.mean, estimate.half]


def stored_difference(name, variant, score):
    (row,) = (row for row in csv.DictReader((ROOT / STORED[name]).open()) if row["variant"] == variant)
    if score == "seeds":
        return [int(row["seeds"])]
    mean, low, high = (float(row[f"{score.replace('lowest', 'validation_nll_best')}_difference{end}"]) for end in ENDS)
    return [mean, (high - low) / 2]


def agree(cell, expected):
    """Whether a cell shows these numbers, each rounded to as many decimals as it has there."""
    printed = [text.replace("−", "-").replace(",", "") for text in NUMBER.findall(cell)]
    digits = [len(text.partition(".")[2]) for text in printed]
    return [float(text) for text in printed] == list(map(round, expected, digits))


@pytest.mark.parametrize(("page", "heading", "number", "rows", "columns"), TABLES)
def test_a_table_of_results_shows_the_stored_runs(monkeypatch, page, heading, number, rows, columns):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    table, wrong = tables(f"docs/{page}.md")[heading, number], []
    if len(table) == 2:  # a row for all runs
        table = list(zip(*table, strict=True))
    for (label, *cells), row in zip(table[1:], rows, strict=True):
        for cell, column in zip(cells, columns.split(), strict=False):
            if row and column != "-" and cell:
                estimates = [numbers(entry, column) for entry in row.split(", ")]
                expected = [number for pair in estimates for number in pair[: 2 if "±" in cell else 1]]
                if not agree(cell, expected):
                    wrong.append(f"{label}, {column}: found {cell!r}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_the_hours_of_the_checklist_are_those_of_the_stored_runs():
    (_, *rows), *_ = tables("docs/checklist.md").values()
    seconds = {}
    for profile, trainings, hours, machine in rows:
        if "not kept" in machine:
            seconds[profile] = [3600 * float(hours)]
            continue
        if profile.endswith(", tuning"):
            trials = map(read_json, git_files(f"results/{profile.split('`')[1]}/*/tune/*.json"))
            seconds[profile] = [trial["seconds"] for trial in trials if "curve" in trial]
        else:
            stored = (read_json(path) for path in git_files(f"results/{profile.strip('`')}/*/metrics.json"))
            seconds[profile] = {run["hash"]: run["cost"]["training_seconds"] for run in stored}.values()
        assert (trainings, hours) == (f"{len(seconds[profile])}", f"{sum(seconds[profile]) / 3600:.1f}"), profile
    stored = {path.relative_to(ROOT / "results").parts[0] for path in git_files("results/*/metrics.json")}
    assert {profile.strip("`") for profile in seconds} == {*stored, "quick", "contest`, tuning", "return`, tuning"}
    total = sum(map(sum, seconds.values())) / 3600
    assert f"Together {total:.1f} hours" in (ROOT / "docs" / "checklist.md").read_text()
    assert f"Training took {total:.1f} hours" in (ROOT / "docs" / "results.md").read_text()


def in_one_line(page):
    return " ".join((ROOT / page).read_text().split())


def test_the_headline_is_what_the_stored_runs_of_part_1_say(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    headline = "After 4,680 updates, with the settings tried, three papers' methods did not beat a tuned"
    for page in ("README.md", "docs/results.md"):
        assert headline.lower() in in_one_line(page).lower()
    assert {run.curve[-1].steps for runs in runs_of(*RUNS["tuned"]).values() for run in runs} == {4680}
    methods = {"tuned/direct-8", "tuned/alphas", "tuned/rfb-80"}
    by_loss, by_cka = (against_baseline("tuned", score) for score in ("lowest", "cka"))
    assert all(by_loss[method].low > 0 for method in methods)  # nats above the Transformer
    assert all(0.005 < by_cka[method].mean < 0.275 for method in methods)


def test_batch_normalisation_is_equal_over_the_seeds_of_both_parts(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    monkeypatch.setitem(RUNS, "shares", ("shares", "headtohead/shares"))
    losses = {name: by_seed(f"tuned/{name}", "lowest") | by_seed(f"shares/{name}", "lowest") for name in BATCH_NORM}
    estimate = comparison.differences(losses, [BATCH_NORM])[BATCH_NORM]
    assert (estimate.count, round(estimate.mean, 3), round(estimate.half, 3)) == (11, 0.002, 0.007)
    assert round(estimate.equivalence(0.01), 3) == 0.016
    assert "it has +0.002 ± 0.007: equal within 0.01 (p = 0.016)" in in_one_line("docs/results.md")


def test_how_often_translations_of_iwslt_repeat_themselves():
    """A phrase of three stored tokens, at once again."""
    shares = {"baseline": [], "others": []}
    for path in git_files(*(f"results/tables/{paper}/translation/*/metrics.json" for paper in ("mhr", "dpp"))):
        outputs = read_outputs(path).tokens
        repeated = sum(any(x[i : i + 3] == x[i + 3 : i + 6] for i in range(len(x) - 5)) for x in outputs)
        shares["baseline" if path.parts[-3] == "baseline" else "others"].append(100 * repeated / len(outputs))
    ends = [f"{value:.1f}" for value in (min(shares["baseline"]), max(shares["baseline"]), max(shares["others"]))]
    assert ends == ["4.9", "5.3", "7.5"]
    sentence = "In {} to {} % of the Transformer's outputs, and up to {} % of the others'"
    assert sentence.format(*ends) in in_one_line("docs/appendix.md")


def test_the_transformer_in_wu_et_als_recipe_has_the_bleu_that_pages_say():
    run = read_json(ROOT / "results/wu-recipe/headtohead/translation/baseline/seed401/metrics.json")
    best, average = (f"{run['scores'][name]['value']:.1f}" for name in ("bleu_best", "bleu_average"))
    assert f"| {best}; {average} |" in in_one_line("docs/results.md")
    ended = (
        f"after {len(run['curve'])} of {run['config']['train']['epochs']} epochs, {run['curve'][-1]['steps']:,} updates"
    )
    assert ended in in_one_line("docs/contest.md")
    assert f"{best} with the best epoch's parameters ({run['evaluated_epoch']}), {average} with" in in_one_line(
        "docs/contest.md"
    )
