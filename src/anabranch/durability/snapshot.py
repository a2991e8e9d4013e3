"""Snapshot files: the whole state of some key groups; a group or its bins can be read alone.

One block for each group and section, entries ordered by bin; the footer has each bin's first row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.durability.frame import (
    HEADER_BYTES,
    TAIL_BYTES,
    Block,
    Footer,
    FrameWriter,
    check_header,
    damaged,
    footer_length,
    open_frame,
    parse_footer,
    read_block,
)
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.state.contract import Sections

_KIND = b"SNAP"
_FOOTER_GUESS_BYTES = 64 * 1024
_GAP_BYTES_MAX = 256 * 1024


def encode_snapshot(
    groups: Mapping[int, Mapping[str, pa.Table]],
    keyspace: KeySpace,
    compression: str | None = None,
) -> list[Any]:
    """A snapshot file as buffers; entries of each section are ordered by bin, or get ordered."""
    writer = FrameWriter(_KIND, compression)
    index: dict[str, dict[str, list[Any]]] = {}
    for group, sections in sorted(groups.items()):
        placed = index[str(group)] = {}
        for name, entries in sections.items():
            if entries.num_rows:
                ordered, first_rows = _by_bin(entries, keyspace)
                placed[name] = [writer.add(ordered), first_rows]
    return writer.finish({"bins": keyspace.bins, "groups": index})


class SnapshotReader:
    """Reads groups or bins out of a snapshot file, in memory or in a store."""

    def __init__(
        self,
        source: Any,
        path: str | None = None,
        *,
        name: str = "snapshot",
        crc: int | None = None,
    ) -> None:
        """`source` is the file's content, or a BlobStore with `path`; `crc` is the manifest's."""
        self._content: Any = None
        self._store: BlobStore | None = None
        self._path = path or ""
        self._ahead: dict[Block, Any] = {}
        if isinstance(source, BlobStore):
            assert path is not None, "a store needs a path"
            self._store, self._name = source, source.full_name(path)
            self._footer = _read_footer(source, path)
        else:
            self._content, self._name = source, name
            self._footer = open_frame(source, _KIND, name)
        if crc is not None and crc != self._footer.crc:
            raise damaged(self._name, "it is not the file that the manifest lists")
        self._index: dict[int, dict[str, tuple[int, list[int]]]] = {
            int(group): placed for group, placed in self._footer.meta["groups"].items()
        }

    @property
    def groups(self) -> tuple[int, ...]:
        """The key groups in this file, also those without entries."""
        return tuple(self._index)

    def read(self, group: int, bins: Collection[int] | None = None) -> Sections:
        """The sections of a group, or of some of its bins; empty ones are left out."""
        if group not in self._index:
            raise damaged(self._name, f"it does not hold key group {group}")
        sections: Sections = {}
        for section, (number, first_rows) in self._index[group].items():
            if bins is not None and not _rows_of(first_rows, bins):
                continue
            block = self._footer.blocks[number]
            entries = read_block(self._block(block), block, self._name)
            if entries.num_rows != first_rows[-1]:
                raise damaged(self._name, f"key group {group} has a wrong number of entries")
            sections[section] = entries if bins is None else _pick(entries, first_rows, bins)
        return sections

    def prefetch(self, groups: Iterable[int]) -> None:
        """Read the blocks of these groups in as few requests as possible; `read` then has them."""
        if self._store is None:
            return
        numbers = [n for group in groups for n, _ in self._index.get(group, {}).values()]
        blocks = [self._footer.blocks[number] for number in sorted(numbers)]
        for run in _runs(blocks):
            start, end = run[0].offset, run[-1].offset + run[-1].length
            content = self._store.read_range(self._path, start, end - start)
            for block in run:
                self._ahead[block] = content.slice(block.offset - start, block.length)

    def _block(self, block: Block) -> Any:
        if self._store is None:
            return self._content.slice(block.offset, block.length)
        ahead = self._ahead.pop(block, None)
        if ahead is not None:
            return ahead
        return self._store.read_range(self._path, block.offset, block.length)


def _by_bin(entries: pa.Table, keyspace: KeySpace) -> tuple[pa.Table, list[int]]:
    if entries.column(0).num_chunks > 1:
        entries = entries.combine_chunks()
    bins = keyspace.bin_of(entries.column(HASH).to_numpy()).astype(np.uint16)
    if np.any(bins[1:] < bins[:-1]):
        order = np.argsort(bins, kind="stable")
        entries, bins = entries.take(pa.array(order)), bins[order]
    edges = np.arange(keyspace.bins + 1, dtype=np.uint16)
    first_rows: npt.NDArray[np.intp] = np.searchsorted(bins, edges, side="left")
    return entries, first_rows.tolist()


def _rows_of(first_rows: list[int], bins: Collection[int]) -> list[tuple[int, int]]:
    """Row ranges (start, count) of the bins that have entries, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for bin_ in sorted(set(bins)):
        start, end = first_rows[bin_], first_rows[bin_ + 1]
        if start == end:
            continue
        if ranges and sum(ranges[-1]) == start:
            start = ranges.pop()[0]
        ranges.append((start, end - start))
    return ranges


def _pick(entries: pa.Table, first_rows: list[int], bins: Collection[int]) -> pa.Table:
    return pa.concat_tables(entries.slice(*rows) for rows in _rows_of(first_rows, bins))


def _read_footer(store: BlobStore, path: str) -> Footer:
    name = store.full_name(path)
    size = store.size(path)
    check_header(store.read_range(path, 0, HEADER_BYTES).to_pybytes(), _KIND, name)
    end = store.read_range(path, max(0, size - _FOOTER_GUESS_BYTES), _FOOTER_GUESS_BYTES)
    tail = end.slice(max(0, end.size - TAIL_BYTES)).to_pybytes()
    length = footer_length(tail, size, name) + TAIL_BYTES
    if length > end.size:
        end = store.read_range(path, size - length, length)
    return parse_footer(end.slice(end.size - length).to_pybytes(), size, _KIND, name)


def _runs(blocks: list[Block]) -> list[list[Block]]:
    """Blocks that are near each other, to be read in one request."""
    runs: list[list[Block]] = []
    for block in blocks:
        if runs:
            last = runs[-1][-1]
            if block.offset - (last.offset + last.length) <= _GAP_BYTES_MAX:
                runs[-1].append(block)
                continue
        runs.append([block])
    return runs
