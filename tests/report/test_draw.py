"""Drawing what is stored of a paper."""

import pytest
from reported import metrics, put, write_profile

from headdiv.companion.report.draw import draw_paper
from headdiv.core.errors import NotStoredError


def test_what_is_stored_is_drawn_and_the_rest_named(project):
    write_profile(project, "part", "translation", "qa", variants=["baseline", "direct-8"])
    put(metrics("baseline", 1, task="qa"), metrics("direct-8", 1, task="qa"), profile="part")
    message = r"^\d+ of \d+ not drawn: .*results/part/deacon/translation: no stored results; `[^`]*` makes them$"
    with pytest.raises(NotStoredError, match=message):
        draw_paper("part", "deacon")
    tables = project.home / "results" / "part" / "tables"
    assert sorted(path.name for path in tables.iterdir()) == ["deacon_qa.csv", "deacon_qa.md"]


def test_drawing_needs_no_data(project):
    """As in a clone with stored results of files that are elsewhere."""
    split = {"en": "$NOWHERE/a.en", "de": "$NOWHERE/a.de"}
    own = {"name": "own", "files": dict.fromkeys(("train", "valid", "test"), split), "held_out": 500}
    project.write_profile("own", data=own)
    with pytest.raises(NotStoredError, match="no stored results"):
        draw_paper("own", "deacon")
