"""Whether sharing key groups out again would help."""

from __future__ import annotations

import pytest

from anabranch.autoscale.balance import balance_of
from anabranch.autoscale.signals import GroupRows


def groups(*rows: float) -> tuple[GroupRows, ...]:
    return tuple(GroupRows(n, f"w{n % 2 + 1}", each) for n, each in enumerate(rows))


def test_without_rows_nobody_knows() -> None:
    assert balance_of((), 2) is None
    assert balance_of(groups(0, 0), 2) is None


def test_sharing_out_helps_where_key_groups_are_many() -> None:
    found = balance_of(groups(5, 1, 5, 1, 5, 1, 5, 1), 2)
    assert found is not None
    assert found.reachable == pytest.approx(1.0)
    assert found.is_worth(1.67)


def test_one_hot_key_group_stays_hot() -> None:
    found = balance_of(groups(6, 1, 1, 1, 1), 4)
    assert found is not None
    assert (found.hottest, found.owner, found.share) == (0, "w1", 0.6)
    assert found.reachable == pytest.approx(2.4)
    assert not found.is_worth(2.5)
    assert found.workers_max == 2
