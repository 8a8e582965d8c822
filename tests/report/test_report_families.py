"""Is a gain that of a regulariser: families of intervals, the table and the figure."""

import numpy as np
import pytest
from reported import metrics, put, worked_out, write_profile

from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report import figures, tables
from headdiv.companion.report.families import design_of, families_of, references_of, scores_of
from headdiv.companion.report.groups import by_variant

EXPERIMENT = "deacon/regulariser"
DESIGN = design_of(task_of(EXPERIMENT))
ENDS = ("", "-d2", "-d3")  # of variants' names, by level
LEVELS = [0.1, 0.2, 0.3]
GAINS = {"direct-8": (-0.05, -0.02, 0.001), "batch-norm": (-0.04, -0.03, -0.03)}


@pytest.fixture(autouse=True)
def profile(project):
    write_profile(project, "p", EXPERIMENT, seeds=(4, 5, 6), variants=list(task_of(EXPERIMENT).variants))


def store():
    """Losses by variant and seed: the Transformer gains from dropout, the methods from less of it."""
    losses = {}
    for level, end in enumerate(ENDS):
        for method in ("baseline", *GAINS):
            for seed in (4, 5, 6):
                noise = 0.001 * ((7 * seed + 3 * level + len(method)) % 5)
                gain = GAINS[method][level] if method in GAINS else 0.0
                losses.setdefault(method + end, {})[seed] = 1.4 - 0.03 * level + 0.01 * seed + gain + noise
    for variant, by_seed in losses.items():
        for seed, loss in by_seed.items():
            run = metrics(variant, seed, experiment=EXPERIMENT, bleu=80 - 30 * loss, validation_nll_best=loss)
            run["config"]["model"] = run["config"]["model"] | {
                "dropout": task_of(EXPERIMENT).variants[variant].model["dropout"]
            }
            put(run)
    return losses


def estimates(experiment, score):
    """Every family's differences, by the cells that name them."""
    task, groups = task_of(experiment), by_variant("p", experiment)
    scores = scores_of(groups, score)
    return {
        name: dict(zip((row.names for row in family.rows), family.estimate(scores), strict=True))
        for name, family in families_of(task, groups).items()
    }


def test_a_method_is_compared_at_its_level_and_the_transformer_with_itself_at_the_first():
    task = task_of(EXPERIMENT)
    expected = {method + end: "baseline" + end for method in GAINS for end in ENDS}
    expected |= {"baseline" + end: "baseline" for end in ENDS if end}
    assert references_of(task, task.variants) == expected


def test_each_family_has_its_own_simultaneous_intervals():
    losses = store()
    families = estimates(EXPERIMENT, "validation_nll_best")
    pairs = [(method + end, "baseline" + end) for method in GAINS for end in ENDS]
    gains = list(families["levels"].values())
    for gain, (mean, half, _) in zip(gains, worked_out(losses, *pairs).values(), strict=True):
        assert (gain.mean, gain.half) == pytest.approx((mean, half), rel=2e-2)
    for change, low, high in zip(families["ends"].values(), gains[::3], gains[2::3], strict=True):
        assert change.mean == pytest.approx(low.mean - high.mean)
        assert change.error == pytest.approx(2**0.5 * low.error)  # of four means instead of two
    between = [(f"direct-8{end}", f"batch-norm{end}") for end in ENDS]
    expected = worked_out(losses, *between).values()
    for difference, (mean, half, _) in zip(families["methods"].values(), expected, strict=True):
        assert (difference.mean, difference.half) == pytest.approx((mean, half), rel=2e-2)


def test_a_row_whose_score_varies_far_more_is_named():
    store()
    for seed, bleu in zip((4, 5, 6), (10.0, 60.0, 20.0), strict=True):
        put(metrics("direct-8-d2", seed, experiment=EXPERIMENT, bleu=bleu, validation_nll_best=1.37 + 0.01 * seed))
    gains = estimates(EXPERIMENT, "bleu")["levels"]
    assert [gains["Direct-8", str(level)].freedom for level in LEVELS] == [14, 2, 14]
    notes = " ".join(tables.table_data("p", EXPERIMENT).remarks)
    assert "Student's intervals, which are not simultaneous: Direct-8, dropout 0.2 (BLEU)." in notes


def test_the_figure_has_gains_by_dropout():
    losses = store()
    figure = figures.draw("deacon_regulariser", "p")
    (direct, *_), *_ = (container.lines for container in figure.axes[0].containers)
    gains = [[losses["direct-8" + end][seed] - losses["baseline" + end][seed] for seed in (4, 5, 6)] for end in ENDS]
    assert direct.get_ydata() == pytest.approx(np.mean(gains, axis=1))
    assert "Not judged yet" not in figure.get_suptitle()
    assert figure.axes[-1].get_xlabel().endswith("(points)")  # of a difference, not the score's "0 to 100"


def test_a_figure_of_the_first_runs_can_be_drawn():
    for variant, seed in (("baseline", 4), ("direct-8", 4), ("direct-8-d2", 5)):
        put(metrics(variant, seed, experiment=EXPERIMENT))
    figure = figures.draw("deacon_regulariser", "p")
    assert "toy, 2 epochs, 2 seeds, simultaneous" in figure.get_suptitle()
    assert len(figure.axes) == 2  # no interaction without the highest dropout
    assert "Not judged yet: 3 of 27 runs are stored." in figure.get_suptitle()
    assert [*tables.table_data("p", EXPERIMENT).tables.values()][2]["BLEU"].tolist() == ["–"]


# ---- shares of data

SHARES = "headtohead/shares"
SHARES_AT = {10: "-10", 30: "-30", 100: ""}  # by percent


def store_shares(project, seeds=(4, 5, 6), methods=("direct-8",), but=(), noise=None, epochs=(2, 2, 2)):
    """Methods' losses minus the Transformer's by share; ``noise``: by places of model and share, and seed."""
    variants = [method + end for method in ("baseline", *methods) for end in SHARES_AT.values()]
    write_profile(project, "p", SHARES, seeds=seeds, variants=variants)
    losses = {}
    for place, ((share, end), gain) in enumerate(zip(SHARES_AT.items(), (-0.05, -0.02, 0.0), strict=True)):
        for number, method in enumerate(("baseline", *methods)):
            for seed in seeds:
                loss = 2 - 0.003 * share + 0.01 * seed + gain * number
                loss += noise(number, place, seed) if noise else 0.0005 * ((7 * seed + len(method + end)) % 5)
                if (method + end, seed) in but:
                    continue
                losses.setdefault(method + end, {})[seed] = loss
                values = {"bleu": 80 - 30 * loss, "validation_nll_best": loss}
                run = metrics(method + end, seed, experiment=SHARES, epochs=epochs[place], **values)
                run["config"]["train"] = run["config"]["train"] | task_of(SHARES).variants[method + end].train
                put(run)
    return losses


def slopes_of(losses, method):
    """By seed that has all shares, by numpy's least squares."""
    by_share = [losses[method + end] for end in SHARES_AT.values()]
    seeds = set.intersection(*map(set, by_share))
    return {
        seed: np.polyfit(np.log10(list(SHARES_AT)), [by_seed[seed] for by_seed in by_share], 1)[0]
        for seed in sorted(seeds)
    }


def estimated_slopes(score):
    return {method: slope for (method,), slope in estimates(SHARES, score)["slope"].items()}


def test_slopes_are_of_each_model_and_seed_and_a_seed_without_a_share_is_no_seed_of_that_model(project):
    methods, seeds = ("direct-8", "batch-norm"), (4, 5, 6, 7, 8)
    noise = lambda number, place, seed: 0.002 * ((3 * seed + 5 * number + 7 * place) % 11)  # noqa: E731
    losses = store_shares(project, seeds, methods, but=[("batch-norm-30", 7)], noise=noise)
    estimated = estimated_slopes(score="validation_nll_best")
    slopes = {method: slopes_of(losses, method) for method in ("baseline", *methods)}
    assert [len(by_seed) for by_seed in slopes.values()] == [5, 5, 4]
    pairs = [(method, "baseline") for method in methods]
    for slope, (mean, half, error) in zip(estimated.values(), worked_out(slopes, *pairs).values(), strict=True):
        assert (slope.mean, slope.error) == pytest.approx((mean, error))
        assert slope.half == pytest.approx(half, rel=2e-2)
    assert [(slope.count, slope.freedom) for slope in estimated.values()] == [(5, 7), (4, 7)]


def test_a_model_whose_slopes_vary_far_more_is_named(project):
    methods, seeds = ("direct-8", "batch-norm", "rfb-80", "layer-dropout", "alphas"), (4, 5, 6, 7, 8)
    noise = lambda number, place, seed: (200 if number == 5 else 1) * 0.001 * ((3 * seed + 5 * number + place) % 7)  # noqa: E731
    store_shares(project, seeds, methods, noise=noise)
    slopes = estimated_slopes(score="validation_nll_best")
    assert {name: slope.freedom for name, slope in slopes.items() if slope.freedom != 16} == {"MHM (mixing)": 4}
    notes = " ".join(tables.table_data("p", SHARES).remarks)
    assert "slope of MHM (mixing) (Lowest validation loss)" in notes


def test_shares_of_which_none_is_whole_have_no_slope(project):
    but = [(method + end, seed) for method in ("baseline", "direct-8") for end in ("-10", "-30") for seed in (4, 5, 6)]
    store_shares(project, but=but)
    assert [slope.count for slope in estimated_slopes(score="bleu").values()] == [0]
    assert [*tables.table_data("p", SHARES).tables.values()][2]["BLEU"].tolist() == ["–"]


def test_curves_by_share_have_a_column_for_each_and_mark_the_lowest_loss(project):
    store_shares(project, epochs=(5, 3, 2))
    run = metrics("baseline-10", 4, experiment=SHARES, epochs=4)  # it ended early, after an epoch that was better
    run["config"]["train"] |= task_of(SHARES).variants["baseline-10"].train
    for point, loss in zip(run["curve"], (4.0, 2.5, 3.0, 3.5), strict=True):
        point |= {"validation_nll": loss, "steps": 12 * point["epoch"]}
    put(run)
    figure = figures.draw("headtohead_shares_curves", "p")
    least, *rest = np.reshape(figure.axes, (-1, 3))[1]  # validation losses by share
    lengths = [sorted(len(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) > 1) for ax in (least, *rest)]
    assert lengths == [[4, 4, *[5] * 6], [3] * 8, [2] * 8]  # 2 models: mean, 3 seeds
    rings = [tuple(line.get_xydata()[0]) for line in least.lines if len(line.get_xdata()) == 1]
    assert len(rings) == 6
    assert (0.024, 2.5) in rings
