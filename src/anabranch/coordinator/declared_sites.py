"""The sites of a location: what operators there were stored with, and what the program adds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.durability.changelog import CHANGELOG
from anabranch.durability.group_restore import files_of, read_groups
from anabranch.durability.manifest import DEFERRED, FileRef, Manifest
from anabranch.durability.operator_file import OperatorFile
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT
from anabranch.durability.store import StateStore
from anabranch.durability.stored_operators import records
from anabranch.errors import InvalidArgument, StateMismatch
from anabranch.model.keyspace import KeySpace
from anabranch.processor.contract import OperatorDefinition
from anabranch.processor.sites import PLACED_BY, PlacedBy, Sites

KEY = "key."
"""Before the names of key columns in the state of row processors."""


def sites_of(
    store: StateStore, keyspace: KeySpace, declared: Collection[str], site_groups: int | None
) -> Sites:
    """The sites of a location, with those that the program declares.

    What is stored counts: a site keeps its key groups, also when the program names it no more.
    """
    _check(keyspace, declared, site_groups)
    stored = [record.description.get(PLACED_BY) for record in records(store).values()]
    known = [each for each in stored if each is not None]
    if not known:
        return Sites.first(tuple(declared), keyspace.groups, site_groups)
    latest = max(known, key=lambda each: len(each["sites"]))
    found = Sites.described(latest, keyspace.groups)
    if site_groups not in (None, found.space.width):
        raise StateMismatch(
            f"{store.blobs.location} has {found.space.width} key groups for each site, and the "
            f"service was asked for {site_groups}. They never change: leave site_groups out."
        )
    return found.with_more(declared)


def check_added_sites(store: StateStore, stored: OperatorFile, placed_by: PlacedBy | None) -> None:
    """Refuse to declare a site that has state already: it would be looked for elsewhere."""
    before = stored.description.get(PLACED_BY)
    if placed_by is None or before is None or before["column"] != placed_by.column:
        return  # nothing to compare; what does not fit is refused as a change of the operator
    former = Sites.described(before, stored.keyspace.groups)
    added = [name for name in placed_by.sites.names if name not in former.names]
    manifest = store.last(stored.name) or store.before(stored.name, None)
    if not added or manifest is None:
        return
    groups = sorted({group for name in added for group in former.groups_of(name)})
    waiting = set(groups).intersection(manifest.extra.get(DEFERRED, ()))
    if waiting:
        raise StateMismatch(
            f"Rows of operator {stored.name!r} wait in key groups of sites that were not declared. "
            f"Run a batch without the new sites ({', '.join(added)}) first, then add them."
        )
    there = _sites_in(store, manifest, groups, placed_by.column, added)
    if there:
        raise StateMismatch(
            f"Operator {stored.name!r} in {store.blobs.location} has state of "
            f"{', '.join(map(repr, sorted(there)))} already, in key groups that undeclared sites "
            "share. It cannot get key groups of its own there: declare a site before its first "
            "row, or start with all sites in a new location."
        )


def _sites_in(
    store: StateStore, manifest: Manifest, groups: list[int], column: str, asked: list[str]
) -> set[str]:
    """Which of these sites some key of these key groups has, or had since the last snapshot."""
    found: set[str] = set()
    wanted = pa.array(asked, pa.string())
    for entries in _entries(store, manifest, groups):
        for name in (column, KEY + column):
            if name in entries.column_names:
                values = pc.unique(entries.column(name).combine_chunks()).cast(pa.string())
                found.update(values.filter(pc.is_in(values, wanted)).to_pylist())
    return found


def _entries(store: StateStore, manifest: Manifest, groups: list[int]) -> Iterator[pa.Table]:
    snapshots, changelogs = files_of(manifest, groups)
    for kind, refs in ((SNAPSHOT, snapshots), (CHANGELOG, changelogs)):
        for ref, of_ref in refs:
            yield from _sections(store, kind, ref, of_ref, manifest.keyspace).values()


def _sections(
    store: StateStore, kind: bytes, ref: FileRef, groups: list[int], keyspace: KeySpace
) -> Mapping[str, pa.Table]:
    file = PageFile(kind, store.blobs, ref.path, crc=ref.crc, size=ref.bytes)
    return read_groups(file, kind, groups, None, keyspace)


def _check(keyspace: KeySpace, declared: Any, site_groups: Any) -> None:
    names = [declared] if isinstance(declared, str) else list(declared)
    if isinstance(declared, str) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"sites must be a list of names, got {declared!r}.")
    is_whole = isinstance(site_groups, int) and not isinstance(site_groups, bool)
    if site_groups is not None and not (is_whole and 1 <= site_groups <= keyspace.groups):
        raise InvalidArgument(
            f"site_groups must be a whole number from 1 to {keyspace.groups}, got {site_groups!r}."
        )


def open_operator(
    store: StateStore, name: str, definition: OperatorDefinition, keyspace: KeySpace
) -> OperatorFile:
    """What is stored of an operator, which is made if it is new; its sites may have grown."""
    if name in store.operators():
        check_added_sites(store, store.operator(name), definition.placed_by)
    return store.open_operator(name, definition.description, keyspace, definition.unreadable)
