"""A key group's table as it was before its last transaction, for those who must not see that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anabranch.state.columnar.arena import Arena
from anabranch.state.columnar.index import HashIndex, Slots

Raw = npt.NDArray[np.void]


class TableBefore:
    """What looking keys up needs of a GroupTable; valid until the next transaction."""

    def __init__(
        self,
        index: HashIndex,
        raw: Raw,
        overwritten: Sequence[tuple[Slots, Raw]],
        arenas: Sequence[Arena],
    ) -> None:
        self.index = index
        self.arenas = arenas
        self._raw = raw
        self._overwritten = overwritten

    def read(self, slots: Slots) -> Raw:
        """Raw records of some slots, as an undo would leave them."""
        found = self._raw.take(slots)
        for written, old in reversed(self._overwritten):
            order = np.argsort(written, kind="stable")
            at = np.searchsorted(written, slots, sorter=order)
            at = order[np.minimum(at, len(order) - 1)]
            hit = written[at] == slots
            found[hit] = old[at[hit]]
        return found
