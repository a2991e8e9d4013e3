"""Which hosts get an agent, and when again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.ids import HostId
from anabranch.spark.carriers import LASTING_SECONDS, PAUSE_SECONDS, CarrierPlan

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


def test_every_host_gets_one_job() -> None:
    plan = CarrierPlan()
    assert plan.needed([H2, H1], 0) == [H1, H2]
    plan.began(H1, 0)
    assert plan.needed([H1, H2], 0) == [H2]
    assert plan.needed([], 0) == []


def test_pauses_double_until_an_agent_has_lasted() -> None:
    plan, now, pauses = CarrierPlan(), 0.0, []
    for _ in range(8):
        assert plan.needed([H1], now) == [H1]
        plan.began(H1, now)
        pauses.append(plan.ended(H1, now + 0.5))
        now += 0.5
        assert plan.needed([H1], now + pauses[-1] - 0.1) == []
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    plan.began(H1, now)
    assert plan.ended(H1, now + LASTING_SECONDS) == PAUSE_SECONDS[0]


def test_of_too_many_hosts_those_are_taken_that_fail_least() -> None:
    plan = CarrierPlan(hosts_max=2)
    assert plan.needed([H1, H2, H3], 0) == [H1, H2]
    plan.began(H1, 0)
    plan.began(H2, 0)
    assert plan.needed([H3], 0) == []
    plan.ended(H1, 1)
    assert plan.needed([H1, H2, H3], 100) == [H3]


@given(st.lists(st.tuples(st.sampled_from([H1, H2, H3]), st.floats(0, 50)), max_size=30))
def test_never_two_jobs_for_a_host(steps: list[tuple[HostId, float]]) -> None:
    plan, now = CarrierPlan(hosts_max=2), 0.0
    for host, seconds in steps:
        now += seconds
        for needed in plan.needed([H1, H2, H3], now):
            assert needed not in plan.running
            plan.began(needed, now)
        assert len(plan.running) <= 2
        if host in plan.running:
            plan.ended(host, now)
