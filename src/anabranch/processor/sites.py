"""Sites: rows whose keys are together because the value of a column says so, not their hash.

A key group belongs to one site, so the state of a site can be moved as a whole. Which key groups a
site has is part of the description of every operator that uses it: it never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import Int64s, SiteSpace
from anabranch.state.hashing import hash_rows

PLACED_BY = "placed_by"
"""Of an operator's description."""

WIDTH_MAX = 16
"""Key groups that a site has if nobody asks for another number and there are enough."""

WIDTH_UNDECLARED = 4
"""Key groups of a site where no site is declared: they have the more ranges to be spread over."""

SHARED = 4
"""One in so many ranges is for sites that were not declared."""


def hash_of_site(site: str | None) -> int:
    """As Spark computes it."""
    return int(hash_rows([pa.array([site], pa.string())], 1)[0])


@dataclass(frozen=True, slots=True)
class Sites:
    """The sites of a location."""

    names: tuple[str, ...]
    """Those that were declared, in the order of their key groups."""
    space: SiteSpace

    @classmethod
    def of(cls, names: Sequence[str], groups: int, width: int, shared: int) -> Sites:
        """Sites in this order."""
        declared = tuple(map(hash_of_site, names))
        return cls(tuple(names), SiteSpace(groups, width, shared, declared))

    @classmethod
    def first(cls, names: Sequence[str], groups: int, width: int | None = None) -> Sites:
        """The sites of a new location, with room for as many more."""
        if width is None:
            width = _width(len(names), groups)
        ranges = groups // width
        # Without declared sites, those that are not need all that there is.
        shared = max(1, ranges // SHARED) if names else ranges
        return cls.of((), groups, width, shared).with_more(names)

    def with_more(self, names: Iterable[str]) -> Sites:
        """The same with more sites behind those that there are."""
        added = [name for name in dict.fromkeys(names) if name not in self.names]
        space, every = self.space, (*self.names, *added)
        if len(every) > space.capacity:
            raise InvalidArgument(
                f"There are key groups for {space.capacity} declared sites in this location, with "
                f"{space.width} key groups each; {len(every)} were declared. This never changes "
                "once there is state. Use a new location with all sites declared, more key_groups "
                "or fewer site_groups."
            )
        return Sites.of(every, space.groups, space.width, space.shared)

    def groups_of(self, site: str | None) -> tuple[int, ...]:
        """Key groups of a site; other sites have the same ones if it was not declared."""
        return tuple(self.space.groups_of(hash_of_site(site)))

    def by(self, column: Any) -> PlacedBy | None:
        """Placed by a key column; by none where None is given."""
        if column is not None and not isinstance(column, str):
            raise InvalidArgument(f"placed_by must be the name of a key column, got {column!r}.")
        return None if column is None else PlacedBy(column, self)

    @property
    def description(self) -> dict[str, Any]:
        """What must stay the same; sites may be added at the end."""
        return {
            "sites": list(self.names),
            "key_groups_each": self.space.width,
            "shared_ranges": self.space.shared,
        }

    @classmethod
    def described(cls, description: Mapping[str, Any], groups: int) -> Sites:
        """The sites that a description tells of."""
        width, shared = description["key_groups_each"], description["shared_ranges"]
        return cls.of(description["sites"], groups, width, shared)


@dataclass(frozen=True, slots=True)
class PlacedBy:
    """A key column that says at which site a key is."""

    column: str
    sites: Sites

    @property
    def description(self) -> dict[str, Any]:
        """For the operator's description."""
        return {"column": self.column, **self.sites.description}

    def hashes(self, hashes: Int64s, sites: Any) -> Int64s:
        """Hashes of keys as the plan has them; `sites` is the key column."""
        return self.sites.space.place(hashes, hash_rows([sites], len(hashes)))


def described(placed_by: PlacedBy | None) -> dict[str, Any]:
    """The part of an operator's description; nothing where hashes alone say where keys are."""
    return {} if placed_by is None else {PLACED_BY: placed_by.description}


def site_changes(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Why state that was stored by sites cannot be found any more, in words."""
    before, now = stored.get(PLACED_BY), asked.get(PLACED_BY)
    if before == now:
        return []
    if before is None or now is None:
        was, is_now = _by(before), _by(now)
        return [f"placed_by: the state was stored {was}, now keys would be looked for {is_now}"]
    if before["column"] != now["column"]:
        return [f"placed_by: it was {before['column']!r}, now it is {now['column']!r}"]
    for what in ("key_groups_each", "shared_ranges"):
        if before[what] != now[what]:
            return [f"placed_by: {what} was {before[what]}, now it is {now[what]}"]
    known = before["sites"]
    if now["sites"][: len(known)] != known:
        return [f"placed_by: the sites were {', '.join(known)}; they must stay, in this order"]
    return []


def _by(placed: Mapping[str, Any] | None) -> str:
    return "by the hash of the key" if placed is None else f"by the site column {placed['column']}"


def _width(sites: int, groups: int) -> int:
    """Key groups for each site: many, so that a site can be spread over workers where it is."""
    if not sites:
        return min(WIDTH_UNDECLARED, groups)
    width = WIDTH_MAX
    while width > 1 and groups // width - groups // width // SHARED < 2 * sites:
        width //= 2
    return width
