"""How the rate of copies follows the batches."""

from __future__ import annotations

from itertools import pairwise

from anabranch.coordinator.rate_controller import (
    LEAST_BYTES_PER_SECOND,
    MOST_BYTES_PER_SECOND,
    START_BYTES_PER_SECOND,
    RateController,
)

BEFORE = {"a": [1.0] * 10}


class Paced(RateController):
    """Batches follow each other."""

    now = 0.0

    def took(self, operator: str, seconds: float) -> int:
        self.now += seconds
        return self.batch_took(operator, seconds, self.now)


def test_it_grows_while_batches_are_as_before() -> None:
    pacer = Paced(BEFORE)
    rates = [pacer.took("a", 1.0) for _ in range(300)]
    assert rates == sorted(rates)
    assert rates[-1] == MOST_BYTES_PER_SECOND


def test_it_grows_by_time_not_by_batches() -> None:
    """Six batches a second must not make a rate six times as much as one does."""
    slow, quick = Paced({"a": [1.0]}), Paced({"a": [0.1]})
    for _ in range(10):
        slow.took("a", 1.0)
    for _ in range(100):
        quick.took("a", 0.1)
    assert START_BYTES_PER_SECOND < quick.rate < 1.25 * slow.rate


def test_it_never_grows_by_much_at_once() -> None:
    """What a rate does to long batches is known long after."""
    pacer = Paced({"a": [30.0]})
    rates = [pacer.took("a", 30.0) for _ in range(10)]
    assert all(after <= 1.25 * before for before, after in pairwise(rates))
    assert rates[-1] > 4 * rates[0]


def test_an_operator_with_short_batches_does_not_hold_it_back() -> None:
    alone, together = Paced({"slow": [0.5]}), Paced({"slow": [0.5], "quick": [0.01]})
    for _ in range(40):
        alone.took("slow", 0.5)
        together.took("quick", 0.01)
        together.took("slow", 0.5)
    assert together.rate > 0.9 * alone.rate > START_BYTES_PER_SECOND


def test_it_settles_where_batches_take_what_they_took_not_what_they_may() -> None:
    """The more is copied, the longer they take: a rate of 50 MiB a second makes it a fifth more."""
    pacer = Paced({"a": [0.1]})
    costs = [1.0 + 0.2 * pacer.took("a", 0.1) / (50 << 20)]
    for _ in range(600):
        costs.append(1.0 + 0.2 * pacer.rate / (50 << 20))
        pacer.took("a", 0.1 * costs[-1] - 0.004)
    lately = costs[300:]
    assert max(lately) < 1.1
    assert sum(lately) / len(lately) < 1.07


def test_single_slow_batches_do_not_count() -> None:
    pacer = Paced(BEFORE)
    for n in range(30):
        pacer.took("a", 1.5 if n % 3 == 0 else 1.0)
    assert pacer.slowdowns == 0
    assert pacer.rate > START_BYTES_PER_SECOND


def test_slow_batches_halve_it_but_not_to_nothing() -> None:
    pacer = Paced(BEFORE, least=START_BYTES_PER_SECOND >> 9)
    for _ in range(24):
        pacer.took("a", 1.5)
    assert pacer.slowdowns == 8, "it waits to see what each step does"
    assert pacer.rate == START_BYTES_PER_SECOND >> 8
    for _ in range(24):
        pacer.took("a", 1.5)
    assert pacer.rate == pacer.least
    assert pacer.slowdowns == 9, "it was not halved after that"


def test_a_limit_below_the_least_is_never_halved() -> None:
    pacer = Paced(BEFORE, bytes_per_second=500_000)
    for _ in range(6):
        pacer.took("a", 5.0)
    assert pacer.rate == 500_000
    assert pacer.slowdowns == 0


def test_it_never_begins_below_the_least() -> None:
    pacer = Paced(BEFORE, least=2 * START_BYTES_PER_SECOND)
    assert pacer.rate == 2 * START_BYTES_PER_SECOND
    assert pacer.took("a", 5.0) == pacer.rate, "slowing down does not make it faster"


def test_one_very_slow_batch_is_enough() -> None:
    pacer = Paced(BEFORE)
    assert pacer.took("a", 5.0) == START_BYTES_PER_SECOND // 2


def test_the_users_limits_win() -> None:
    pacer = Paced(BEFORE, latency_target=10.0, bytes_per_second=1 << 20)
    assert pacer.rate == 1 << 20
    for _ in range(9):
        assert pacer.took("a", 9.0) == 1 << 20
    assert pacer.slowdowns == 0
    assert pacer.nothing_runs() == 1 << 20


def test_without_batches_before_the_first_one_is_the_measure() -> None:
    pacer = Paced({"a": []})
    pacer.took("a", 2.0)
    for _ in range(6):
        pacer.took("a", 2.0)
    assert pacer.rate > START_BYTES_PER_SECOND


def test_nobody_is_disturbed_while_nothing_runs() -> None:
    pacer = Paced(BEFORE)
    assert pacer.nothing_runs() == 2 * START_BYTES_PER_SECOND


def test_each_operator_has_its_own_measure() -> None:
    """A chain of a slow and a quick operator, as it was before the move."""
    pacer = Paced({"slow": [0.5] * 10, "quick": [0.05] * 10})
    for _ in range(9):
        pacer.took("quick", 0.05)
        pacer.took("slow", 0.5)
    assert pacer.slowdowns == 0
    assert pacer.rate > START_BYTES_PER_SECOND


def test_one_that_is_disturbed_is_enough_whatever_the_others_say() -> None:
    pacer = Paced({"a": [1.0], "b": [0.1]})
    for _ in range(30):
        pacer.took("a", 1.0)
        pacer.took("a", 1.0)
        pacer.took("b", 0.15)
    assert pacer.rate == LEAST_BYTES_PER_SECOND


def test_the_others_do_not_run_ahead_meanwhile() -> None:
    pacer = Paced({"a": [1.0], "b": [0.1]})
    for seconds in [0.15] * 30:
        pacer.took("a", 1.0)
        slow = pacer.took("b", seconds)
    for _ in range(9):
        pacer.took("a", 1.0)
        pacer.took("b", 0.1)
    assert slow < pacer.rate < 2 * slow


def test_as_fast_as_the_user_allows_while_the_query_sleeps() -> None:
    """And then as before: what was allowed to nobody disturbs the first batch."""
    for limit, fastest in ((None, MOST_BYTES_PER_SECOND), (9 << 20, 9 << 20)):
        pacer = Paced(BEFORE, None, limit)
        before = pacer.took("a", 5.0)
        assert pacer.fell_asleep() == fastest
        assert pacer.nothing_runs() == fastest
        assert pacer.woke_up() == before
        assert pacer.took("a", 1.2) == before, "neither quick nor slow"
