"""On which hosts workers shall be."""

from __future__ import annotations

from anabranch.autoscale.signals import FleetSignals, HostUse
from anabranch.autoscale.spread import HostPlan, spread
from anabranch.model.ids import HostId

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


def fleet(uses: dict[HostId, HostUse], released: frozenset[HostId] = frozenset()) -> FleetSignals:
    return FleetSignals(sum(use.workers for use in uses.values()), hosts=uses, released=released)


def test_one_machine_has_room_for_all() -> None:
    assert spread(50, FleetSignals(2)) == HostPlan()


def test_one_host_with_a_limit() -> None:
    assert spread(5, fleet({H1: HostUse(2, 4)})) == HostPlan(missing=1)


def test_workers_that_come_need_no_names_where_all_hosts_are_used() -> None:
    assert spread(6, fleet({H1: HostUse(2, 4), H2: HostUse(2, 4)})) == HostPlan()
    assert spread(10, fleet({H1: HostUse(2, 4), H2: HostUse(2, 4)})) == HostPlan(missing=2)
    assert spread(10, fleet({H1: HostUse(2, 4), H2: HostUse(2)})) == HostPlan()


def test_whole_hosts_are_emptied() -> None:
    three = fleet({H1: HostUse(2), H2: HostUse(2), H3: HostUse(2)})
    assert spread(4, three).names == (H2, H3)
    assert spread(2, three).names == (H3,)
    assert spread(1, three).names == (H3,)
    assert spread(5, three).names is None


def test_the_emptiest_host_goes_first() -> None:
    uneven = fleet({H1: HostUse(3), H2: HostUse(1), H3: HostUse(2)})
    assert spread(4, uneven).names == (H1, H3)


def test_a_host_is_not_emptied_if_the_others_have_no_room() -> None:
    assert spread(2, fleet({H1: HostUse(2, 3), H2: HostUse(1, 1)})).names == (H1,)
    tight = fleet({H1: HostUse(1, 1), H2: HostUse(1, 1), H3: HostUse(2, 2)})
    assert spread(3, tight).names == (H2, H3)


def test_released_hosts_come_back() -> None:
    uses = {H1: HostUse(2), H2: HostUse(0, is_drained=True), H3: HostUse(0, is_drained=True)}
    released = frozenset({H2, H3})
    assert spread(3, fleet(uses, released)).names == (H1, H2)
    assert spread(6, fleet(uses, released)).names == (H1, H2, H3)


def test_hosts_that_a_user_has_drained_are_left_alone() -> None:
    uses = {H1: HostUse(2, 2), H2: HostUse(0, 2, is_drained=True)}
    assert spread(4, fleet(uses)) == HostPlan(missing=2)
