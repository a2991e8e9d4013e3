"""Which entries of the journal cannot wait."""

from __future__ import annotations

import pytest

from anabranch.model.journal_entry import EntryKind, JournalEntry


@pytest.mark.parametrize("kind", EntryKind)
def test_what_comes_with_every_batch_can_wait(kind: EntryKind) -> None:
    waits = kind.name in ("BATCH", "LOAD", "OWNERSHIP", "SPARK")
    assert JournalEntry(kind, 1.0).is_urgent is not waits


def test_an_entry_says_only_what_belongs_to_its_kind() -> None:
    entry = JournalEntry(EntryKind.SAVEPOINT, 1.0, text="before")
    assert (entry.operator, entry.worker, entry.epoch, entry.details) == (None, None, None, {})
