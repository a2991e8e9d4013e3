"""Where sites go: onto the workers at their host, as a whole, and nothing else moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.coordinator.planning import TargetLayout, drained, rescaled
from anabranch.coordinator.seating import Seating
from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.processor.sites import Sites
from anabranch.protocol.host_layout import HostsNow
from anabranch.protocol.placement import HostView

GROUPS = 64
SITES = Sites.first(["berlin", "paris"], GROUPS)
BERLIN, PARIS = SITES.groups_of("berlin"), SITES.groups_of("paris")
H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")
W = [WorkerId(f"w{n}") for n in range(1, 10)]


def hosts(
    at: Mapping[WorkerId, HostId],
    labels: Mapping[HostId, Mapping[str, str]] | None = None,
    names: tuple[HostId, ...] = (H1, H2, H3),
    capacity: int | None = 3,
) -> HostsNow:
    views = {host: HostView(capacity, (labels or {}).get(host, {})) for host in names}
    return HostsNow(views, at=at)


def layout(workers: int, placed: Mapping[str, str] | None = None) -> TargetLayout:
    owners = initial_routing(GROUPS, W[:workers]).owners
    return TargetLayout(owners, tuple(W[:workers]), placed=placed or {})


THREE = {W[0]: H1, W[1]: H2, W[2]: H3}


def test_a_placed_site_moves_as_a_whole_and_nothing_else_does() -> None:
    seating, now = Seating(SITES), hosts(THREE)
    start = layout(3)
    found = seating.seated(seating.place(start, "berlin", "h3", now), now)
    assert {found.owners[group] for group in BERLIN} == {W[2]}
    rest = [group for group in range(GROUPS) if group not in BERLIN]
    assert [found.owners[g] for g in rest] == [start.owners[g] for g in rest]
    assert found.workers == start.workers
    assert found.placed == {"berlin": "h3"}


def test_a_site_is_spread_over_the_workers_of_its_host() -> None:
    now = hosts({W[0]: H1, W[1]: H2, W[2]: H2, W[3]: H2})
    seating = Seating(SITES)
    found = seating.seated(seating.place(layout(4), "berlin", "h2", now), now)
    count = [sum(found.owners[g] == worker for g in BERLIN) for worker in W[:4]]
    assert count[0] == 0
    assert max(count[1:]) - min(count[1:]) <= 1
    again = seating.seated(found, now)
    assert again.owners == found.owners


def test_a_host_without_workers_gets_one() -> None:
    seating, now = Seating(SITES), hosts({W[0]: H1, W[1]: H2})
    found = seating.seated(seating.place(layout(2), "berlin", "h3", now), now)
    assert found.workers == (W[0], W[1], W[2])
    assert found.hosts == {W[2]: H3}
    assert {group for group in range(GROUPS) if found.owners[group] == W[2]} == set(BERLIN)


def test_a_full_host_is_refused() -> None:
    seating, now = Seating(SITES), hosts({W[0]: H1, W[1]: H2}, capacity=0)
    assert "No host of 'h3' has room" in seating.place(layout(2), "berlin", "h3", now).lack


def test_a_worker_may_be_the_place() -> None:
    now = HostsNow({HostId("driver"): HostView()}, at=dict.fromkeys(W[:3], HostId("driver")))
    seating = Seating(SITES)
    found = seating.seated(seating.place(layout(3), "berlin", "w2", now), now)
    assert {found.owners[group] for group in BERLIN} == {W[1]}


def test_a_label_attracts_its_site_unless_it_was_placed() -> None:
    labels = {H2: {"site": "berlin"}, H3: {"rack": "7"}}
    seating, now = Seating(SITES), hosts(THREE, labels)
    found = seating.seated(layout(3), now)
    assert {found.owners[group] for group in BERLIN} == {W[1]}
    assert found.owners[PARIS[0]] == W[PARIS[0] % 3]
    found = seating.seated(seating.place(layout(3), "berlin", "rack=7", now), now)
    assert {found.owners[group] for group in BERLIN} == {W[2]}
    found = seating.seated(seating.place(found, "berlin", None, now), now)
    assert {found.owners[group] for group in BERLIN} == {W[1]}


def test_a_returned_host_gets_the_worker_that_stood_in_for_it() -> None:
    """Its site was elsewhere with its worker, which another one replaces."""
    labels = {H3: {"site": "berlin"}}
    seating, before = Seating(SITES), hosts(THREE, labels)
    there = seating.seated(layout(3), before)
    away = hosts({W[0]: H1, W[1]: H2, W[2]: H1}, labels, (H1, H2))
    assert seating.seated(there, away).owners == there.owners
    back = hosts({W[0]: H1, W[1]: H2, W[2]: H1}, labels)
    found = seating.seated(there, back)
    assert found.workers == (W[0], W[1], W[3])
    assert found.hosts == {W[3]: H3}
    heirs = {W[2]: W[3]}
    assert found.owners == tuple(heirs.get(owner, owner) for owner in there.owners)


def test_a_lost_or_drained_host_lets_its_site_go() -> None:
    seating, now = Seating(SITES), hosts(THREE)
    placed = seating.seated(seating.place(layout(3), "berlin", "h3", now), now)
    without = now.as_drained(frozenset({H3}))
    plan = rescaled(placed, placed.owners, 2, "minimal", now, ["h1", "h2"])
    found = seating.seated(plan, without)
    assert set(found.owners) == {W[0], W[1]}
    assert found.placed == {"berlin": "h3"}


@given(st.integers(1, 9), st.sampled_from(["h1", "h2", "h3"]), st.integers(1, 9))
def test_a_rescale_keeps_a_site_at_its_host(count: int, host: str, after: int) -> None:
    places = {worker: (H1, H2, H3)[n % 3] for n, worker in enumerate(W[:count])}
    seating, now = Seating(SITES), hosts(places, capacity=None)
    placed = seating.place(layout(count), "berlin", host, now)
    placed = seating.seated(placed, now)
    now = hosts({**places, **placed.hosts}, capacity=None)
    plan = rescaled(placed, placed.owners, after, "minimal", now)
    found = seating.seated(plan, now)
    assert len(found.workers) == after
    at = {**now.at, **found.hosts}
    assert {at[found.owners[group]] for group in BERLIN} == {host}
    assert set(found.owners) <= set(found.workers)


def test_drain_of_the_only_worker_at_a_host_brings_another_one() -> None:
    seating, now = Seating(SITES), hosts(THREE)
    placed = seating.seated(seating.place(layout(3), "berlin", "h3", now), now)
    found = seating.seated(drained(placed, placed.owners, "w3", now), now)
    assert len(found.workers) == 2
    at = {**now.at, **found.hosts}
    assert {at[found.owners[group]] for group in BERLIN} == {H3}
    assert W[2] not in found.workers


def test_what_cannot_be_placed_is_refused() -> None:
    seating, now = Seating(SITES), hosts(THREE)
    start = layout(3)
    with pytest.raises(InvalidArgument, match="There is no host 'h9'; there are h1, h2, h3"):
        seating.place(start, "berlin", "h9", now)
    with pytest.raises(InvalidArgument, match="No host has the label rack=1"):
        seating.place(start, "berlin", "rack=1", now)
    with pytest.raises(InvalidArgument, match="h3 is drained and takes no workers"):
        seating.place(start, "berlin", "h3", now.as_drained(frozenset({H3})))
    with pytest.raises(InvalidArgument, match="on must name a host, a worker or a label, got 7"):
        seating.place(start, "berlin", 7, now)
    with pytest.raises(InvalidArgument, match="site must be the name of a site, got 7"):
        seating.place(start, 7, "h1", now)


def test_undeclared_sites_that_share_key_groups_go_to_one_place() -> None:
    seating, now = Seating(SITES), hosts(THREE)
    names = [f"s{n}" for n in range(40)]
    other = next(n for n in names[1:] if SITES.groups_of(n) == SITES.groups_of(names[0]))
    placed = seating.place(layout(3), names[0], "h1", now)
    assert seating.place(placed, other, "h1", now).placed == {names[0]: "h1", other: "h1"}
    with pytest.raises(InvalidArgument, match=f"'{names[0]}' and '{other}' were not declared"):
        seating.place(placed, other, "h2", now)


def test_key_groups_of_a_placed_site_are_not_moved_one_by_one() -> None:
    seating, now = Seating(SITES), hosts(THREE)
    placed = seating.seated(seating.place(layout(3), "berlin", "h3", now), now)
    elsewhere = list(placed.owners)
    elsewhere[BERLIN[0]] = W[0]
    moved = TargetLayout(tuple(elsewhere), placed.workers, placed=placed.placed)
    with pytest.raises(InvalidArgument, match=r"are of site 'berlin', which belongs to h3. Move"):
        seating.check_move(placed, moved, now)
    free = list(placed.owners)
    free[PARIS[0]] = W[2]
    seating.check_move(placed, TargetLayout(tuple(free), placed.workers), now)


def test_it_says_where_sites_are() -> None:
    seating, now = Seating(SITES), hosts(THREE, {H1: {"site": "paris"}})
    placed = seating.seated(seating.place(layout(3), "berlin", "h3", now), now)
    shown = seating.describe(placed, now)
    assert shown["berlin"] == {
        "key_groups": list(BERLIN),
        "is_declared": True,
        "belongs_to": "h3",
        "workers": ["w3"],
        "hosts": ["h3"],
        "is_there": True,
    }
    assert shown["paris"]["belongs_to"] == "site=paris"
    assert Seating().describe(placed, now) == {}
    assert Seating().seated(placed, now) is placed


def test_what_is_remembered_is_written_once() -> None:
    written: list[Mapping[str, str]] = []
    seating = Seating(SITES, {"berlin": "h1"}, written.append)
    seating.settle({"berlin": "h1"})
    seating.settle({"berlin": "h2"})
    assert written == [{"berlin": "h2"}]
    assert seating.placed == {"berlin": "h2"}
