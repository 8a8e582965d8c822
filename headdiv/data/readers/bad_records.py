"""What becomes of a record that cannot be used: an error that names it, or a count of what was left out."""

from __future__ import annotations

from collections import Counter

from headdiv.core.errors import DataError


class BadRecords:
    """Handed to every reader of records.

    Args:
        strict: raise at the first record that cannot be used; otherwise it is left out and counted.

    Attributes:
        counts: how many records were left out, by reason.
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.counts: Counter[str] = Counter()

    def add(self, where: str, reason: str, found: str = "") -> None:
        """Refuse a record.

        Args:
            where: file and record, e.g. "train.jsonl, line 3".
            reason: what is wrong with it, in words that are the same for all records of this fault.
            found: what stands there, for the message.

        Raises:
            DataError: records are read strictly.
        """
        if self.strict:
            detail = f" ({found})" if found else ""
            raise DataError(f"{where}: {reason}{detail}; data.strict: false leaves such records out and counts them")
        self.counts[reason] += 1
