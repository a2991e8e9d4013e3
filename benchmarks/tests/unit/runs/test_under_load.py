"""A query under load: moves are followed to their end, or given up."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.tests.unit.runs.pretended import FailedMove, Move, Query

from anabranch.errors import AnabranchError
from anabranch_bench.results.cases import Case
from anabranch_bench.runs.under_load import Moment, UnderLoad

LIVE = Case.parse("live")


class Side:
    """Its moves are given."""

    service = None

    def __init__(self, *moves: Move) -> None:
        self._moves = list(moves)

    def begin_move(self, *_: Any) -> Move:
        return self._moves.pop(0)


def under_load(query: Query, *moves: Move, **more: Any) -> UnderLoad:
    moments: list[Moment] = []
    load, side = query.open(1000.0), Side(*moves)
    return UnderLoad(side, query, load, moments.append, 0.01, **more)  # type: ignore[arg-type]


def test_it_lasts_until_no_move_runs() -> None:
    query = Query()
    under = under_load(query, Move(query, 8), Move(query, 4))
    under.begin_move(LIVE, 3)
    under.watch(0.01)
    under.begin_move(LIVE, 2)
    under.follow()
    first, second = (move.measured(under.load).window for move in under.moves)
    assert first.start < second.start
    assert max(first.end, second.end) <= under.ended <= under.seconds


def test_without_a_move_there_is_nothing_to_follow() -> None:
    under = under_load(Query())
    under.watch(0.05)
    under.follow()
    assert under.ended == 0.0
    assert under.query.batches


def test_a_move_that_does_not_end_is_given_up() -> None:
    query = Query()
    under = under_load(query, Move(query, float("inf")), move_seconds_max=0.05)
    with pytest.raises(AnabranchError, match="has not ended after"):
        under.move(LIVE, 3)


def test_a_move_that_failed_is_not_waited_for_again() -> None:
    query = Query()
    under = under_load(query, FailedMove(query), Move(query))
    with pytest.raises(AnabranchError, match="no"):
        under.move(LIVE, 3)
    assert under.move(LIVE, 2).report == {"groups": 1}


def test_what_is_told() -> None:
    query = Query()
    under = under_load(query, Move(query, 3))
    shown: list[Moment] = []
    under.show = shown.append
    under.begin_move(LIVE, 3)
    under.follow()
    assert [moment.phase for moment in shown] == ["load"] * len(shown)
    assert shown[-1].progress is None, "it has ended"
    assert shown[0].rows > 0
    assert shown[0].latency is not None
