"""Figures from metrics written by hand."""

import numpy as np
import pytest
from reported import headed, metrics, put, store_all, worked_out, write_profile
from tracked import ROOT

from headdiv import companion
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report import figures
from headdiv.companion.report.curves import common_epochs
from headdiv.companion.report.groups import by_variant
from headdiv.companion.report.looks import OF_METHODS, looks, looks_of
from headdiv.companion.report.plotting import BLUE, GREY, ORANGE
from headdiv.companion.report.verdicts import NOT_JUDGED
from headdiv.core.errors import ConfigError, DataError
from headdiv.methods import METHODS

RUNS = (("own", 1), ("direct-8", 1), ("direct-8", 2), ("baseline", 1), ("baseline", 2))


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p")


@pytest.fixture
def recorded(profile):
    store_all("p", *(metrics(*run) for run in RUNS))


# ---- files


def test_a_figure_is_written_in_every_format_and_is_the_same_every_time(recorded, tmp_path):
    endings = (".png", ".svg", ".pdf")
    contents = []
    for name in ("a", "b"):
        paths = [tmp_path / f"{name}{ending}" for ending in endings]
        figures.write_figure("deacon_figure6", "p", *paths)
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
    png, svg, pdf = contents[0]
    assert png.startswith(b"\x89PNG")
    assert b": toy, " in svg  # text stays text
    assert pdf.startswith(b"%PDF")


def test_a_name_with_dollar_signs_is_no_formula():
    put(metrics("direct-8", 1, data="$x_$"))
    figures.draw("deacon_figure6", "p").canvas.draw()


def test_unknown_formats_are_refused(recorded, tmp_path):
    with pytest.raises(DataError, match=r"a.jpeg: a figure is written as one of .png, .svg, .pdf"):
        figures.write_figure("deacon_figure6", "p", tmp_path / "a.png", tmp_path / "a.jpeg")
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("task", "variants", "names"),
    [
        ("translation", ["baseline", "direct-3"], ["deacon_translation_curves", "deacon_table3"]),
        ("mhr/translation", ["alphas"], ["mhr_figure4", "mhr_figure5"]),
        ("moa/translation", ["moa-8-8"], ["moa_translation_routers"]),
    ],
)
def test_figures_are_those_that_the_profiles_runs_allow(project, task, variants, names):
    write_profile(project, "few", task, variants=variants)
    assert list(figures.figures_of(Runs("few"))) == names


def test_heads_by_epoch_are_drawn_where_they_are_measured(project):
    write_profile(project, "p", "deacon/translation")
    runs = [headed(variant, seed, experiment="deacon/translation") for variant in ("baseline", "direct-8")
            for seed in (1, 2)]  # fmt: skip
    for run in runs:
        for point in run["curve"]:
            n = point["epoch"] + run["seed"]
            point["heads"] = {place: {"cka": n / 100 + shift, "effective_rank": 9.0 - n}
                              for place, shift in (("encoder 1", 0.0), ("cross 1", 0.2))}  # fmt: skip
    put(*runs)
    name = "deacon_translation_heads_by_epoch"
    cka = figures.draw(name, "p").axes[0].get_lines()[2]  # after those of two seeds
    assert cka.get_ydata() == pytest.approx([(e + 1.5) / 100 + 0.1 for e in cka.get_xdata()])
    assert name not in figures.figures_of(Runs("p"))
    text = (project.home / "config" / "p.yaml").read_text()
    measured = "deacon/translation:\n    settings: {own: {train.epoch_heads: true}}"
    project.write_config("measured", text.replace("deacon/translation:", measured))
    assert name in figures.figures_of(Runs("measured"))
    del runs[0]["curve"][0]["heads"]
    put(runs[0])
    with pytest.raises(DataError, match=r"baseline, seed 1: .* expected train.epoch_heads: true in profile p"):
        figures.draw(name, "p")


def test_every_method_has_a_look_that_no_other_has_and_that_is_no_verdicts():
    assert set(METHODS) <= set(OF_METHODS)
    by_method = {name: look for name, look in OF_METHODS.items() if " " not in name}
    assert len(set(by_method.values())) == len(by_method)
    assert not {BLUE, ORANGE} & {colour.lower() for colour, _ in OF_METHODS.values()}


def test_a_variant_has_the_look_of_its_method_in_every_experiment(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    experiments = {"headtohead-10": "headtohead/translation", "dissection": "deacon/dissection"}
    first, second = (looks_of(name, by_variant(profile, name)) for profile, name in experiments.items())
    assert first["direct-8"] == second["direct-8"]
    assert first["baseline"] == second["baseline"]
    assert second["direct-8"] != second["gamma-03"]
    assert second["direct-8"]["marker"] == second["gamma-03"]["marker"]
    assert looks({"mine": {"name": "not-known"}})["mine"]["marker"] == "o"


def test_the_example_of_contributing_is_a_figure(recorded, project, monkeypatch):
    monkeypatch.setattr(figures, "_plugin_figures", {})
    _, code = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```python\n")
    (project.home / "mine.py").write_text(code.partition("```")[0], encoding="utf-8")
    path = project.home / "config" / "p.yaml"
    path.write_text(f"plugins: [mine.py]\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    figure = figures.draw("deacon_bleu_by_loss", "p")
    assert len(figure.axes[0].collections[0].get_offsets()) == len(RUNS)
    entry = figures.figures_of(Runs("p"))["deacon_bleu_by_loss"]
    assert entry.label == "bleu by loss"
    assert entry.caption.startswith("BLEU on the test set against the validation loss, a point for each run.")
    with pytest.raises(ConfigError, match="has no docstring, expected its caption"):
        companion.add_figure("deacon/translation")(lambda profile, figure: None)
    entry.draw.__name__ = "figure6"
    with pytest.raises(ConfigError, match="'deacon_figure6' is taken"):
        companion.add_figure("deacon/translation")(entry.draw)
    entry.draw.__name__, entry.draw.__code__ = "nothing", (lambda profile, figure: None).__code__
    companion.add_figure("deacon/translation")(entry.draw)
    with pytest.raises(ConfigError, match="returned None, expected a matplotlib Figure"):
        figures.draw("deacon_nothing", "p")


# ---- curves


def grid(figure, columns):
    """The axes of learning curves by row."""
    return np.reshape(figure.axes, (-1, columns))


def names(figure, columns):
    return [row[0].get_ylabel() for row in grid(figure, columns)]


def test_curves_are_the_baselines_and_differences_from_it_seed_by_seed():
    for seed, gain in ((1, 0.5), (2, 0.1)):
        base, other = metrics("baseline", seed), metrics("direct-8", seed)
        for point in other["curve"]:
            point["training_loss"] -= gain
        put(base, other)
    put(metrics("own", 1))
    figure = figures.draw("deacon_translation_curves", "p")
    (loss, validation, accuracy), (difference, *_), own = grid(figure, 3)
    assert names(figure, 3) == ["Baseline Transformer", "Direct-8", "own"]
    assert list(loss.lines[0].get_ydata()) == [6.5, 4.0]  # seeds 1 and 2
    assert list(validation.lines[0].get_ydata()) == [4, 2]
    assert validation.lines[1].get_ydata()[0] == 4.0  # the simplest model
    assert list(accuracy.lines[0].get_ydata()) == [10, 20]
    assert list(difference.lines[-1].get_ydata()) == pytest.approx([-0.3, -0.3])
    assert [text.get_text() for text in difference.texts] == ["−0.30"]
    assert [ax.texts[-1].get_text() for ax in own] == ["0.00", "0.00", "0.0"]
    assert "mean over 1 or 2 seeds\nbelow the baseline: " in figure.get_suptitle()


def test_a_rows_colour_is_that_of_its_simultaneous_interval_after_the_last_epoch(project):
    """The loss of direct-3 is higher in every seed, but too little; one seed is not judged, and its area is empty."""
    write_profile(project, "p", seeds=(1, 2, 3))
    increases = {"baseline": (0, 0, 0), "direct-8": (1, 1.1, 0.9), "direct-3": (0.02, 0.1, 0.15), "own": (-2,)}
    scores = {}
    for variant, values in increases.items():
        for seed, value in enumerate(values, start=1):
            run = metrics(variant, seed)
            run["curve"][-1]["training_loss"] += value
            run["curve"][-1]["validation_accuracy"] += 10 * value
            scores.setdefault(variant, {})[seed] = run["curve"][-1]["training_loss"]
            put(run)
    figure = figures.draw("deacon_translation_curves", "p")
    assert names(figure, 3)[1:] == ["Direct-8", "Direct-3", "own"]
    colours = [[row[column].lines[-1].get_color() for row in grid(figure, 3)[1:]] for column in (0, 2)]
    assert colours == [[ORANGE, GREY, GREY], [BLUE, GREY, GREY]]
    expected = worked_out(scores, *((variant, "baseline") for variant in [*scores][1:]))
    assert [abs(mean) > half for mean, half, _ in expected.values()] == [True, False, True]
    assert [len(ax.collections) for ax in grid(figure, 3)[1:, 0]] == [1, 1, 0]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["better", "worse", "undecided", NOT_JUDGED]


def test_a_language_models_perplexity_is_the_mean_of_perplexities_on_a_logarithmic_axis():
    for seed, nll in ((1, 3.0), (2, 5.0)):
        runs = [metrics(variant, seed, task="lm", unigram_nll=6.0) for variant in ("baseline", "direct-8")]
        for number, run in enumerate(runs):
            for point in run["curve"]:
                point["validation_nll"] = nll + 0.1 * number
        put(*runs)
    figure = figures.draw("deacon_lm_curves", "p")
    (_, perplexity), (_, difference) = grid(figure, 2)
    assert list(perplexity.lines[0].get_ydata()) == pytest.approx([(np.exp(3) + np.exp(5)) / 2] * 2)
    assert perplexity.lines[1].get_ydata()[0] == pytest.approx(np.exp(6))
    assert difference.texts[-1].get_text() == "+10.5 %"  # exp(0.1)


def test_a_variant_without_a_seed_of_the_baseline_has_no_curve():
    put(metrics("direct-3", 2))
    with pytest.raises(DataError, match="needs baseline among the stored runs"):
        figures.draw("deacon_translation_curves", "p")
    put(metrics("baseline", 1))
    figure = figures.draw("deacon_translation_curves", "p")
    assert grid(figure, 3)[1, 0].texts[0].get_text() == "no seed in common"
    assert "judged" not in figure.get_suptitle()


def test_curves_of_runs_that_ended_early_go_as_far_as_all_of_them():
    assert common_epochs([[3, 2, 1], [5, 4]]).tolist() == [[3, 2], [5, 4]]
    assert common_epochs([np.array([]), np.array([1.0])]).shape == (2, 0)
