"""When to look at which entry again: an index of hints that transactions can take back."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any

_HINT_BYTES = 64
_TIME_BYTES = 400
"""About what a hint takes, and a time with its set: counted for memory limits."""


class ExpiryIndex:
    """Items by expiry time, earliest first.

    An item here is a hint: whoever takes it checks the entry itself. So an undone transaction
    only has to give back what it took, and hints that it added do no harm.
    """

    __slots__ = ("_buckets", "_heap", "_hints", "_stale", "_taken")

    def __init__(self) -> None:
        self._buckets: dict[int, set[Hashable]] = {}
        self._heap: list[int] = []
        self._hints = 0
        self._stale: dict[tuple[int, Hashable], None] = {}
        self._taken: list[tuple[int, set[Hashable]]] = []

    def add(self, expiry_ms: int, item: Hashable) -> None:
        """Remember to look at the item once `expiry_ms` has come."""
        bucket = self._buckets.get(expiry_ms)
        if bucket is None:
            self._buckets[expiry_ms] = {item}
            heapq.heappush(self._heap, expiry_ms)
            self._hints += 1
        else:
            before = len(bucket)
            bucket.add(item)
            self._hints += len(bucket) - before
        if self._stale:
            self._stale.pop((expiry_ms, item), None)

    def drop(self, expiry_ms: int, item: Hashable) -> None:
        """Forget a hint once the transaction can no longer be undone."""
        self._stale[expiry_ms, item] = None

    def take(self, until_ms: int) -> list[tuple[int, set[Hashable]]]:
        """Remove and return everything due at `until_ms`."""
        heap = self._heap
        if not heap or heap[0] > until_ms:
            return []
        due = []
        while heap and heap[0] <= until_ms:
            expiry_ms = heapq.heappop(heap)
            bucket = self._buckets.pop(expiry_ms)
            self._hints -= len(bucket)
            due.append((expiry_ms, bucket))
        self._taken += due
        return due

    def peek(self, until_ms: int) -> list[tuple[int, set[Hashable]]]:
        """What `take` would return."""
        return [(at, self._buckets[at]) for at in self._heap if at <= until_ms]

    def retain(self, is_kept: Callable[[Any], bool]) -> None:
        """Forget all other hints, and times without any."""
        buckets = {at: set(filter(is_kept, items)) for at, items in self._buckets.items()}
        self._buckets = {at: items for at, items in buckets.items() if items}
        self._heap = sorted(self._buckets)
        self._hints = sum(map(len, self._buckets.values()))

    @property
    def num_bytes(self) -> int:
        """Memory held, about."""
        return _HINT_BYTES * self._hints + _TIME_BYTES * len(self._heap)

    def clear(self) -> None:
        """Forget all hints."""
        self._buckets.clear()
        self._heap.clear()
        self._hints = 0
        self.begin()

    def begin(self) -> None:
        """Start of a transaction: the last one stays."""
        for expiry_ms, item in self._stale:
            bucket = self._buckets.get(expiry_ms)
            if bucket is not None and item in bucket:
                bucket.remove(item)
                self._hints -= 1
        self._stale.clear()
        self._taken.clear()

    def undo(self) -> None:
        """Give back what the transaction took or dropped."""
        self._stale.clear()
        for expiry_ms, items in self._taken:
            for item in items:
                self.add(expiry_ms, item)
        self._taken.clear()
