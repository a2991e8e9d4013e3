"""The workers that a lane sends its rows to: owners of its key groups, and those of the future."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import methodcaller

import numpy as np
import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.transport.client import Exchange
from anabranch.transport.messages.lanes import LaneOwner


class Shadows:
    """Exchanges with future owners; their failures are not the lane's."""

    def __init__(self, owners: LaneOwners) -> None:
        self.owners = owners
        self.exchanges: dict[int, Exchange] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Send them their rows."""
        for index, part in self.owners.divide(batch):
            self._try(index, methodcaller("write", part))

    def end(self, schema: pa.Schema) -> None:
        """Send the end mark and wait until it has arrived, not until they are done."""
        for index in list(self.exchanges):
            self._try(index, methodcaller("done_writing", schema))
            self._try(index, methodcaller("read"))

    def close(self) -> None:
        """Give up what is left."""
        for exchange in self.exchanges.values():
            exchange.close()

    def _try(self, index: int, step: Callable[[Exchange], object]) -> None:
        exchange = self.exchanges.get(index)
        if exchange is None:
            return
        try:
            step(exchange)
        except AnabranchError:  # it catches up another way
            del self.exchanges[index]
            exchange.close()


class LaneOwners:
    """The workers that own a lane's missing key groups, and how a batch is divided among them."""

    def __init__(self, owners: Iterable[LaneOwner], missing: set[int], keyspace: KeySpace) -> None:
        self.members: list[LaneOwner] = []
        self._keyspace = keyspace
        self._owner_of = np.full(keyspace.groups, -1, dtype=np.int64)
        covered = 0
        for owner in owners:
            groups = [group for group in owner.groups if group in missing]
            covered += len(owner.groups)
            if groups:
                self._owner_of[groups] = len(self.members)
                self.members.append(replace(owner, groups=tuple(groups)))
        whole = sum(len(member.groups) for member in self.members) == covered == len(missing)
        self._is_single = whole and len(self.members) == 1

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows for each member."""
        if self._is_single:
            yield 0, batch
            return
        hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
        owner_of_row = self._owner_of[self._keyspace.group_of(hashes)]
        for index in range(len(self.members)):
            part = batch.filter(pa.array(owner_of_row == index))
            if part.num_rows:
                yield index, part
