"""The companions: every display of stored results, of the best that is stored and of the executed copy's profile."""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import papermill
import pytest
from IPython.display import Markdown
from test_repository import code_cells

from headdiv import companion
from headdiv.companion.report import figures, heads, show
from headdiv.companion.report.groups import by_variant
from headdiv.companion.report.table_data import TableData

ROOT = Path(__file__).parents[2]
COMPANIONS = ("deacon", "mhr", "dpp", "homeostasis", "moa", "headtohead", "contest")
SPOKEN_OF = {  # profiles whose numbers the prose gives beside what is shown
    "headtohead/translation": "headtohead-10",
    "deacon/translation": "multi30k-30",
    "mhr/translation": "tables",
    "dpp/translation": "tables",
    "homeostasis/memorisation": "rows",
}
NOTHING_STORED = {  # by any profile
    "mhr": {"mhr/spanish", "mhr_spanish_curves"},
    "homeostasis": {
        *(f"homeostasis/{task}" for task in ("base", "big")),
        *(f"homeostasis_{task}_curves" for task in ("base", "big")),
    },
}


def companion_cells(name):
    """The notebook's code, its parameters first."""
    return code_cells(ROOT / "notebooks" / f"{name}.ipynb")


def profiles(name):
    """None, and another whose executed copy is stored; `make reproduce` executes each with "quick"."""
    stored = (path.parts[-3] for path in ROOT.glob(f"results/*/companions/{name}.ipynb"))
    return [None, *(profile for profile in stored if f'profile = "{profile}"' not in companion_cells(name)[0])]


WITH_PROFILES = [(name, profile) for name in COMPANIONS for profile in profiles(name)]


@pytest.fixture(scope="module", autouse=True)
def this_repository():
    """Its stored results, each figure drawn once; neither audits, which read data, nor tables, which have a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADDIV_HOME", str(ROOT))
        patch.setattr(figures, "draw", cache(figures.draw))
        patch.setattr(show, "table_data", lambda profile, table: TableData("", "", profile, pd.DataFrame()))
        patch.setattr(show, "parameter_table", lambda profile, experiment: pd.DataFrame())
        patch.setattr(show, "display", lambda line: None)
        yield


def displays(name):
    """What each display of stored results gives, by the table or figure that it asks for."""
    names = {"companion": companion}
    parameters, *code = companion_cells(name)
    exec(parameters, names)
    calls = (node for source in code for node in ast.walk(ast.parse(source)))
    return {
        next(arg.value for arg in call.args if isinstance(arg, ast.Constant)): eval(ast.unparse(call), names)
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("companion.show_") and len(call.args) == 2
    }


@pytest.mark.parametrize("name", COMPANIONS)
def test_every_display_is_made_or_is_a_line_of_what_is_not_stored(name):
    """Of the best that is stored; `test_a_companion_executes` has its code."""
    shown = displays(name)
    lines = {key for key, view in shown.items() if isinstance(view, Markdown) and re.fullmatch(r"\*.*\*", view.data)}
    assert shown
    assert lines == NOTHING_STORED.get(name, set())


@pytest.mark.parametrize(("experiment", "profile"), SPOKEN_OF.items())
def test_a_table_is_of_the_profile_that_the_prose_speaks_of(experiment, profile):
    assert show.show_table(None, experiment).data.strip() == profile  # all that tables of `this_repository` have


@pytest.mark.slow
@pytest.mark.parametrize(("name", "profile"), WITH_PROFILES)
def test_a_companion_executes(name, profile, tmp_path):
    parameters = {"profile": profile} if profile else {}
    papermill.execute_notebook(
        ROOT / "notebooks" / f"{name}.ipynb", tmp_path / "executed.ipynb", parameters, progress_bar=False
    )


def test_what_the_mhr_companion_says_of_its_figures_is_what_is_stored():
    text = (ROOT / "notebooks" / "mhr.ipynb").read_text(encoding="utf-8")
    runs_of = by_variant("tables", "mhr/translation")

    def confidence(variant):
        """Mean and standard deviation over a layer's heads, over the seeds: by (kind, layer)."""
        runs = [heads.measure_by_module(run, "confidence") for run in runs_of[variant]]
        return pd.DataFrame(
            {module: [sum(f(run[module]) for run in runs) / len(runs) for f in (lambda x: x.mean(), lambda x: x.std())]
             for module in runs[0]}, index=["mean", "sd"],
        ).T  # fmt: skip

    base, mixed, swapped = map(confidence, ("baseline", "alphas", "manual"))
    assert (mixed["mean"] < base["mean"]).all()
    assert (mixed["sd"] < base["sd"]).sum() == 8
    assert (swapped.loc["cross", "mean"] > base.loc["cross", "mean"]).all()
    means = [f"{frame.loc['cross', key].mean():.{digits}f}" for key, digits in (("mean", 2), ("sd", 3))
             for frame in (swapped, base)]  # fmt: skip
    assert means == ["0.40", "0.36", "0.082", "0.086"]
    assert "It is higher in all three layers (0.40 on average, beside the baseline's 0.36)" in text
    assert "(0.082 beside 0.086)" in text
    for distance, (low, high) in {"cosine": (-1.25, 0.85), "l2": (-64.1, -46.7)}.items():
        groups = {variant: runs_of[variant] for variant in ("baseline", "alphas")}
        changes = [change.mean for change in heads.changes(groups, distance)["alphas"].values()]
        assert low < min(changes) <= max(changes) < high
    modules = [run.heads["alphas"] for run in by_variant("rows", "mhr/translation")["alphas-plain"]]
    alphas = [np.array(module["alphas"]) for run in modules for module in run.values()]
    mixed = max(abs(A - np.diag(np.diag(A))).max() for A in alphas)
    kept, shares = min(np.diag(A).min() for A in alphas), [heads.skew_share(A) for A in alphas]
    assert f"exceeds {mixed:.3f}, while the diagonal itself falls to {kept:.2f} at the lowest" in text
    assert f"one half ({min(shares):.2f} to {max(shares):.2f}; the figure has the first seed)" in text
