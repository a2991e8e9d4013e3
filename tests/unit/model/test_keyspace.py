"""Key groups and bins of hashes, and the order that files keep them in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.keyspace import KeySpace, SiteSpace


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.sampled_from([KeySpace(8, 4), KeySpace(1, 1), KeySpace(3, 5), KeySpace(1, 7)]),
    st.booleans(),
)
def test_order_follows_group_bin_and_hash(
    numbers: list[int], keyspace: KeySpace, by_bin: bool
) -> None:
    hashes = np.array([*numbers, -(2**63), 2**63 - 1, 0, -1], np.int64)
    groups, bins = keyspace.group_of(hashes), keyspace.bin_of(hashes)
    order = keyspace.order_of(hashes, by_bin)
    by_key = order[np.lexsort((hashes, bins * by_bin, groups))]
    assert not np.any(by_key[1:] < by_key[:-1])
    for group, bin_, own in zip(groups.tolist(), bins.tolist(), order.tolist(), strict=True):
        (first,), (last,) = keyspace.order_ranges([group], [bin_] if by_bin else None, by_bin)
        assert first <= own <= last
        (first,), (last,) = keyspace.order_ranges([group], None, by_bin)
        assert np.array_equal((first <= order) & (order <= last), groups == group)


SPACES = st.builds(
    lambda groups, width, declared, spare: SiteSpace(
        groups, width, max(1, groups // width - len(declared) - spare), tuple(declared)
    ),
    st.sampled_from([64, 100, 256, 1000]),
    st.sampled_from([1, 3, 4, 8]),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5, unique=True),
    st.integers(0, 1),
)
LONGS = st.integers(-(2**63), 2**63 - 1)


@given(SPACES, st.lists(st.tuples(LONGS, LONGS), min_size=1, max_size=30))
def test_keys_are_in_the_key_groups_of_their_site(
    space: SiteSpace, keys: list[tuple[int, int]]
) -> None:
    keys += [(number, site) for site in space.declared for number in (-(2**63), 2**63 - 1, 0)]
    hashes, sites = (np.array(column, np.int64) for column in zip(*keys, strict=True))
    placed = space.place(hashes, sites)
    for group, site in zip(KeySpace(space.groups).group_of(placed).tolist(), sites, strict=True):
        assert group in space.groups_of(int(site))
        assert len(space.groups_of(int(site))) == space.width


@given(SPACES, LONGS)
def test_a_declared_site_shares_with_nobody(space: SiteSpace, other: int) -> None:
    sites = [*space.declared, *({other} - set(space.declared))]
    groups = [set(space.groups_of(site)) for site in sites]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert all(group < space.groups for group in set().union(*groups))
    assert space.capacity >= len(space.declared)


def test_keys_of_a_site_are_spread_over_its_key_groups_and_their_bins() -> None:
    chance = np.random.default_rng(5)
    hashes = chance.integers(-(2**63), 2**63, 32_000, dtype=np.int64)
    space, keyspace = SiteSpace(256, 8, 4, (77,)), KeySpace(256, 16)
    placed = space.place(hashes, np.full(len(hashes), 77))
    counts = np.bincount(keyspace.group_of(placed) * 16 + keyspace.bin_of(placed))
    assert len(counts) == 8 * 16
    assert counts.min() > 0.7 * 250
    assert counts.max() < 1.3 * 250
    assert len(np.unique(placed)) == len(np.unique(hashes >> 1))
