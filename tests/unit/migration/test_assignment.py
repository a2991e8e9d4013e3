"""Assignments: little movement, even shares, less load on the busiest worker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.migration.assignment import Owners, assign, by_load, by_range, minimal
from anabranch.migration.plan import moves_between
from anabranch.model.ids import HostId, WorkerId


def names(count: int) -> tuple[WorkerId, ...]:
    return tuple(WorkerId(f"w{n}") for n in range(1, count + 1))


def owners_of(count: int, groups: int = 128) -> Owners:
    return tuple(names(count)[g % count] for g in range(groups))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Owners, tuple[WorkerId, ...]]:
    known = names(6)
    owners = draw(st.lists(st.sampled_from(known), min_size=1, max_size=40))
    workers = draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    return tuple(owners), tuple(workers)


def test_eight_to_twelve() -> None:
    before = owners_of(8)
    assert len(moves_between(before, minimal(before, names(12)))) == 40  # a third would be 43
    ranges = by_range(128, names(8))
    assert len(moves_between(ranges, by_range(128, names(12)))) == 111


@given(situations())
def test_shares_differ_by_one_at_most(situation: tuple[Owners, tuple[WorkerId, ...]]) -> None:
    owners, workers = situation
    for kind in ("minimal", "range"):
        after = assign(owners, workers, kind)
        assert set(after) <= set(workers)
        shares = Counter(after)
        counts = [shares[worker] for worker in workers]
        assert max(counts) - min(counts) <= 1


@given(situations())
def test_nothing_moves_without_need(situation: tuple[Owners, tuple[WorkerId, ...]]) -> None:
    owners, workers = situation
    after = minimal(owners, workers)
    held, shares = Counter(owners), Counter(after)
    for move in moves_between(owners, after):
        assert move.source not in workers or held[move.source] > shares[move.source]
        assert held[move.target] < shares[move.target]
    assert minimal(after, workers) == after


@pytest.mark.parametrize(("there", "back"), [(3, 2), (2, 3), (5, 8), (8, 3), (1, 7)])
def test_there_and_back_is_as_before(there: int, back: int) -> None:
    before = owners_of(back)
    assert minimal(minimal(before, names(there)), names(back)) == before


@pytest.mark.parametrize(
    ("before", "after", "lanes", "pairs"),
    [(2, 4, 4, 4), (2, 3, 3, 7), (4, 6, 6, 10), (8, 12, 12, 28)],
)
def test_lanes_meet_few_owners(before: int, after: int, lanes: int, pairs: int) -> None:
    owners = minimal(owners_of(before, 256), names(after))
    assert len({(group % lanes, owner) for group, owner in enumerate(owners)}) == pairs


@pytest.mark.parametrize(("begun", "then", "moves"), [(2, 4, 64), (2, 3, 0), (5, 4, 64)])
def test_a_change_of_mind_moves_no_more_than_the_last_wish(
    begun: int, then: int, moves: int
) -> None:
    """From three workers, before anything has moved."""
    present = owners_of(3, 256)
    planned = minimal(present, names(begun))
    after = minimal(planned, names(then), present)
    assert len(moves_between(present, after)) == moves


@given(situations(), st.lists(st.floats(0, 1000, allow_nan=False), min_size=40, max_size=40))
def test_load_on_the_busiest_does_not_grow(
    situation: tuple[Owners, tuple[WorkerId, ...]], loads: list[float]
) -> None:
    owners, _ = situation
    workers = tuple(sorted(set(owners)))
    load = dict(enumerate(loads))

    def most(of: Owners) -> float:
        return max(
            sum(load[g] for g, owner in enumerate(of) if owner == worker) for worker in workers
        )

    after = by_load(owners, workers, load)
    assert most(after) <= most(owners) * (1 + 1e-9)
    assert set(after) <= set(workers)


def test_load_is_spread() -> None:
    w1, w2 = names(2)
    load = {0: 10.0, 1: 10.0, 2: 1.0, 3: 1.0}
    assert by_load((w1, w1, w2, w2), (w1, w2), load).count(w1) < 4
    after = by_load((w1, w1, w2, w2), (w1, w2), load)
    assert {after[0], after[1]} == {w1, w2}


def test_there_may_be_nothing_to_spread() -> None:
    assert by_load((), names(2), {}) == ()
    assert by_load(owners_of(2), names(2), {}) == owners_of(2)


def test_one_heavy_key_group_stays() -> None:
    w1, w2 = names(2)
    assert by_load((w1, w2), (w1, w2), {0: 100.0, 1: 1.0}) == (w1, w2)


def test_unknown_assignment() -> None:
    with pytest.raises(InvalidArgument, match="minimal, range"):
        assign(owners_of(2), names(2), "random")


def on_hosts(count: int, hosts: int) -> dict[WorkerId, HostId]:
    return {worker: HostId(f"h{n % hosts}") for n, worker in enumerate(names(count))}


def crossings(before: Owners, after: Owners, places: dict[WorkerId, HostId]) -> int:
    moves = moves_between(before, after)
    return sum(places[move.source] != places[move.target] for move in moves)


@pytest.mark.parametrize(
    ("before", "after", "hosts", "least"),
    [
        (4, 6, 2, 0),
        (6, 4, 2, 0),
        (2, 4, 2, 0),
        (4, 2, 2, 0),
        (6, 3, 3, 0),
        (3, 4, 3, 21),
        (5, 6, 2, 13),
    ],
)
def test_what_moves_stays_on_its_host_if_it_can(
    before: int, after: int, hosts: int, least: int
) -> None:
    owners, places = owners_of(before), on_hosts(max(before, after), hosts)
    found = minimal(owners, names(after), places=places)
    assert len(moves_between(owners, found)) == len(
        moves_between(owners, minimal(owners, names(after)))
    )
    assert crossings(owners, found, places) == least


@given(situations(), st.integers(1, 4))
def test_hosts_do_not_change_how_much_moves(
    situation: tuple[Owners, tuple[WorkerId, ...]], hosts: int
) -> None:
    owners, workers = situation
    places = on_hosts(6, hosts)
    without, found = minimal(owners, workers), minimal(owners, workers, places=places)
    assert Counter(found) == Counter(without)
    assert len(moves_between(owners, found)) == len(moves_between(owners, without))
    if hosts == 1:
        assert found == without


def test_load_stays_on_its_host_if_it_can() -> None:
    w1, w2, w3, w4 = names(4)
    owners = (w1,) * 8 + (w2,) * 2 + (w3,) * 4 + (w4,) * 2
    places = {w1: HostId("h1"), w2: HostId("h1"), w3: HostId("h2"), w4: HostId("h2")}
    load = dict.fromkeys(range(16), 1.0)
    after = by_load(owners, (w1, w2, w3, w4), load, places=places)
    assert Counter(after) == dict.fromkeys((w1, w2, w3, w4), 4)
    assert crossings(owners, after, places) == 2
    # The worker beside has room, but none of the key groups is small enough for it.
    large = by_load((w1, w1, w2, w3), (w1, w2, w3), {0: 10, 1: 10, 2: 9, 3: 1}, places=places)
    assert large.count(w3) == 2
