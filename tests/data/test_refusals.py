import pytest

from headdiv.core.errors import DataError
from headdiv.data.refusals import Refusals


def test_strict_names_place_reason_and_what_was_found():
    with pytest.raises(DataError, match=r"^a\.jsonl, line 3: not valid JSON \(char 7\); data\.strict: false leaves"):
        Refusals().add("a.jsonl, line 3", "not valid JSON", "char 7")


def test_without_a_finding_there_are_no_brackets():
    with pytest.raises(DataError, match=r"^a, line 3: empty document; "):
        Refusals().add("a, line 3", "empty document")


def test_lenient_counts_by_reason():
    refusals = Refusals(strict=False)
    for line in range(3):
        refusals.add(f"a, line {line}", "empty document")
    refusals.add("a, line 9", "not valid JSON", "char 7")
    assert refusals.counts == {"empty document": 3, "not valid JSON": 1}
