"""What notebooks show: results where a profile has them, one line where it does not."""

import pandas as pd
import pytest
from IPython.display import Markdown
from matplotlib.figure import Figure
from reported import headed, metrics, put, store_all, write_profile

from headdiv.companion.experiments.results import best_profiles
from headdiv.companion.report import formats, show, tables
from headdiv.core.errors import DataError


@pytest.fixture(autouse=True)
def profiles(project):
    write_profile(project, "p")
    write_profile(project, "alone", "qa")
    write_profile(project, "plain", "translation", variants=["baseline", "own"])


def test_a_table_comes_without_its_heading_and_folds_how_it_is_measured():
    store_all("p")
    for table in ("deacon/translation", "deacon/sources"):
        shown = show.show_table("p", table)
        assert isinstance(shown, Markdown)
        above, _, folded = shown.data.partition("\n\n<details><summary>")
        whole = tables.table_data("p", table).markdown()
        assert above.startswith("Profile p: toy, ")
        assert f"\n\n{above}\n\n- " in whole
        notes = folded.partition("</summary>\n\n")[2].removesuffix("\n\n</details>\n")
        assert notes.startswith("- ")
        assert whole.endswith(f"\n\n{notes}\n")


def test_an_audit_is_shown_and_what_a_profile_does_not_have_is_a_line():
    assert list(show.show_parameters("tiny", "deacon/translation").index) == ["baseline", "direct-8"]
    assert show.show_parameters("alone", "deacon/lm").data == "*Profile alone has no deacon/lm.*"


def test_an_experiment_without_stored_results_is_a_line():
    assert "deacon/qa: no stored results" in show.show_figure("deacon_qa_curves", "p").data


def trained(steps, run):
    """The same after so many steps."""
    run["curve"][-1]["steps"] = steps
    return run


def test_without_a_profile_the_best_evidence_is_shown(project):
    for profile in ("real", "long", "seeds", "compared"):
        write_profile(project, profile, "translation")
    assert show.show_table(None, "deacon/qa").data == "*No profile has stored results of deacon/qa.*"
    put(trained(99, metrics("baseline", 1)))  # generated text
    assert show.show_table(None, "deacon/translation").data.startswith("Profile p:")
    put(trained(3, metrics("baseline", 1, data="multi30k")), profile="real")
    put(*(trained(3, metrics("baseline", seed, data="multi30k")) for seed in (1, 2)), profile="seeds")
    put(trained(4, metrics("baseline", 1, data="multi30k")), profile="long")
    put(*(trained(1, metrics(name, 1, data="multi30k")) for name in ("baseline", "own")), profile="compared")
    assert best_profiles("deacon/translation") == ["compared", "long", "seeds", "real", "p"]
    assert show.show_table(None, "deacon/translation").data.startswith("Profile compared:")
    assert show.show_table("real", "deacon/translation").data.startswith("Profile real:")


def test_a_figure_is_of_the_best_profile_that_has_what_it_shows(project, monkeypatch):
    above = []
    monkeypatch.setattr(show, "display", lambda line: above.append(line.data))
    for profile in ("unmoved", "moved"):
        write_profile(project, profile, "mhr/translation")
    put(trained(9, headed("baseline", 1)), headed("alphas", 1), profile="unmoved")
    put(headed("baseline", 1), headed("manual", 1), profile="moved")
    assert best_profiles("mhr/translation") == ["unmoved", "moved"]
    assert isinstance(show.show_figure("mhr_swaps", None), Figure)
    assert above == ["*Profile moved:*"]


def test_every_diagram_is_a_drawing_with_its_text_as_text():
    for path in show.DIAGRAMS.glob("*.svg"):
        assert show.show_diagram(path.stem).data.count("<text") >= 4
    with pytest.raises(DataError, match="diagram 'decon' is not known; did you mean 'deacon'"):
        show.show_diagram("decon")


def test_scores_are_shown_whole():
    long = "a signature of many words, " * 10
    run = metrics("baseline", 1, training_days=0.0000123)
    run["scores"]["bleu"]["signature"] = long
    run["scores"]["chrf"]["signature"] = "<b> & $"
    page = show.show_scores(run).to_html()
    assert long in page
    assert "0.00001230" in page
    assert "&lt;b&gt; &amp; $" in page
    assert page == show.show_scores(run).to_html()


def test_long_examples_are_cut():
    text = "word " * 500
    page = show.as_text(pd.DataFrame([[text, "short"]] * 2, columns=["a", "b"]), "examples").to_html()
    assert text[: formats.LONGEST] + " …" in page
    assert text not in page
    assert page.count("short") == 2
