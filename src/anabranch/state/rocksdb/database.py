"""One RocksDB for a worker: bounded memory, no log of its own, a namespace for each key group."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import struct
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.errors import LocationError, LocationNotWritable
from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.state.scratch import Scratch

ENTRIES = 0
"""Section of the entries; all others are indexes from a time to hashes."""

_ENTRY = np.dtype([("space", ">u4"), ("section", "u1"), ("bin", ">u4"), ("hash", ">u8")])
_HINT = np.dtype([("space", ">u4"), ("section", "u1"), ("time", ">u8"), ("hash", ">u8")])
_BIN_PREFIX = struct.Struct(">IBI")
_HINT_PREFIX = struct.Struct(">IBQ")
_SPACE_PREFIX = struct.Struct(">I")
_SIGN = np.uint64(1 << 63)
_GET_KEYS_MAX = 1 << 14
"""Read at a time: other threads get their turn in between."""

_KEY_BYTES = _ENTRY.itemsize


class Database:
    """Durability is the business of changelogs and snapshots: this is scratch.

    Of the memory that it may use, half is for working sets that key groups keep between
    transactions, half for RocksDB's blocks and write buffers.
    """

    def __init__(
        self, parent: str | None, memory_bytes: int, working_bytes_max: int | None = None
    ) -> None:
        if working_bytes_max is None:
            working_bytes_max = memory_bytes // 2
        self._rocksdict: Any = importlib.import_module("rocksdict")
        self._scratch = Scratch(parent)
        self._numbers = itertools.count(1)
        self._dropped: deque[int] = deque()
        """Namespaces to delete."""
        self._ended: deque[int] = deque()
        """Namespaces whose working sets are gone."""
        self._write_options = self._rocksdict.WriteOptions()
        self._write_options.disable_wal = True
        try:
            with self._explained("opened", LocationNotWritable):
                self._db: Any = self._open(max(8 << 20, memory_bytes - working_bytes_max))
        except LocationNotWritable:
            self._scratch.close()
            raise
        self._working_bytes_max = working_bytes_max
        self._working: dict[int, int] = {}
        self._working_bytes = 0
        self._lock = threading.Lock()

    def _open(self, memory_bytes: int) -> Any:
        rocksdict = self._rocksdict
        cache = rocksdict.Cache(memory_bytes)
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(cache)
        blocks.set_bloom_filter(10, False)
        blocks.set_format_version(5)
        # So that indexes and filters count as well.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        buffers = memory_bytes // 2
        options.set_write_buffer_size(max(4 << 20, buffers // 4))
        options.set_write_buffer_manager(
            rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(buffers, False, cache)
        )
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_max_background_jobs(2)
        options.set_max_open_files(512)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(1 << 20)
        return rocksdict.Rdict(str(self._scratch.path / "db"), options)

    def close(self) -> None:
        """Remove everything."""
        self._db.close()
        self._scratch.close()

    @property
    def folder(self) -> str:
        """Where the files are."""
        return str(self._scratch.path)

    # Reading and writing

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key; quickest if they are sorted."""
        found: list[bytes | None] = []
        for start in range(0, len(keys), _GET_KEYS_MAX):
            with self._explained("read"):
                found += self._db.get(list(keys[start : start + _GET_KEYS_MAX]))
        return found

    def write(
        self, keys: Iterable[bytes], values: Iterable[bytes], gone: Iterable[bytes] = ()
    ) -> None:
        """Put and delete, all or nothing."""
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        deque(map(batch.delete, gone), maxlen=0)
        deque(map(batch.put, keys, values), maxlen=0)
        dropped = []
        with contextlib.suppress(IndexError):
            while True:
                number = self._dropped.popleft()
                dropped.append(number)
                batch.delete_range(_SPACE_PREFIX.pack(number), _SPACE_PREFIX.pack(number + 1))
        if not len(batch):
            return
        try:
            with self._explained("written", LocationNotWritable):
                self._db.write(batch, self._write_options)
        except LocationNotWritable:
            self._dropped.extend(dropped)
            raise

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete the keys from start to before end."""
        with self._explained("written", LocationNotWritable):
            self._db.delete_range(start, end, self._write_options)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from start to before end, in order, with their values."""
        # Not by `ReadOptions.set_iterate_upper_bound`: with iterators in several threads, rocksdict
        # 0.3.29 mixes up their bounds.
        with self._explained("read"):
            for item in self._db.items(from_key=start):
                if item[0] >= end:
                    return
                yield item

    @contextlib.contextmanager
    def _explained(self, done: str, kind: type[LocationError] = LocationError) -> Iterator[None]:
        """Errors of RocksDB in words that say what to do: they are neither ours nor the user's."""
        try:
            yield
        except Exception as error:
            raise kind(
                f"State in {self.folder} cannot be {done}: {error}. Make room there, or give "
                "another folder with local_dir=..., and start the query again: nothing is lost."
            ) from error

    # Memory of working sets

    def next_number(self) -> int:
        """For a namespace."""
        return next(self._numbers)

    def drop(self, number: int) -> None:
        """A namespace is not needed any more; may be called in the middle of anything."""
        self._ended.append(number)
        self._dropped.append(number)

    def note_working_set(self, number: int, size: int) -> bool:
        """A key group keeps so much in memory; whether all together are too much."""
        with self._lock:
            self._working_bytes += size - self._working.pop(number, 0)
            if size:
                self._working[number] = size
            while self._ended:
                self._working_bytes -= self._working.pop(self._ended.popleft(), 0)
            return self._working_bytes > self._working_bytes_max


class Namespace:
    """What belongs to one key group's state in the database; deleted when nobody refers to it."""

    def __init__(self, database: Database, keyspace: KeySpace) -> None:
        self.database = database
        self.keyspace = keyspace
        self.number = database.next_number()
        self._put_bytes = 0
        self._puts = 0
        weakref.finalize(self, _forget, database, self.number)

    def keys_of(self, hashes: Int64s) -> list[bytes]:
        """Keys of entries."""
        keys = np.empty(len(hashes), _ENTRY)
        keys["space"] = self.number
        keys["section"] = ENTRIES
        keys["bin"] = self.keyspace.bin_of(hashes)
        keys["hash"] = hashes.view(np.uint64)
        found: list[bytes] = keys.view(f"V{_ENTRY.itemsize}").tolist()
        return found

    def in_order(self, hashes: Int64s) -> Int64s:
        """Hashes as their entries lie in the database, nearly."""
        bins = self.keyspace.bin_of(hashes).astype(np.uint16)
        return hashes[np.argsort(bins, kind="stable")]

    def hints_of(self, section: int, times: Int64s, hashes: Int64s) -> list[bytes]:
        """Keys of an index by time."""
        keys = np.empty(len(hashes), _HINT)
        keys["space"] = self.number
        keys["section"] = section
        keys["time"] = times.view(np.uint64) ^ _SIGN
        keys["hash"] = hashes.view(np.uint64)
        found: list[bytes] = keys.view(f"V{_HINT.itemsize}").tolist()
        return found

    def put(
        self,
        hashes: Int64s,
        values: Sequence[bytes],
        gone: Int64s,
        hints: Collection[bytes],
        gone_hints: Collection[bytes],
    ) -> None:
        """Write entries and hints, delete others."""
        self._puts += len(values)
        self._put_bytes += sum(map(len, values))
        keys = itertools.chain(self.keys_of(hashes), hints)
        contents = itertools.chain(values, itertools.repeat(b"", len(hints)))
        self.database.write(keys, contents, itertools.chain(self.keys_of(gone), gone_hints))

    def scan(self, bins: Collection[int]) -> tuple[Int64s, list[bytes]]:
        """Hashes and values of some bins, in the order of bins."""
        keys: list[bytes] = []
        values: list[bytes] = []
        for start, end in _ranges(bins):
            limits = (_BIN_PREFIX.pack(self.number, ENTRIES, b) for b in (start, end))
            for key, value in self.database.scan(*limits):
                keys.append(key)
                values.append(value)
        hashes = np.frombuffer(b"".join(keys), _ENTRY)["hash"].astype(np.uint64).view(np.int64)
        return hashes, values

    def delete_bins(self, bins: Collection[int]) -> None:
        """Delete the entries of some bins, but not their hints."""
        for start, end in _ranges(bins):
            limits = (_BIN_PREFIX.pack(self.number, ENTRIES, b) for b in (start, end))
            self.database.delete_range(*limits)

    def due(self, section: int, until: int) -> tuple[Int64s, Int64s, int | None]:
        """Hints up to a time: times and hashes; and the time of the first one later."""
        start = _HINT_PREFIX.pack(self.number, section, 0)[:5]
        end = start[:4] + bytes([section + 1])
        last = _HINT_PREFIX.pack(self.number, section, (until + (1 << 63)) & (2**64 - 1))
        keys: list[bytes] = []
        later = None
        for key, _ in self.database.scan(start, end):
            if key[: len(last)] > last:
                later = int.from_bytes(key[5:13], "big") - (1 << 63)
                break
            keys.append(key)
        hints = np.frombuffer(b"".join(keys), _HINT)
        times = (hints["time"].astype(np.uint64) ^ _SIGN).view(np.int64)
        return times, hints["hash"].astype(np.uint64).view(np.int64), later

    def delete(self, keys: Collection[bytes]) -> None:
        """Delete single keys."""
        self.database.write((), (), keys)

    def size_of(self, count: int) -> int:
        """About how many bytes so many values have."""
        return count * (_KEY_BYTES + self._put_bytes // self._puts) if self._puts else 0


def _forget(database: Database, number: int) -> None:
    database.drop(number)


def _ranges(bins: Collection[int]) -> list[tuple[int, int]]:
    """Neighbouring bins as ranges."""
    found: list[tuple[int, int]] = []
    for bin_ in sorted(set(bins)):
        if found and found[-1][1] == bin_:
            found[-1] = found[-1][0], bin_ + 1
        else:
            found.append((bin_, bin_ + 1))
    return found
