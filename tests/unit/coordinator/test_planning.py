"""Plans go on from the running request and move little twice; a dry run says what a plan costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from anabranch.coordinator.planning import (
    COPY_BYTES_PER_SECOND,
    TargetLayout,
    drained,
    forecast,
    host_drained,
    moved,
    rebalanced,
    rescaled,
)
from anabranch.errors import InvalidArgument
from anabranch.migration.plan import moves_between
from anabranch.model.ids import HostId, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol.host_layout import HostsNow
from anabranch.protocol.placement import HostView

THREE = tuple(WorkerId(name) for name in ("w1", "w2", "w3"))

START = TargetLayout(THREE * 8, THREE)

HERE = START.owners


def test_what_was_drained_stays_away() -> None:
    without = drained(START, HERE, "w1")
    assert without.workers == ("w2", "w3")
    assert rescaled(without, HERE, 2, "minimal") == without
    assert rescaled(without, HERE, 3, "minimal").workers == ("w2", "w3", "w4")
    # Once it is over the name is free again.
    ended = TargetLayout(without.owners, without.workers)
    assert rescaled(ended, ended.owners, 3, "minimal").workers == THREE


def test_after_a_drain_and_a_rescale_lanes_meet_the_owners_of_before() -> None:
    without = drained(START, HERE, "w1")
    again = rescaled(TargetLayout(without.owners, without.workers), without.owners, 3, "minimal")
    assert again.owners == HERE


def test_some_key_groups_move_on_top_of_what_runs() -> None:
    more = rescaled(START, HERE, 4, "minimal")
    also = moved(more, [0], "w2")
    assert also.workers == more.workers
    assert also.owners == ("w2", *more.owners[1:])
    assert rebalanced(also, dict.fromkeys(range(24), 0.0)) == also


def test_to_and_fro_before_anything_has_moved() -> None:
    more = rescaled(START, HERE, 5, "minimal")
    assert rescaled(more, HERE, 3, "minimal").owners == HERE
    fewer = rescaled(START, HERE, 2, "minimal")
    again = rescaled(fewer, HERE, 3, "minimal")
    assert again.workers == THREE
    assert set(Counter(again.owners).values()) == {8}
    assert drained(drained(START, HERE, "w3"), HERE, "w2").owners == ("w1",) * 24


@pytest.mark.parametrize(
    ("first", "then", "last"), [(2, 4, 3), (16, 4, 8), (4, 2, 3), (3, 5, 4), (8, 2, 6)]
)
def test_a_rescale_that_takes_the_place_of_another_moves_no_more_than_alone(
    first: int, then: int, last: int
) -> None:
    workers = tuple(WorkerId(f"w{n + 1}") for n in range(first))
    owners = initial_routing(256, workers).owners
    start = TargetLayout(owners, workers)
    alone = rescaled(start, owners, last, "minimal")
    after = rescaled(rescaled(start, owners, then, "minimal"), owners, last, "minimal")
    assert after == alone
    assert len(moves_between(owners, after.owners)) == len(moves_between(owners, alone.owners))


def test_what_was_chosen_is_kept_by_a_rescale() -> None:
    chosen = moved(START, [0, 3], "w2")  # w1 has 6 of 24 now, w2 10
    fewer = rescaled(chosen, HERE, 2, "minimal")
    assert (fewer.owners[0], fewer.owners[3]) == ("w2", "w2")


def test_numbers_may_be_those_of_numpy() -> None:
    assert rescaled(START, HERE, np.int64(2), "minimal").workers == ("w1", "w2")
    assert moved(START, np.array([1, 3]), "w3").owners[:4] == ("w1", "w3", "w3", "w3")


def test_a_standby_owns_nothing() -> None:
    assert TargetLayout(THREE[:2] * 4, THREE).owning == THREE[:2]


MB = 1 << 20

TWO = tuple(WorkerId(name) for name in ("w1", "w2"))

BEFORE = TargetLayout(TWO * 8, TWO)

AFTER = rescaled(BEFORE, BEFORE.owners, 4, "minimal")

BYTES = dict.fromkeys(range(16), MB)


def test_bytes_and_seconds_are_of_what_moves() -> None:
    found = forecast("live", BEFORE, AFTER, BYTES, 2 * MB)
    assert (len(found.moves), found.bytes, found.seconds) == (8, 8 * MB, 4.0)
    assert "8 key groups, 8.0 MiB in memory, about 4.0 s (nothing was done)" in str(found)


def test_a_restart_brings_everything_again() -> None:
    assert forecast("stop-restart", BEFORE, AFTER, BYTES, 2 * MB).bytes == 16 * MB
    assert forecast("stop-restart", BEFORE, BEFORE, BYTES, 2 * MB).bytes == 0


def test_no_rate_is_better_than_what_memory_gives() -> None:
    found = forecast("pause", BEFORE, AFTER, BYTES, 1 << 50)
    assert found.seconds == 8 * MB / COPY_BYTES_PER_SECOND


@pytest.mark.parametrize(
    ("strategy", "options", "batches"),
    [
        ("live", {}, 1),
        ("live", {"wave": 1}, 4),
        ("meces", {"batch": 1}, 4),
        ("megaphone", {"plan": "fluid"}, 8),
        ("drrs", {"subscale": 1, "concurrency": 1}, 8),
        ("drrs", {"subscale": 1, "concurrency": 8}, 8),
        ("replicate", {}, 1),
        ("pause", {}, 0),
        ("stop-restart", {}, 0),
    ],
)
def test_batches_that_a_strategy_waits_for_take_time(
    strategy: str, options: dict[str, Any], batches: int
) -> None:
    """Eight key groups move, to two targets."""
    at_once = forecast(strategy, BEFORE, AFTER, BYTES, 2 * MB, options)
    found = forecast(strategy, BEFORE, AFTER, BYTES, 2 * MB, options, batch_seconds=10.0)
    assert found.seconds - at_once.seconds == 10.0 * batches


def test_large_key_groups_make_more_waves() -> None:
    large = dict.fromkeys(range(16), 32 * MB)
    at_once = forecast("live", BEFORE, AFTER, large, MB, {"wave": 2})
    found = forecast("live", BEFORE, AFTER, large, MB, {"wave": 2}, batch_seconds=10.0)
    assert found.seconds - at_once.seconds == 30.0  # two at first, then one by one


# -- hosts --

H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")

W = {n: WorkerId(f"w{n}") for n in range(1, 10)}

FOUR = (W[1], W[2], W[3], W[4])

ON_FOUR = TargetLayout(FOUR * 12, FOUR)

AT = {W[1]: H1, W[2]: H2, W[3]: H1, W[4]: H2}


def hosts(at: Mapping[WorkerId, HostId] = AT, capacity: int | None = 3) -> HostsNow:
    views = {host: HostView(capacity) for host in (H1, H2, H3)}
    return HostsNow(views, at=at)


def changed(start: TargetLayout, plan: TargetLayout) -> dict[tuple[WorkerId, WorkerId], int]:
    moves = moves_between(start.owners, plan.owners)
    return Counter((move.source, move.target) for move in moves)


def test_rescale_over_given_hosts() -> None:
    plan = rescaled(ON_FOUR, ON_FOUR.owners, 6, "minimal", hosts(), ["h1", "h3"])
    assert plan.workers == (W[1], W[3], W[5], W[6], W[7], W[8])
    assert plan.hosts == {W[5]: H3, W[6]: H3, W[7]: H3, W[8]: H1}
    assert plan.drained_hosts == {H2}
    assert not plan.lack
    # Later requests go on from there, also before it has ended.
    later = rescaled(plan, plan.owners, 5, "minimal", hosts({**AT, **plan.hosts}))
    assert later.drained_hosts == {H2}
    assert W[2] not in later.workers


def test_what_the_hosts_cannot_hold_is_said() -> None:
    plan = rescaled(ON_FOUR, ON_FOUR.owners, 9, "minimal", hosts(), ["h1", "h2"])
    assert plan.lack == (
        "9 workers do not fit: the hosts can hold 6 (h1 3, h2 3). Or ask for 6 or fewer."
    )
    said = str(forecast("live", ON_FOUR, plan, {}, MB))
    assert "not possible now: 9 workers do not fit" in said
    nowhere = rescaled(ON_FOUR, ON_FOUR.owners, 5, "minimal", HostsNow({}))
    assert nowhere.lack == "5 workers do not fit: no host has joined. Or let a host join."


def test_what_moves_stays_on_its_host_if_it_can() -> None:
    plan = rescaled(ON_FOUR, ON_FOUR.owners, 6, "minimal", hosts(capacity=3), ["h1", "h2"])
    places = {**AT, **plan.hosts}
    assert plan.hosts == {W[5]: H1, W[6]: H2}
    assert all(places[a] == places[b] for a, b in changed(ON_FOUR, plan))
    found = forecast("live", ON_FOUR, plan, dict.fromkeys(range(48), MB), MB, places=AT)
    assert (found.bytes, found.bytes_across_hosts) == (16 * MB, 0)
    assert found.hosts == places


def test_a_host_is_drained_one_worker_for_another() -> None:
    plan = host_drained(ON_FOUR, ON_FOUR.owners, "h2", hosts())
    assert plan.workers == (W[1], W[3], W[5], W[6])
    assert plan.hosts == {W[5]: H3, W[6]: H3}
    assert changed(ON_FOUR, plan) == {(W[2], W[5]): 12, (W[4], W[6]): 12}
    assert plan.drained_hosts == {H2}
    found = forecast("live", ON_FOUR, plan, dict.fromkeys(range(48), MB), MB, places=AT)
    assert found.bytes_across_hosts == found.bytes == 24 * MB
    assert "24.0 MiB leave their host" in str(found)
    assert host_drained(plan, plan.owners, "h2", hosts()).workers == plan.workers


def test_a_drained_host_leaves_fewer_workers_if_there_is_no_room() -> None:
    full = {**AT, W[5]: H3}
    start = TargetLayout(tuple([*FOUR, W[5]] * 12), (*FOUR, W[5]))
    plan = host_drained(start, start.owners, "h1", hosts(full, capacity=2))
    assert plan.workers == (W[2], W[4], W[5], W[6])
    assert plan.hosts == {W[6]: H3}
    assert set(Counter(plan.owners).values()) == {15}
    nobody = HostsNow({H1: HostView(), H2: HostView(0)}, at={W[1]: H1})
    with pytest.raises(InvalidArgument, match=r"h1 cannot be drained: the hosts can hold 0"):
        host_drained(TargetLayout((W[1],) * 4, (W[1],)), (W[1],) * 4, "h1", nobody)


def test_a_host_that_returns_gets_workers_by_a_rebalance() -> None:
    at = {W[1]: H1, W[2]: H2, W[3]: H1, W[4]: H2, W[5]: H1, W[6]: H2}
    six = tuple(at)
    start = TargetLayout(six * 8, six)
    plan = rebalanced(start, dict.fromkeys(range(48), 1.0), hosts(at))
    assert plan.hosts == {W[7]: H3, W[8]: H3}
    assert changed(start, plan) == {(W[5], W[7]): 8, (W[6], W[8]): 8}
    spread = hosts({w: h for w, h in {**at, **plan.hosts}.items() if w in plan.workers})
    assert rebalanced(plan, dict.fromkeys(range(48), 1.0), spread).workers == plan.workers


def test_a_worker_that_is_about_to_end_may_stay() -> None:
    fewer = rescaled(ON_FOUR, ON_FOUR.owners, 2, "minimal", hosts())
    assert fewer.workers == (W[1], W[2])
    more = rescaled(fewer, ON_FOUR.owners, 4, "minimal", hosts(), ["h1", "h2"])
    assert more.workers == FOUR
    elsewhere = rescaled(fewer, ON_FOUR.owners, 4, "minimal", hosts(), ["h1", "h3"])
    assert elsewhere.workers == (W[1], W[3], W[5], W[6])
