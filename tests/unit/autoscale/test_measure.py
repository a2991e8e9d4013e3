"""From batches to a model: rates, overhead, arrival, skew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.autoscale.situations import BUSY, OVERHEAD, ROW_SECONDS, TARGET, batch, load

from anabranch.autoscale.measure import QueryModel, has_enough, model_of
from anabranch.autoscale.signals import QueryLoad, SignalBatch


def model(query: QueryLoad, now: float | None = None, workers: int = 2) -> QueryModel:
    return model_of(query, query.batches[-1].ended if now is None else now, workers, TARGET)


def test_the_model_is_found_again() -> None:
    batches = [batch(n, 50 + 10 * (n % 7)) for n in range(30)]
    found = model(QueryLoad("q", tuple(batches)))
    assert found.overhead == pytest.approx(OVERHEAD)
    assert found.rate == pytest.approx(1 / ROW_SECONDS)
    assert found.imbalance == found.skew == 1.0
    assert found.is_fitted


def test_a_part_that_does_not_grow_with_rows_is_overhead() -> None:
    """Each transaction costs 50 ms: the slope does not count them, the overhead does."""

    def dear(at: int, rows: int) -> SignalBatch:
        useful = {"w1": rows * 0.005 + 0.05, "w2": rows * 0.005 + 0.05}
        return SignalBatch(at, OVERHEAD + useful["w1"], rows, useful, 2)

    found = model(QueryLoad("q", tuple(dear(n, 20 + 30 * (n % 3)) for n in range(20))))
    assert found.rate == pytest.approx(100)
    assert found.overhead == pytest.approx(OVERHEAD + 0.05)


def test_garbage_collections_change_nothing() -> None:
    calm = load(100)
    held = tuple(
        replace(b, seconds=b.seconds + 2) if n % 5 == 0 else b for n, b in enumerate(calm.batches)
    )
    assert model(QueryLoad("q", held)).rate == model(calm).rate
    assert model(QueryLoad("q", held)).overhead == pytest.approx(OVERHEAD)


@pytest.mark.parametrize("factor", [3, 1 / 3])
def test_a_step_of_the_load_is_seen_within_seconds(factor: float) -> None:
    before = load(90, seconds=40).batches
    after = [batch(40 + n, round(90 * factor)) for n in range(1, 5)]
    assert model(QueryLoad("q", (*before, *after))).arrival == pytest.approx(90 * factor)


def test_noise_is_no_step() -> None:
    batches = [batch(n, 120 if n % 2 else 80) for n in range(40)]
    assert model(QueryLoad("q", tuple(batches))).arrival == pytest.approx(100, rel=0.02)


def test_rows_stop_coming() -> None:
    query = load(100)
    end = query.batches[-1].ended
    assert model(query, end + 1).arrival == pytest.approx(100)
    assert model(query, end + 60).arrival < 5
    running = replace(query, is_in_batch=True)
    assert model(running, end + 60).arrival == pytest.approx(100)


def test_rows_that_wait_more_and_more_have_come_too() -> None:
    batches = tuple(batch(n, 100, lag_rows=50.0 * n) for n in range(40))
    found = model(QueryLoad("q", batches))
    assert found.arrival == pytest.approx(150)
    assert found.lag == found.backlog == 50.0 * 39


def test_batches_that_stay_too_long_are_a_backlog() -> None:
    slow = tuple(batch(4 * n, 400, seconds=4.0) for n in range(10))
    found = model(QueryLoad("q", slow))
    assert found.backlog == pytest.approx(found.arrival * 3)
    shorter = (*slow[:-1], replace(slow[-1], seconds=2.0))  # it goes away by itself
    assert model(QueryLoad("q", shorter)).backlog == 0
    without_target = model_of(QueryLoad("q", slow), 40.0, 2, BUSY)
    assert without_target.backlog == 0


def test_skew_is_what_persists() -> None:
    """Single batches are uneven in turns; only what is uneven all the time is a skew."""
    turns = [{"w1": 0.7, "w2": 0.3}, {"w1": 0.3, "w2": 0.7}]
    by_turns = tuple(batch(n, 100, shares=turns[n % 2]) for n in range(20))
    found = model(QueryLoad("q", by_turns))
    assert found.imbalance == pytest.approx(1.4)
    assert found.skew == pytest.approx(1.0)
    always = model(load(100, shares={"w1": 0.3, "w2": 0.7}))
    assert always.busiest == "w2"
    assert always.skew == pytest.approx(1.4)


def test_a_worker_without_rows_in_a_batch_had_none() -> None:
    only_once = (*load(100).batches[:-1], batch(39, 100, shares={"w1": 0.4, "w2": 0.3, "w9": 0.3}))
    found = model(QueryLoad("q", only_once))
    assert found.skew == pytest.approx(1.0)


def test_batches_without_useful_time_are_even() -> None:
    idle = tuple(SignalBatch(n, 0.3, 1, {"w1": 0.0, "w2": 0.0}, 2) for n in range(5))
    found = model(QueryLoad("q", idle))
    assert found.imbalance == found.skew == 1.0
    assert found.busiest == ""


def test_what_other_numbers_of_workers_did_counts_until_there_is_something_newer() -> None:
    query = load(100, workers=2)
    assert not model(query, workers=4).is_fitted
    newer = tuple(batch(40 + n, 100, 4) for n in range(3))
    both = QueryLoad("q", (*query.batches, *newer))
    assert model(both, workers=4).is_fitted
    assert not model_of(both, 43.0, 4, TARGET, since=41.5).is_fitted


def test_batches_during_a_move_do_not_count_if_there_are_others() -> None:
    moving = tuple(batch(40 + n, 100, is_calm=False, overhead=5.0) for n in range(10))
    both = QueryLoad("q", (*load(100).batches, *moving))
    assert model(both).overhead == pytest.approx(OVERHEAD)
    only = model(QueryLoad("q", moving))
    assert not only.is_fitted
    assert only.overhead == pytest.approx(5.0)


def test_three_batches_with_rows_are_enough() -> None:
    query = load(100, seconds=2)
    assert not has_enough(query)
    assert not has_enough(replace(query, batches=(*query.batches, batch(3, 0, seconds=0.3))))
    assert has_enough(load(100, seconds=3))
    assert model(load(100, seconds=3)).arrival == pytest.approx(100)
