import pytest

from headdiv.core.errors import DataError
from headdiv.data.readers.bad_records import BadRecords


def test_strict_names_place_reason_and_what_was_found():
    with pytest.raises(DataError, match=r"^a\.jsonl, line 3: not valid JSON \(char 7\); data\.strict: false leaves"):
        BadRecords().add("a.jsonl, line 3", "not valid JSON", "char 7")


def test_without_a_finding_there_are_no_brackets():
    with pytest.raises(DataError, match=r"^a, line 3: empty document; "):
        BadRecords().add("a, line 3", "empty document")


def test_lenient_counts_by_reason():
    bad_records = BadRecords(strict=False)
    for line in range(3):
        bad_records.add(f"a, line {line}", "empty document")
    bad_records.add("a, line 9", "not valid JSON", "char 7")
    assert bad_records.counts == {"empty document": 3, "not valid JSON": 1}
