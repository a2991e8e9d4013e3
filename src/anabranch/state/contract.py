"""What every kind of key-group state offers to the worker that holds it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import pyarrow as pa

from anabranch.model.keyspace import Int64s

Sections = dict[str, pa.Table]
"""State entries as Arrow tables, one for each state variable.

Every table starts with the HASH column, followed by the key columns and the payload. In a changelog
the second column is OP. Column types never depend on the data.
"""


class GroupState(Protocol):
    """State of one key group of one operator: self-contained, so that it can move as a whole.

    Changed in place. `begin` starts a transaction; `undo` takes the state back to the last `begin`,
    at any time before the next one, however often the transaction succeeded.
    Not thread-safe: the worker runs one thing at a time on a key group.
    """

    def begin(self) -> None:
        """Start a transaction: forget how to undo the last one."""

    def undo(self) -> None:
        """Go back to the state at the last `begin` (idempotent)."""

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        """All entries, or those of some bins or hashes (not both), without OP: for `install`.

        Entries are ordered by bin. The result shares no memory that later transactions change.
        """

    def export_packed(self, bins: Collection[int]) -> Sections:
        """The entries of some bins in the form that costs least to make and to install.

        Only for a process that has the same definition of the operator. HASH comes first.
        """

    def install(self, sections: Sections) -> None:
        """Add exported entries whose keys are not here yet."""

    def replay(self, sections: Sections) -> None:
        """Apply changelogs: entries with OP, those of a section in their order, sections in any.

        Several transactions' one after the other may come as one.
        """

    def discard(self, bins: Collection[int]) -> None:
        """Drop the entries of some bins: they live elsewhere now."""

    @property
    def num_rows(self) -> int:
        """Number of entries over all sections."""

    @property
    def num_bytes(self) -> int:
        """Estimate of the memory held."""
