"""The journal's files: segments of entries, each one Arrow stream with a checksum at its end."""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.errors import CorruptState, LocationError
from anabranch.model.journal_entry import JournalEntry

BYTES_MAX = 64 << 20
"""Of all segments; the oldest go."""
SMALL_BYTES = 64 << 10
"""Segments below this are put together, to at most twice as much."""

_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("kind", _TEXT),
        ("operator", _TEXT),
        ("worker", _TEXT),
        ("epoch", pa.int64()),
        ("seconds", pa.float64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("load_ms", pa.int64()),
        ("wait_ms", pa.int64()),
        ("apply_ms", pa.int64()),
        ("write_ms", pa.int64()),
        ("text", pa.string()),
        ("details", pa.string()),
    ]
)
_ALIVE, _OWNER, _PARTS = b"alive_at", b"owner", b"parts"
_CRC_BYTES = 4
_NAME = re.compile(r"journal/(\d{13})-([0-9a-z]+)-(\d{6})\.arrow\Z", re.ASCII)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Where a segment is; names sort as they begin."""

    started_ms: int
    run: str
    number: int

    @property
    def path(self) -> str:
        """In the location."""
        return f"{names.JOURNAL_FOLDER}/{self.started_ms:013d}-{self.run}-{self.number:06d}.arrow"

    @classmethod
    def of(cls, path: str) -> SegmentName | None:
        """The reverse of `path`; None for a foreign file."""
        match = _NAME.match(path)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]))


@dataclass(frozen=True, slots=True)
class Segment:
    """Some entries, and of the run that wrote them: who it was, and when it lived for sure."""

    entries: pa.Table
    alive_at: float
    owner: Mapping[str, Any]
    parts: tuple[str, ...] = ()
    """Paths of segments whose entries are in this one; if they are still there, they are ignored"""


@dataclass(slots=True)
class JournalContent:
    """What was read."""

    entries: pa.Table
    """Sorted by time."""
    alive_at: float | None = None
    """When the last run was alive for sure."""
    owner: Mapping[str, Any] = field(default_factory=dict)
    """The last run: process, host, since when."""
    damaged: list[str] = field(default_factory=list)
    """Segments that were left out, and why."""

    def rows(self) -> list[dict[str, Any]]:
        """As plain values, `details` unpacked; without empty fields."""
        found = []
        for row in self.entries.to_pylist():
            row["details"] = json.loads(row["details"]) if row["details"] else None
            found.append({name: value for name, value in row.items() if value is not None})
        return found


def table_of(entries: Sequence[JournalEntry]) -> pa.Table:
    """Entries as columns."""
    columns: dict[str, Any] = {
        name: [getattr(entry, name) for entry in entries]
        for name in SCHEMA.names
        if name not in ("time", "kind", "details")
    }
    columns["time"] = [round(entry.time * 1e6) for entry in entries]
    columns["kind"] = [entry.kind.value for entry in entries]
    columns["details"] = [
        json.dumps(entry.details, separators=(",", ":"), default=str) if entry.details else None
        for entry in entries
    ]
    arrays = [pa.array(columns[each.name], _plain(each.type)).cast(each.type) for each in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


def encode(segment: Segment) -> bytes:
    """The bytes of a segment's file."""
    about = {
        _ALIVE: repr(segment.alive_at),
        _OWNER: json.dumps(dict(segment.owner)),
        _PARTS: json.dumps(segment.parts),
    }
    table = segment.entries.combine_chunks().unify_dictionaries().replace_schema_metadata(about)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content + zlib.crc32(content).to_bytes(_CRC_BYTES, "little")


def decode(content: bytes, name: str) -> Segment:
    """A segment from its file; columns that this release does not know are left out."""
    body, crc = content[:-_CRC_BYTES], content[-_CRC_BYTES:]
    if zlib.crc32(body) != int.from_bytes(crc, "little"):
        raise CorruptState(f"{name} does not match its checksum: it was damaged or edited.")
    try:
        table = pa.ipc.open_stream(body).read_all()
        about = table.schema.metadata
        alive_at, owner = float(about[_ALIVE]), json.loads(about[_OWNER])
        parts = tuple(json.loads(about[_PARTS]))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise CorruptState(f"{name} is not a segment of a journal: {error}") from error
    arrays = [
        table[each.name].cast(each.type)
        if each.name in table.column_names
        else pa.nulls(table.num_rows, _plain(each.type)).cast(each.type)
        for each in SCHEMA
    ]
    return Segment(pa.Table.from_arrays(arrays, schema=SCHEMA), alive_at, owner, parts)


class JournalFolder:
    """The segments of a location."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def write(self, name: SegmentName, segment: Segment) -> int:
        """Write a segment as a whole; its size."""
        content = encode(segment)
        self._blobs.write(name.path, content)
        return len(content)

    def names(self) -> list[SegmentName]:
        """All segments, oldest first."""
        found = map(SegmentName.of, self._blobs.list(names.JOURNAL_FOLDER))
        return sorted(name for name in found if name is not None)

    def read(self, since: float | None = None, until: float | None = None) -> JournalContent:
        """Entries from one time up to another."""
        segments: dict[str, Segment] = {}
        content = JournalContent(SCHEMA.empty_table())
        for name in _wanted(self.names(), since, until):
            try:
                segments[name.path] = self._segment(name)
            except (CorruptState, LocationError) as error:
                content.damaged.append(error._message)
        for path in [part for segment in segments.values() for part in segment.parts]:
            segments.pop(path, None)
        if segments:
            last = max(segments.values(), key=lambda segment: segment.alive_at)
            content.alive_at, content.owner = last.alive_at, last.owner
            content.entries = _between(_together(segments.values()), since, until)
        return content

    def tidy(self, bytes_max: int = BYTES_MAX) -> None:
        """Put small segments together, and remove the oldest beyond a size; none may be open."""
        self._merge(self.names())
        known = self.names()
        sizes = [self._blobs.size(name.path) for name in known]
        total = sum(sizes)
        for name, size in zip(known[:-1], sizes, strict=False):  # never the newest
            if total <= bytes_max:
                return
            self._blobs.delete(name.path)
            total -= size

    def _segment(self, name: SegmentName) -> Segment:
        content = self._blobs.read(name.path).to_pybytes()
        return decode(content, self._blobs.full_name(name.path))

    def _merge(self, known: Sequence[SegmentName]) -> None:
        """Neighbours only, so that names still say where entries are."""
        several: dict[SegmentName, Segment] = {}
        size = 0
        for name in known:
            length, segment = self._blobs.size(name.path), None
            if length < SMALL_BYTES:
                with contextlib.suppress(CorruptState):  # it stays as it is
                    segment = self._segment(name)
            if segment is None or size + length > 2 * SMALL_BYTES:
                self._put_together(several)
                several, size = {}, 0
            if segment is not None:
                several[name] = segment
                size += length
        self._put_together(several)

    def _put_together(self, several: Mapping[SegmentName, Segment]) -> None:
        if len(several) < 2:
            return
        first, *others = several
        last = max(several.values(), key=lambda segment: segment.alive_at)
        # The whole names its parts: after a crash between, they do not count twice.
        parts = tuple(name.path for name in others)
        entries = _together(several.values())
        self.write(first, Segment(entries, last.alive_at, last.owner, parts))
        self._blobs.delete_all(parts)


def _together(segments: Iterable[Segment]) -> pa.Table:
    """All entries, by time."""
    found = pa.concat_tables(segment.entries for segment in segments)
    return found.unify_dictionaries().combine_chunks().sort_by("time")


def _wanted(
    known: Sequence[SegmentName], since: float | None, until: float | None
) -> list[SegmentName]:
    """Segments that may have entries of a time: the next one of a run says where one ends."""
    next_of: dict[str, int] = {}
    found = []
    for name in reversed(known):
        ended_ms = next_of.get(name.run)
        next_of[name.run] = name.started_ms
        is_over = since is not None and ended_ms is not None and ended_ms < 1000 * since
        if not is_over and (until is None or name.started_ms <= 1000 * until):
            found.append(name)
    return found[::-1]


def _between(entries: pa.Table, since: float | None, until: float | None) -> pa.Table:
    time = entries["time"].cast(pa.int64())
    if since is not None:
        entries = entries.filter(pc.greater_equal(time, round(since * 1e6)))
        time = entries["time"].cast(pa.int64())
    if until is not None:
        entries = entries.filter(pc.less_equal(time, round(until * 1e6)))
    return entries
