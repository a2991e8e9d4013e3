"""The rules, one by one, and in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.autoscale.situations import (
    BUSY,
    TARGET,
    Looking,
    batch,
    later,
    load,
    signals,
)

from anabranch.autoscale.decide import decide, gate, is_skewed
from anabranch.autoscale.decision import Action, Rule
from anabranch.autoscale.memory import NOTHING
from anabranch.autoscale.signals import GroupRows, HostUse, Outlook, QueryLoad, Signals
from anabranch.model.ids import HostId

QUICK = TARGET.changed({"scale_down_interval": 20.0})
H1, H2 = HostId("h1"), HostId("h2")


def groups(*rows: float) -> tuple[GroupRows, ...]:
    return tuple(GroupRows(n, "w1" if n < 2 else "w2", each) for n, each in enumerate(rows))


def test_nothing_is_known_yet() -> None:
    found, memory = decide(TARGET, signals(), NOTHING)
    assert (found.action, found.rule) == (Action.HOLD, Rule.NO_DATA)
    assert found.inputs == {}
    assert memory == NOTHING


@pytest.mark.parametrize(
    ("fleet", "rule"),
    [
        ({"is_moving": True}, Rule.MOVING),
        ({"is_moving": True, "recovering": "w3 is starting."}, Rule.MOVING),
        ({"recovering": "w1 is starting."}, Rule.RECOVERING),
    ],
)
def test_a_picture_that_changes_by_itself(fleet: dict[str, Any], rule: Rule) -> None:
    found, _ = decide(TARGET, signals(load(900), **fleet), NOTHING)
    assert found.rule is rule


def test_up_in_two_decisions_with_a_new_batch_between() -> None:
    looking, at = Looking(TARGET), signals(load(300))
    assert looking.asked(at).rule is Rule.CONFIRMING
    assert looking.asked(at).rule is Rule.CONFIRMING  # nothing new was seen
    found = looking.asked(later(at))
    assert (found.action, found.rule, found.to) == (Action.RESCALE, Rule.UP, 5)
    assert "need 4.4 workers" in found.reason
    assert found.inputs["worker_rows_per_second"] == 100
    assert found.to_json()["to"] == 5


def test_one_decision_alone_is_not_enough() -> None:
    looking, at = Looking(TARGET), signals(load(120))
    high = later(later(at, 500), 500)
    assert looking.asked(high).rule is Rule.CONFIRMING
    calm = signals(load(120, start=100))
    assert looking.asked(calm).rule is Rule.ENOUGH
    assert looking.memory.wish is None


def test_never_beyond_max() -> None:
    found = Looking(TARGET).asked(signals(load(900, 8), workers=8))
    assert (found.rule, found.wanted) == (Rule.AT_LIMIT, 15)
    looking = Looking(TARGET)
    found, _ = looking.until(signals(load(900)), 3)
    assert found.to == 8


def test_the_users_limits_count_at_once() -> None:
    found = Looking(TARGET.changed({"min": 4})).asked(signals(load(50)))
    assert (found.rule, found.to) == (Rule.UP, 4)
    found = Looking(TARGET.changed({"max": 2})).asked(signals(load(50, 5), workers=5))
    assert (found.rule, found.to) == (Rule.DOWN, 2)
    full = {H1: HostUse(2, 2)}
    found = Looking(TARGET.changed({"min": 4})).asked(signals(load(50), hosts=full))
    assert found.action is Action.HOLD


def test_down_after_the_interval_to_the_highest_wish() -> None:
    looking, at = Looking(QUICK), signals(load(60, 6), workers=6)
    found, at = looking.until(at, 19)
    assert found.rule is Rule.WAITING_DOWN
    found, at = looking.until(at, 5)
    assert (found.rule, found.to) == (Rule.DOWN, 2)  # one would do, and nobody has shown it


def test_a_step_down_waits_for_a_larger_one_soon() -> None:
    looking = Looking(QUICK)
    _, at = looking.until(signals(load(260, 6), workers=6), 15)
    lower = load(60, 6, start=at.now, seconds=40)
    found = looking.asked(signals(lower, workers=6, now=at.now + 12))
    assert found.rule is Rule.WAITING_DOWN
    assert "soon fewer" in found.reason


def test_one_worker_of_many_is_not_worth_a_move() -> None:
    looking = Looking(QUICK.changed({"max": 20}))
    found, _ = looking.until(signals(load(730, 13), workers=13), 30)
    assert (found.rule, found.wanted) == (Rule.ENOUGH, 13)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"lag_rows": 5000.0}, "rows of q wait, nobody leaves"),
        ({"is_in_batch": True}, "takes long, nobody leaves"),
    ],
)
def test_nobody_leaves_during_a_backlog(query: dict[str, Any], said: str) -> None:
    looking = Looking(QUICK)
    at = signals(load(60, 6), workers=6)
    for _ in range(25):
        at = later(at)
        looking.asked(at)
    if "lag_rows" in query:
        waiting = (replace(b, **query) for b in at.queries[0].batches)
        at = replace(at, queries=(QueryLoad("q", tuple(waiting)),))
        looking.settings = QUICK.changed({"catch_up_duration": 60.0})
    else:
        (of,) = at.queries
        at = replace(at, now=at.now + 10, queries=(replace(of, is_in_batch=True),))
    found = looking.asked(at)
    assert found.action is Action.HOLD
    assert said in found.reason


def test_nobody_leaves_while_the_load_rises() -> None:
    at = signals(load(150, 8), workers=8)
    memory = replace(NOTHING, since=0.0, lows=((at.now - 10, 1),))
    found = Looking(QUICK, memory).asked(at)
    assert found.rule is Rule.WAITING_DOWN
    assert "rising" in found.reason


def test_not_into_memory_pressure() -> None:
    looking = Looking(QUICK)
    at = signals(load(60, 6), workers=6, state_bytes=3300, worker_state_bytes_max=1000)
    found, at = looking.until(at, 30)
    assert (found.rule, found.to) == (Rule.DOWN, 5)
    assert "have memory for the state" in found.reason
    again = Looking(QUICK)
    full = replace(at, fleet=replace(at.fleet, state_bytes=4500))
    found, _ = again.until(full, 30)
    assert found.rule is Rule.WAITING_DOWN


def test_workers_are_not_trusted_with_more_than_twice_what_they_have_shown() -> None:
    looking = Looking(QUICK)
    found, _ = looking.until(signals(load(60, 8, period=1.0, seconds=60), workers=8), 30)
    shown = max(looking.memory.shown.values())
    assert found.to >= 60 / (2 * shown)


def test_what_workers_have_shown_before_is_trusted() -> None:
    """After a day of much there is no reason to come down in small steps."""
    looking = Looking(QUICK)
    looking.asked(signals(load(400, 6), workers=6))
    found, _ = looking.until(signals(load(60, 6, start=100), workers=6), 40)
    assert (found.rule, found.to) == (Rule.DOWN, 1)


def test_a_step_that_brought_nothing_goes_back_and_is_remembered() -> None:
    """Workers share what two cores do: each row costs the more, the more workers there are."""
    looking = Looking(TARGET)
    found, at = looking.until(signals(load(200)), 3)
    assert found.to == 4
    at = looking.done(found, at)
    for _ in range(12):
        last = at.queries[0].batches[-1]
        useful = {f"w{n}": 1.0 for n in range(1, 5)}  # as long as with two
        new = replace(batch(last.started + 1, 200, 4), useful=useful, seconds=1.3)
        query = replace(at.queries[0], batches=(*at.queries[0].batches, new))
        at = Signals(new.ended, (query,), at.fleet)
        found = looking.asked(at)
        if found.is_action:
            break
    assert (found.rule, found.to) == (Rule.TAKEN_BACK, 2)
    at = looking.done(found, at)
    found, at = looking.until(signals(load(200, start=at.now + 100)), 5)
    assert found.rule is Rule.REMEMBERED
    assert "brought nothing" in found.reason
    much_later = signals(load(200, start=at.now + 1000))
    found, _ = looking.until(much_later, 3)
    assert found.rule is Rule.UP


def test_after_a_step_that_brought_nothing_less_than_it_is_still_allowed() -> None:
    looking = Looking(TARGET.changed({"min": 1}))
    memory = looking.memory.took_back(_step(4, 6), 0.0)
    looking.memory = replace(memory, acted=None)
    found, _ = looking.until(signals(load(500)), 3)
    assert (found.rule, found.to) == (Rule.UP, 4)


def _step(before: int, after: int) -> Any:
    from anabranch.autoscale.memory import ScalerStep

    return ScalerStep(0.0, before, after)


def test_a_step_that_brought_what_it_promised_stays() -> None:
    looking = Looking(TARGET)
    found, at = looking.until(signals(load(250)), 3)
    at = looking.done(found, at)
    for _ in range(15):
        at = later(at)
        found = looking.asked(at)
        assert not found.is_action
    assert looking.memory.judged
    assert looking.memory.failed is None


def test_a_step_that_seems_to_bring_little_is_looked_at_longer() -> None:
    looking = Looking(TARGET.changed({"stabilization_interval": 0.5}))
    found, at = looking.until(signals(load(200)), 3)
    at = looking.done(found, at)
    said = []
    for _ in range(10):
        last = at.queries[0].batches[-1]
        useful = {f"w{n}": 1.0 for n in range(1, 5)}
        new = replace(batch(last.started + 1, 200, 4), useful=useful, seconds=1.3)
        query = replace(at.queries[0], batches=(*at.queries[0].batches, new))
        at = Signals(new.ended, (query,), at.fleet)
        said.append(looking.asked(at))
        if said[-1].is_action:
            break
    assert "More batches will tell" in said[-2].reason
    assert said[-1].rule is Rule.TAKEN_BACK
    assert len(said) in (8, 9)


def test_a_step_of_a_query_that_has_ended_is_not_judged() -> None:
    looking = Looking(TARGET)
    found, at = looking.until(signals(load(250)), 3)
    at = looking.done(found, at)
    other = signals(load(50, 4, name="other", start=at.now), workers=4)
    for _ in range(15):
        other = later(other)
        assert looking.asked(other).rule is not Rule.TAKEN_BACK


def test_a_step_is_taken_back_to_min_at_most() -> None:
    looking = Looking(TARGET.changed({"min": 4}))
    step = replace(_step(2, 4), row_seconds_before=0.005, promised=0.0025, query="q")
    looking.memory = replace(looking.memory, step=step, judged=False)
    useful = {f"w{n}": 0.5 for n in range(1, 5)}
    even = tuple(replace(batch(n, 100, 4), useful=useful) for n in range(20))
    found = looking.asked(signals(QueryLoad("q", even), workers=4))
    assert found.rule is not Rule.TAKEN_BACK


def test_after_a_step_it_looks_first() -> None:
    looking = Looking(TARGET)
    found, at = looking.until(signals(load(300)), 3)
    at = looking.done(found, at)
    at = later(at)
    assert looking.asked(at).rule is Rule.STABILIZING
    silent = replace(at, now=at.now + 30)
    assert looking.asked(silent).rule is Rule.STABILIZING  # too few batches since
    assert looking.asked(replace(at, now=at.now + 90)).rule is not Rule.STABILIZING


def test_skew_is_rebalanced_before_workers_come() -> None:
    shares = {"w1": 0.8, "w2": 0.2}
    at = signals(load(110, shares=shares), groups=groups(5, 5, 1, 1))
    assert is_skewed(TARGET, at, NOTHING)
    looking = Looking(TARGET)
    assert looking.asked(at).rule is Rule.CONFIRMING
    at = replace(later(at, shares=shares), fleet=at.fleet)
    found = looking.asked(at)
    assert (found.action, found.rule) == (Action.REBALANCE, Rule.SKEW)
    assert "w1 has 1.6 times" in found.reason
    looking.done(found, at)
    assert looking.memory.rebalanced is not None


def test_a_rebalance_that_brought_nothing_is_not_repeated() -> None:
    shares = {"w1": 0.8, "w2": 0.2}
    at = signals(load(110, shares=shares), groups=groups(5, 5, 1, 1))
    looking = Looking(TARGET)
    looking.memory = looking.memory.rebalancing(-100.0, 1.6)
    found, _ = looking.until(at, 3, shares=shares)
    assert found.rule is Rule.UP
    assert looking.memory.no_rebalance_until > at.now
    helped = Looking(TARGET)
    helped.memory = helped.memory.rebalancing(-100.0, 1.6)
    assert helped.asked(signals(load(100))).rule is Rule.ENOUGH
    assert helped.memory.no_rebalance_until == 0


def test_a_key_group_that_is_too_hot_is_named() -> None:
    shares = {"w1": 0.9, "w2": 0.1}
    hot = (GroupRows(17, "w1", 90.0), GroupRows(1, "w2", 10.0))
    looking = Looking(TARGET)
    found = looking.asked(signals(load(130, shares=shares), groups=hot))
    assert (found.action, found.rule) == (Action.HOLD, Rule.HOT_GROUP)
    assert "Key group 17 (on w1) alone has 90% of the rows" in found.reason


def test_where_there_is_little_to_do_skew_does_not_matter() -> None:
    at = signals(load(20, shares={"w1": 0.8, "w2": 0.2}), groups=groups(5, 5, 1, 1))
    assert Looking(TARGET).asked(at).rule is Rule.WAITING_DOWN


def test_without_rows_of_key_groups_skew_is_not_judged() -> None:
    shares = {"w1": 0.8, "w2": 0.2}
    found, _ = Looking(TARGET).until(signals(load(110, shares=shares)), 3, shares=shares)
    assert found.rule is Rule.UP


def test_overhead_above_the_target() -> None:
    found = Looking(TARGET).asked(signals(load(100, overhead=1.4)))
    assert (found.action, found.rule) == (Action.HOLD, Rule.CANNOT_HELP)
    assert "more workers cannot help" in found.reason


def test_the_query_that_is_late_decides() -> None:
    both = signals(load(50, name="calm"), load(300, name="late"))
    looking = Looking(TARGET)
    looking.asked(both)
    query = both.queries[1]
    newer = replace(query, batches=(*query.batches, batch(40, 300)))
    found = looking.asked(replace(both, now=both.now + 1, queries=(both.queries[0], newer)))
    assert (found.rule, found.query, found.to) == (Rule.UP, "late", 5)


def test_a_load_that_goes_on_climbing_gets_half_as_many_again() -> None:
    looking = Looking(TARGET)
    found, at = looking.until(signals(load(150)), 3)
    assert found.to == 3
    looking.done(found, at)
    higher = signals(load(230, 3, start=at.now + 1), workers=3)
    found, _ = looking.until(higher, 3)
    assert found.to == 5  # 4 would do for now


def test_a_step_down_that_was_wrong_goes_straight_back() -> None:
    looking = Looking(QUICK)
    found, at = looking.until(signals(load(60, 6), workers=6), 40)
    at = looking.done(found, at)
    found, _ = looking.until(signals(load(150, 1, start=at.now + 1), workers=1), 60)
    assert (found.rule, found.to) == (Rule.UP, 6)
    assert "too early" in found.reason


def test_hosts_are_a_limit() -> None:
    full = {H1: HostUse(1, 1), H2: HostUse(1, 1)}
    found, _ = Looking(TARGET).until(signals(load(300), hosts=full), 3)
    assert (found.action, found.rule, found.missing) == (Action.HOLD, Rule.NO_ROOM, 3)
    some = {H1: HostUse(1, 2), H2: HostUse(1, 1)}
    at = signals(load(300), hosts=some)
    looking = Looking(TARGET)
    looking.asked(at)
    found = looking.asked(replace(later(at), fleet=at.fleet))
    assert (found.rule, found.to, found.wanted, found.missing) == (Rule.UP, 3, 5, 2)


def test_failures_back_off() -> None:
    looking, at = Looking(TARGET), signals(load(300))
    looking.memory = looking.memory.not_carried_out(at.now)
    found = looking.asked(at)
    assert found.rule is Rule.BACKING_OFF
    assert "once" in found.reason
    looking.memory = looking.memory.not_carried_out(at.now)
    assert "2 times" in looking.asked(at).reason
    found, _ = looking.until(signals(load(300, start=at.now)), 3)
    assert found.rule is Rule.UP


def test_the_cost_gate() -> None:
    looking = Looking(TARGET)
    up, _ = looking.until(signals(load(300)), 3)
    assert gate(TARGET, up, Outlook(1 << 30, 100), NOTHING).to == 5
    dear = gate(TARGET, up, Outlook(1 << 30, 400), NOTHING)
    assert (dear.action, dear.rule) == (Action.HOLD, Rule.COST)
    assert "1,024 MiB would move for about 400 s" in dear.reason
    wrong_before = replace(NOTHING, correction=0.5)
    assert gate(TARGET, up, Outlook(1 << 30, 400), wrong_before).is_action
    lacking = gate(TARGET, up, Outlook(lack="the hosts can hold 2."), NOTHING)
    assert lacking.rule is Rule.NO_ROOM
    down, _ = Looking(QUICK).until(signals(load(60, 6), workers=6), 30)
    assert gate(QUICK, down, Outlook(1, 29), NOTHING).is_action
    assert gate(QUICK, down, Outlook(1, 31), NOTHING).rule is Rule.COST
    assert gate(TARGET, down, Outlook(1, 149), NOTHING).is_action
    assert gate(TARGET, down, Outlook(1, 151), NOTHING).rule is Rule.COST


def test_a_slow_source_is_named() -> None:
    at = signals(load(20, lag_rows=50_000.0))
    found = Looking(TARGET.changed({"min": 2})).asked(at)
    assert (found.action, found.rule) == (Action.HOLD, Rule.SOURCE_SLOW)
    assert "the source is slow" in found.reason


def test_decisions_as_plain_values() -> None:
    found = Looking(TARGET).asked(signals(load(120)))
    told = found.to_json()
    assert (told["action"], told["rule"], told["to"]) == ("hold", "enough", None)
    assert found.gist == replace(found, reason="Said otherwise.").gist
    assert replace(found, hosts=(H1,)).to_json()["hosts"] == ["h1"]


def test_enough_without_a_target() -> None:
    found = Looking(BUSY).asked(signals(load(120)))
    assert found.rule is Rule.ENOUGH
    assert "busy 70% of the time" in found.reason
