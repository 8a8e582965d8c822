"""The companions: every display of stored results, of the best that is stored and of the executed copy's profile."""

import ast
import re
from functools import cache
from pathlib import Path

import pandas as pd
import papermill
import pytest
from IPython.display import Markdown
from test_repository import code_cells

from headdiv import companion
from headdiv.companion.experiments.results import best_profiles
from headdiv.companion.report import figures, show
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
        committed = lambda experiment: [name for name in best_profiles(experiment) if name != "quick"]  # noqa: E731
        patch.setattr(show, "best_profiles", committed)  # without what `make reproduce` adds
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
