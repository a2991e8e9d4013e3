"""Workers over hosts: capacity holds, wishes come first, the rest is spread."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.placement import HostView, Wanted, has_room, place

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")
W1, W2, W3, W4 = (WorkerId(f"w{n}") for n in range(1, 5))


def test_workers_are_spread() -> None:
    hosts = {H1: HostView(), H2: HostView(), H3: HostView(1)}
    wanted = [Wanted(worker) for worker in (W1, W2, W3, W4)]
    assert place(wanted, hosts, {}) == {W1: H1, W2: H2, W3: H3, W4: H1}
    assert place(wanted[:2], hosts, {H1: 2}) == {W1: H2, W2: H3}


def test_among_equals_most_room_counts() -> None:
    assert place([Wanted(W1)], {H1: HostView(2), H2: HostView(3)}, {}) == {W1: H2}


def test_wishes_come_first_and_nobody_takes_their_room() -> None:
    hosts = {H1: HostView(1), H2: HostView(1)}
    wanted = [Wanted(W1), Wanted(W2, (H1,)), Wanted(W3)]
    assert place(wanted, hosts, {}) == {W2: H1, W1: H2}


def test_a_wish_that_cannot_be_met_is_none() -> None:
    hosts = {H1: HostView(1), H2: HostView(1)}
    assert place([Wanted(W1, (H3, H1))], hosts, {H1: 1}) == {W1: H2}
    assert place([Wanted(W1, (H1,))], hosts, {H1: 1, H2: 1}) == {}


def test_a_host_that_was_tried_comes_last() -> None:
    hosts = {H1: HostView(), H2: HostView(1)}
    avoids = Wanted(W1, (H1,), frozenset({H1}))
    assert place([avoids], hosts, {}) == {W1: H2}
    assert place([avoids], hosts, {H2: 1}) == {W1: H1}


def test_room() -> None:
    hosts = {H1: HostView(1), H2: HostView()}
    assert has_room(H1, hosts, {})
    assert not has_room(H1, hosts, {H1: 1})
    assert has_room(H2, hosts, {H2: 100})
    assert not has_room(H3, hosts, {})


HOSTS = st.dictionaries(
    st.sampled_from([H1, H2, H3]),
    st.builds(HostView, st.one_of(st.none(), st.integers(0, 3))),
)


@given(
    HOSTS,
    st.dictionaries(st.sampled_from([H1, H2, H3]), st.integers(0, 3)),
    st.lists(
        st.builds(
            Wanted,
            st.sampled_from([W1, W2, W3, W4]),
            st.lists(st.sampled_from([H1, H2, H3]), max_size=2).map(tuple),
            st.frozensets(st.sampled_from([H1, H2, H3])),
        ),
        unique_by=lambda wanted: wanted.worker,
    ),
)
def test_capacity_holds_and_no_room_is_left_unused(
    hosts: dict[HostId, HostView], runs: dict[HostId, int], wanted: list[Wanted]
) -> None:
    places = place(wanted, hosts, runs)
    after = Counter(runs) + Counter(places.values())
    for host in places.values():
        assert hosts[host].capacity is None or after[host] <= (hosts[host].capacity or 0)
    if len(places) < len(wanted):
        assert not any(has_room(host, hosts, after) for host in hosts)


def test_workers_that_avoid_hosts_choose_first() -> None:
    hosts = {H1: HostView(3), H2: HostView()}
    wanted = [Wanted(W1), Wanted(W2, avoids=frozenset({H1}))]
    assert place(wanted, hosts, {}) == {W1: H1, W2: H2}, "else both would be on h2"
