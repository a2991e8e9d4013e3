"""Key groups and bins of hashes, and the order that files keep them in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.keyspace import KeySpace


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
