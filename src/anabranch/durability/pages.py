"""Sections of entries in pages that are found by key: what changelogs and snapshots are made of.

A page is an Arrow record batch of about PAGE_BYTES with its own checksum. Entries are sorted by
`KeySpace.order_of`; a section's index has the first and last order of each page, so one key is
one page. The section DUE has (time, hash) of every entry that has a time, sorted by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.durability.blobs import BlobStore
from anabranch.durability.frame import (
    HEADER_BYTES,
    TAIL_BYTES,
    Block,
    check_header,
    damaged,
    footer_length,
    footer_of,
    header_of,
    parse_footer,
)
from anabranch.durability.large_pages import content_of, has_large, order_at, ordered_pieces
from anabranch.model.keyspace import DELETE, HASH, OP, Int64s, KeySpace

PAGE_BYTES = 32 << 10
DUE = "$due"
TIME = "time"

_ALIGNMENT = 64
_END_BYTES = 64 << 10
"""So much is read at once when a file is opened: all of a small one."""
_GAP_LOCAL_BYTES = 16 << 10
_GAP_REMOTE_BYTES = 256 << 10
_INDEX = ("first", "last", "rows", "offset", "length", "crc")
_SCHEMA = b"schema"
_EVERYWHERE = -(2**63), 2**63 - 1
"""First and last order of a page whose entries are not sorted."""

DueColumn = tuple[str, str]
"""The section and the column that say when something happens to an entry without rows."""

Pages = npt.NDArray[np.intp]


class PageWriter:
    """Collects tables into the buffers of one file."""

    def __init__(
        self, kind: bytes, keyspace: KeySpace | None, by_bin: bool, due: DueColumn | None
    ) -> None:
        """Without a keyspace entries stay in the order given and cannot be found by key."""
        self._kind = kind
        self._keyspace = keyspace
        self._by_bin = by_bin
        self._due = due
        self._buffers: list[Any] = [pa.py_buffer(header_of(kind))]
        self._offset = HEADER_BYTES
        self._schemas: dict[str, pa.Schema] = {}
        self._indexes: dict[str, list[tuple[int, ...]]] = {}
        self._times: list[tuple[Int64s, Int64s]] = []

    def add(self, section: str, entries: pa.Table) -> None:
        """Append entries that come after those before in the file's order, or get ordered."""
        order = None
        if self._keyspace is not None:
            order = self._keyspace.order_of(_hashes(entries), self._by_bin)
        if has_large(entries):
            at = order_at(order, entries.num_rows)
            for piece, start, end in ordered_pieces(entries, at):
                self._add(section, piece, None if order is None else order[at[start:end]])
            return
        entries = entries.combine_chunks()
        if order is not None and np.any(order[1:] < order[:-1]):
            at = order_at(order, entries.num_rows)
            entries, order = entries.take(pa.array(at)), order[at]
        self._add(section, entries, order)

    def finish(self, meta: dict[str, Any]) -> list[Any]:
        """The whole file as buffers."""
        meta = {**meta, "due": self._due}
        if self._times:
            times = np.concatenate([some for some, _ in self._times])
            at = np.argsort(times, kind="stable")
            hashes = np.concatenate([some for _, some in self._times])[at]
            self._add(DUE, pa.table({TIME: times[at], HASH: hashes}), times[at])
        blocks = []
        for section, pages in self._indexes.items():
            arrays = [pa.array(column, pa.int64()) for column in zip(*pages, strict=True)]
            packed = self._schemas[section].serialize().to_pybytes()
            schema = pa.schema([(name, pa.int64()) for name in _INDEX], {_SCHEMA: packed})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            content = self._append(sink.getvalue())
            blocks.append(Block(section, *content))
        self._buffers.append(pa.py_buffer(footer_of(self._kind, meta, blocks)))
        return self._buffers

    def _note_times(self, entries: pa.Table, column: str) -> None:
        times = entries.column(column)
        wanted = times.is_valid().to_numpy()
        if OP in entries.column_names:
            wanted &= entries.column(OP).to_numpy() != DELETE
        at = np.flatnonzero(wanted)
        if len(at):
            values = pc.cast(times.take(pa.array(at)), pa.int64())
            self._times.append((values.to_numpy(), _hashes(entries)[at]))

    def _add(self, section: str, entries: pa.Table, order: Int64s | None) -> None:
        if self._due is not None and self._due[0] == section:
            self._note_times(entries, self._due[1])
        if section in self._schemas:
            assert entries.schema == self._schemas[section], f"{section} changes its columns"
        else:
            self._schemas[section] = entries.schema
            self._indexes[section] = []
        start = 0
        for batch in entries.to_batches():  # one, unless it has gigabytes of text
            step = max(1, PAGE_BYTES * batch.num_rows // max(1, batch.nbytes))
            for at in range(0, batch.num_rows, step):
                page = batch.slice(at, step)
                first, last = _EVERYWHERE
                if order is not None:
                    ends = start + at, start + at + page.num_rows - 1
                    first, last = int(order[ends[0]]), int(order[ends[1]])
                place = self._append(*content_of(page))
                self._indexes[section].append((first, last, page.num_rows, *place))
            start += batch.num_rows

    def _append(self, *content: Any) -> tuple[int, int, int]:
        """Offset, length and checksum; the padding is part of it."""
        crc, length, offset = 0, 0, self._offset
        for chunk in content:
            crc, length = zlib.crc32(chunk, crc), length + len(chunk)
            self._buffers.append(chunk)
        padding = -length % _ALIGNMENT
        if padding:
            zeros = bytes(padding)
            crc, length = zlib.crc32(zeros, crc), length + padding
            self._buffers.append(pa.py_buffer(zeros))
        self._offset += length
        return offset, length, crc


@dataclass(frozen=True, slots=True)
class SectionIndex:
    """Where the pages of one section are, in the order of their entries."""

    schema: pa.Schema
    first: Int64s
    last: Int64s
    rows: Int64s
    offset: Int64s
    length: Int64s
    crc: Int64s

    def overlapping(self, starts: Int64s, ends: Int64s) -> Pages:
        """Pages that may have entries between a start and its end, both included."""
        low = self.last.searchsorted(starts, side="left")
        high = self.first.searchsorted(ends, side="right")
        some = low < high
        marks = np.zeros(len(self.first) + 1, np.int64)
        np.add.at(marks, low[some], 1)
        np.add.at(marks, high[some], -1)
        return np.flatnonzero(np.cumsum(marks[:-1]))


class PageFile:
    """A file of which only what is needed is read, in memory or in a store."""

    def __init__(
        self,
        kind: bytes,
        source: Any,
        path: str | None = None,
        *,
        name: str = "file",
        crc: int | None = None,
        size: int | None = None,
        offset: int = 0,
    ) -> None:
        """`source` is the file's content, or a BlobStore with `path`; `crc` is the manifest's.

        With an `offset` it is a part of the file at `path`, with `size` bytes from there.
        """
        self._store: BlobStore | None = None
        self._path = path or ""
        self._offset = offset
        if isinstance(source, BlobStore):
            assert path is not None, "a store needs a path"
            self._store, self._name = source, source.full_name(path)
            size = source.size(path) if size is None else size
            self._start = max(0, size - _END_BYTES)
            self._held = source.read_range(path, offset + self._start, size - self._start)
        else:
            self._start, self._held, self._name = 0, source, name
            size = source.size if size is None else size
        self._open(kind, crc, size)

    @property
    def sections(self) -> dict[str, SectionIndex]:
        """The sections that have entries, and where their pages are."""
        return {name: index for name, index in self._indexes.items() if name != DUE}

    @property
    def held_bytes(self) -> int:
        """What of the file is in memory, beside its indexes."""
        return int(self._held.size)

    def let_go(self) -> None:
        """Keep nothing but the indexes in memory: pages are read when they are needed."""
        if self._store is not None:
            self._start += self._held.size
            self._held = pa.py_buffer(b"")

    def due(self, column: DueColumn, first: int, last: int) -> Int64s:
        """Hashes of entries with a time between these, both included."""
        if self.meta["due"] == list(column):
            section, name, index = DUE, TIME, self._indexes.get(DUE)
            pages = None if index is None else index.overlapping(_one(first), _one(last))
        else:  # the writer did not know about times
            (section, name), pages = column, None
            index = self._indexes.get(section)
        if index is None or (pages is not None and not len(pages)):
            return np.empty(0, np.int64)
        entries = self.read(section, pages)
        times = pc.cast(entries.column(name), pa.int64())
        due = pc.and_(pc.greater_equal(times, first), pc.less_equal(times, last))
        return _hashes(entries.filter(due))

    def read(self, section: str, pages: Pages | None = None) -> pa.Table:
        """The entries of some pages (None: all), in order. They share the memory of the file."""
        index = self._indexes[section]
        if pages is None:
            pages = np.arange(len(index.first))
        batches: list[Any] = [None] * len(pages)
        by_place = np.argsort(index.offset[pages], kind="stable")
        offsets, lengths = index.offset[pages][by_place], index.length[pages][by_place]
        runs = self._runs(offsets, lengths)
        for run, content in zip(runs, self._contents(offsets, lengths, runs), strict=True):
            for n in range(*run):
                start, length = int(offsets[n] - offsets[run[0]]), int(lengths[n])
                at = by_place[n]
                batches[at] = self._page(content.slice(start, length), index, int(pages[at]))
        return pa.Table.from_batches(batches, schema=index.schema)

    def _page(self, content: Any, index: SectionIndex, number: int) -> Any:
        where = f"the page at byte {index.offset[number]}"
        if content.size != index.length[number] or zlib.crc32(content) != index.crc[number]:
            raise damaged(self._name, f"{where} does not match its checksum")
        try:
            batch = pa.ipc.read_record_batch(content, index.schema)
        except (pa.ArrowException, OSError) as error:
            raise damaged(self._name, f"{where} cannot be read") from error
        if batch.num_rows != index.rows[number]:
            raise damaged(self._name, f"{where} has a wrong number of entries")
        return batch

    def _runs(self, offsets: Int64s, lengths: Int64s) -> list[tuple[int, int]]:
        """Pages that are near each other, to be read in one request."""
        if not len(offsets):
            return []
        is_local = self._store is None or self._store.is_local
        gap = _GAP_LOCAL_BYTES if is_local else _GAP_REMOTE_BYTES
        cuts = np.flatnonzero(offsets[1:] - (offsets + lengths)[:-1] > gap) + 1
        edges = [0, *cuts.tolist(), len(offsets)]
        return list(pairwise(edges))

    def _contents(
        self, offsets: Int64s, lengths: Int64s, runs: Sequence[tuple[int, int]]
    ) -> Iterable[Any]:
        ranges = [
            (int(offsets[a]), int(offsets[b - 1] + lengths[b - 1] - offsets[a])) for a, b in runs
        ]
        if self._store is None or self._store.is_local:
            return map(self._bytes, ranges)
        return self._store.map_ahead(self._bytes, ranges)

    def _bytes(self, place: tuple[int, int]) -> Any:
        offset, length = place
        if offset >= self._start:
            start = offset - self._start
            return self._held.slice(start, max(0, min(length, self._held.size - start)))
        assert self._store is not None
        return self._store.read_range(self._path, self._offset + offset, length)

    def _open(self, kind: bytes, crc: int | None, size: int) -> None:
        name = self._name
        # The header first: a foreign or newer file is named as such, whatever its end looks like.
        check_header(self._bytes((0, min(HEADER_BYTES, size))).to_pybytes(), kind, name)
        if self._start + self._held.size != size:
            raise damaged(name, f"it has not the {size} bytes that the manifest says")
        tail = self._bytes((max(0, size - TAIL_BYTES), TAIL_BYTES)).to_pybytes()
        length = footer_length(tail, size, name) + TAIL_BYTES
        footer = parse_footer(self._bytes((size - length, length)).to_pybytes(), size, kind, name)
        if crc is not None and crc != footer.crc:
            raise damaged(name, "it is not the file that the manifest lists")
        self.meta = footer.meta
        self._indexes: dict[str, SectionIndex] = {}
        if footer.indexes and footer.pages_end < self._start:
            whole = self._bytes((footer.pages_end, size - footer.pages_end))
            self._start, self._held = footer.pages_end, whole
        for block in footer.indexes:
            content = self._bytes((block.offset, block.length))
            if content.size != block.length or zlib.crc32(content) != block.crc:
                raise damaged(name, f"the index of {block.section!r} does not match its checksum")
            self._indexes[block.section] = self._parse(content, block.section)
        total = sum(int(index.length.sum()) for index in self._indexes.values())
        if HEADER_BYTES + total != footer.pages_end:
            raise damaged(name, "its pages are not where its indexes say")
        if self._start > 0:  # no whole pages, or few
            self.let_go()

    def _parse(self, content: Any, section: str) -> SectionIndex:
        try:
            with pa.ipc.open_stream(content) as reader:
                table = reader.read_all().combine_chunks()
            schema = pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_SCHEMA]))
            # Copies: views would keep the end of the file in memory.
            columns = (table.column(name).to_numpy().copy() for name in _INDEX)
            return SectionIndex(schema, *columns)
        except (pa.ArrowException, OSError, KeyError, TypeError) as error:
            raise damaged(self._name, f"the index of {section!r} cannot be read") from error


def _one(value: int) -> Int64s:
    return np.array([value], np.int64)


def _hashes(entries: pa.Table) -> Int64s:
    hashes: Int64s = entries.column(HASH).to_numpy()
    return hashes
