"""Workers over hosts for requests: little movement, capacity holds, errors name hosts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.host_layout import HERE, HostsNow, are_apart, lay_out
from anabranch.protocol.placement import HostView

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")
W1, W2, W3, W4, W5, W6 = (WorkerId(f"w{n}") for n in range(1, 7))

ANY = HostView()


def now(at: dict[WorkerId, HostId], *drained: HostId, **hosts: int | None) -> HostsNow:
    views = {HostId(name): HostView(capacity) for name, capacity in hosts.items()}
    return HostsNow(views, frozenset(drained), at=at)


TWO_EACH = {W1: H1, W2: H2, W3: H3, W4: H1, W5: H2, W6: H3}


@pytest.mark.parametrize(("count", "kept"), [(6, 6), (4, 4), (3, 3), (1, 1)])
def test_the_newest_of_the_fullest_hosts_leave(count: int, kept: int) -> None:
    found = lay_out([*TWO_EACH], [], count, now(TWO_EACH, h1=2, h2=2, h3=2))
    assert [*found.kept] == [W1, W2, W3, W4, W5, W6][:kept]
    assert found.added == ()
    crowded = {W1: H1, W2: H1, W3: H2}
    assert [*lay_out([*crowded], [], 2, now(crowded, h1=None, h2=None)).kept] == [W1, W3]


def test_those_that_come_go_where_the_fewest_are() -> None:
    at = {W1: H1, W2: H1, W3: H2}
    assert lay_out([*at], [], 6, now(at, h1=None, h2=None, h3=None)).added == (H3, H3, H2)
    assert lay_out([*at], [], 7, now(at, h1=2, h2=2, h3=1)).added == (H3, H2, None, None)


def test_those_that_wait_leave_first_and_get_room_first() -> None:
    at = {W2: H1, W3: H2}
    hosts = now(at, h1=2, h2=1)
    assert lay_out([W1, W2, W3], [], 2, hosts).kept == at
    assert lay_out([W1, W2, W3], [], 3, hosts).kept == {W1: H1, W2: H1, W3: H2}
    full = lay_out([W1, W2, W3], [], 5, now(at, h1=1, h2=1))
    assert full.kept == {W1: None, W2: H1, W3: H2}
    assert (full.added, full.lacking) == ((None, None), 3)


def test_workers_of_a_drained_host_are_replaced_elsewhere() -> None:
    found = lay_out([*TWO_EACH], [], 6, now(TWO_EACH, H3, h1=3, h2=3, h3=2))
    assert found.kept == {W1: H1, W2: H2, W4: H1, W5: H2}
    assert found.added == (H1, H2)


def test_spread_evenly_few_leave() -> None:
    at = {W1: H1, W2: H2, W3: H1, W4: H2, W5: H1}
    found = lay_out([*at], [], 5, now(at, h1=None, h2=None, h3=None), is_even=True)
    assert found.kept == {W1: H1, W2: H2, W3: H1, W4: H2}
    assert found.added == (H3,)
    small = lay_out([*at], [], 5, now(at, h1=1, h2=1, h3=None), is_even=True)
    assert (small.kept, small.added) == ({W1: H1, W2: H2}, (H3, H3, H3))


def test_a_worker_that_ends_keeps_its_room_unless_it_may_stay() -> None:
    at = {W1: H1, W2: H2, W3: H2}
    hosts = now(at, h1=2, h2=2)
    assert lay_out([W1, W2], [], 3, hosts).added == (H1,)
    assert lay_out([W1, W2], [], 4, hosts).added == (H1, None)
    assert lay_out([W1, W2], [W3], 4, hosts).added == (H1, H2)


@st.composite
def situations(draw: st.DrawFn) -> tuple[HostsNow, list[WorkerId], int]:
    views = draw(
        st.dictionaries(
            st.sampled_from([H1, H2, H3]),
            st.builds(HostView, st.one_of(st.none(), st.integers(0, 4))),
            min_size=1,
        )
    )
    workers = [WorkerId(f"w{n}") for n in range(1, draw(st.integers(1, 8)) + 1)]
    at: dict[WorkerId, HostId] = {}
    for worker in workers:
        host = draw(st.one_of(st.none(), st.sampled_from(sorted(views))))
        if host is not None:
            capacity = views[host].capacity
            if capacity is None or Counter(at.values())[host] < capacity:
                at[worker] = host
    drained = draw(st.frozensets(st.sampled_from(sorted(views))))
    return HostsNow(views, drained, at=at), workers, draw(st.integers(1, 9))


@given(situations(), st.booleans())
def test_capacity_holds_and_nobody_moves_without_need(
    situation: tuple[HostsNow, list[WorkerId], int], is_even: bool
) -> None:
    hosts, workers, count = situation
    found = lay_out(workers, [], count, hosts, is_even)
    assert len(found.kept) + len(found.added) == count
    usable = hosts.usable
    total = Counter(h for h in (*found.kept.values(), *found.added) if h is not None)
    for host, number in total.items():
        capacity = usable[host].capacity
        assert capacity is None or number <= capacity
    assert all(hosts.at.get(w, h) == h for w, h in found.kept.items())
    if found.lacking:
        assert total == Counter({h: v.capacity or 0 for h, v in usable.items() if v.capacity})
    here = [worker for worker in workers if hosts.at.get(worker) in usable]
    if not is_even:
        assert len([w for w in here if w in found.kept]) == min(count, len(here))
        return
    assert not {hosts.at[w] for w in here if w not in found.kept}.intersection(found.added)
    for host, view in usable.items():  # no host has two more than one with room
        if view.capacity is None or total[host] < view.capacity:
            assert max(total.values(), default=0) - total[host] <= 1


def test_hosts_by_name() -> None:
    hosts = HostsNow({H1: HostView(2), H2: ANY}, frozenset({H2}), {H3: "No beat."})
    assert hosts.only([H2]).drained == {H1}
    assert hosts.only(["h1", "h2"]).drained == frozenset()
    racks = HostsNow({H1: HostView(labels={"rack": "3"}), H2: HostView(labels={"rack": "4"})})
    assert racks.only(["rack=3"]).drained == {H2}
    assert racks.only(["rack=3", "h2"]).drained == frozenset()
    with pytest.raises(InvalidArgument, match="No host has the label rack=5; there are h1, h2"):
        racks.only(["rack=5"])
    assert hosts.as_drained(frozenset()).without(H2).drained == {H2}
    for wrong, message in (
        (["h9"], "There is no host 'h9'; there are h1, h2."),
        (["h3"], "Host h3 is lost (No beat). Hosts that are there: h1, h2."),
        ([], "at least one host"),
        ("h1", "hosts must be a list of names or labels of hosts, got 'h1'."),
        (7, "hosts must be a list of names or labels of hosts, got 7."),
    ):
        with pytest.raises(InvalidArgument, match=r".") as raised:
            hosts.only(wrong)
        assert message in str(raised.value)
    with pytest.raises(InvalidArgument, match="there are none yet"):
        HostsNow({}).known("h1")


def test_the_last_host_cannot_be_drained() -> None:
    hosts = HostsNow({H1: ANY, H2: ANY}, frozenset({H2}))
    with pytest.raises(InvalidArgument, match=r"h1 is the only host .*\(h2 drained before\)"):
        hosts.without(H1)
    with pytest.raises(InvalidArgument, match="driver is the only host that takes workers: "):
        HERE.without(next(iter(HERE.hosts)))


def test_room_in_words() -> None:
    hosts = HostsNow({H1: HostView(2), H2: HostView(3), H3: ANY}, frozenset({H3}))
    assert hosts.describe_room() == "the hosts can hold 5 (h1 2, h2 3)"
    assert hosts.as_drained(frozenset()).room is None
    assert hosts.only([H3]).describe_room() == "the hosts can hold any number (h3 any number)"
    assert HostsNow({H1: ANY}, frozenset({H1})).describe_room() == "no host takes workers"
    assert HostsNow({}).describe_room() == "no host has joined"


def test_apart() -> None:
    assert are_apart(H1, H2)
    assert not are_apart(H1, H1)
    assert not are_apart(None, H1)
    assert not are_apart(H1, None)
