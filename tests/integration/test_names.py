"""Which operator a query's lanes mean: free names, families, places; with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration import counting
from tests.integration.harness import KEYSPACE, Cluster, FixedClock, rows_of

from anabranch.durability import stored_operators
from anabranch.durability.savepoint import create_savepoint
from anabranch.durability.savepoint_restore import restore_savepoint
from anabranch.durability.store import StateStore
from anabranch.errors import (
    EpochGap,
    InvalidArgument,
    ServiceUnavailable,
    StateMismatch,
)
from anabranch.model.ids import Epoch, Lane
from anabranch.transport.client import Peer
from anabranch.transport.messages.lanes import Begin, Finish


class Clock(FixedClock):
    """Says which queries run."""

    def __init__(self, *running: str) -> None:
        self.running = set(running)

    def is_running(self, operator: str, query_id: str) -> bool | None:
        return query_id in self.running


class Side:
    """What `PlannedSide` reads from Spark's plans."""

    def __init__(self, family: str, queries: dict[str, list[int]]) -> None:
        self.family = family
        self._queries = queries

    def watch(self, operator: str) -> None:
        pass

    def definitions(self, query_id: str) -> list[int]:
        return self._queries.get(query_id, [])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "state", clock=Clock("q1", "q2", "q3")) as cluster:
        yield cluster


def names(cluster: Cluster) -> dict[str, str | None]:
    """Stored operators and their queries."""
    return {each.name: each.query_id for each in cluster.coordinator.bindings.stored()}


def test_a_name_without_a_committed_batch_is_free_once_its_query_has_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    clock = cluster.coordinator._clock
    assert isinstance(clock, Clock)
    rows = rows_of(range(20))
    peer = Peer(cluster.coordinator.address, cluster.coordinator.access.credentials, "it")
    # One of two lanes of the first query does all of its work, and is late with its report.
    begin = Begin("counts", 1, "q1", Epoch(0), Lane(0), 2, 1, False)
    cluster.run_lane(0, 0, 2, rows, query="q1")
    with pytest.raises(StateMismatch, match=r"belongs to query q1.*remove_state\('counts'\)"):
        cluster.run_lane(0, 1, 2, rows, query="q2")
    clock.running.remove("q1")
    # The second query has nothing of it: no state, no cached outputs, no report.
    assert cluster.run_batch(0, range(20), query="q2") == dict.fromkeys(range(20), 1)
    with pytest.raises(ServiceUnavailable, match="defined again"):
        peer.call_patiently(Finish("counts", 1, Epoch(0), Lane(1), 2, (), {}))
    with pytest.raises(ServiceUnavailable, match="q1 has ended"):
        peer.call_patiently(begin)
    assert cluster.run_batch(1, range(20), query="q2") == dict.fromkeys(range(20), 2)
    assert names(cluster) == {"counts": "q2"}
    # From now on the name is taken, also after a restart.
    clock.running = {"q3"}
    with pytest.raises(StateMismatch, match="belongs to query q2"):
        cluster.run_batch(0, [1], query="q3")
    cluster.stop()
    with (
        Cluster(tmp_path / "state", clock=Clock("q3")) as again,
        pytest.raises(StateMismatch, match="belongs to query q2"),
    ):
        again.run_batch(0, [1], query="q3")


def test_a_driver_that_died_in_the_first_batch(tmp_path: Path) -> None:
    """The same query runs that batch again; another one may have the name instead."""
    for query in ("q1", "q2"):
        with Cluster(tmp_path / query, clock=Clock("q1")) as cluster:
            cluster.run_lane(0, 0, 2, rows_of(range(9)), query="q1")
        with Cluster(tmp_path / query, clock=Clock(query)) as cluster:
            assert cluster.run_batch(0, range(9), query=query) == dict.fromkeys(range(9), 1)
            assert names(cluster) == {"counts": query}


def test_each_query_has_state_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    """One definition in two queries; then two definitions in each, in another order."""
    queries: dict[str, list[int]] = {}
    side = Side("K", queries)

    def count(cluster: Cluster, operator: str, epoch: int, query: str) -> int:
        found = cluster.run_batch(epoch, [7], query=query, operator=operator)
        return found[7]

    one = cluster.register(counting.Counting(), "K", side)
    queries["q1"] = queries["q2"] = [one]
    assert [count(cluster, "K", 0, query) for query in ("q1", "q2")] == [1, 1]
    assert [count(cluster, "K", 1, query) for query in ("q2", "q1", "q2")] == [2, 2, 2]
    assert names(cluster) == {"counts": None, "K": "q1", "K-2": "q2"}
    assert not cluster.coordinator.bindings.is_free("K")
    two = cluster.register(counting.Counting(), "K-3", side)
    queries["q3"] = [one, two]
    # The second of its class in the query begins first.
    assert [count(cluster, name, 0, "q3") for name in ("K-3", "K")] == [1, 1]
    assert count(cluster, "K-3", 1, "q3") == 2
    assert names(cluster) == {"counts": None, "K": "q1", "K-2": "q2", "K-3": "q3", "K-4": "q3"}
    with pytest.raises(InvalidArgument, match="was used by a query of this service"):
        cluster.coordinator.bindings.remove("K")
    cluster.stop()
    with Cluster(tmp_path / "state", clock=Clock("q2", "q3")) as again:
        first = again.register(counting.Counting(), "K", side)
        second = again.register(counting.Counting(), "K-2", side)
        queries.update(q2=[second], q3=[first, second])
        assert count(again, "K-2", 2, "q2") == 3
        assert [count(again, name, 1, "q3") for name in ("K-2", "K")] == [2, 2]
        assert again.store.operator("K-3").place == 1
        again.coordinator.bindings.remove("K")
        assert names(again)["K"] is None


def test_an_operator_that_was_renamed(cluster: Cluster, tmp_path: Path) -> None:
    queries: dict[str, list[int]] = {}
    one = cluster.register(counting.Counting(), "Old", Side("Old", queries))
    two = cluster.register(counting.Counting(), "Older", Side("Older", queries))
    queries["q1"] = [one, two]
    for operator in ("Old", "Older"):
        cluster.run_batch(0, [7], query="q1", operator=operator)
    cluster.stop()
    with Cluster(tmp_path / "state", clock=Clock("q1")) as again:
        one = again.register(counting.Counting(), "Old", Side("Old", queries))
        two = again.register(counting.Counting(), "New", Side("New", queries))
        three = again.register(counting.Counting(), "Newer", Side("Newer", queries))
        queries["q1"] = [two, three]  # which is which?
        with pytest.raises(EpochGap, match=r"under 'Older'.*names=\{'NewClass': 'Older'\}"):
            again.run_batch(1, [7], query="q1", operator="New")
        queries["q1"] = [one, two]
        assert again.run_batch(1, [7], query="q1", operator="Old") == {7: 2}
        assert again.run_batch(1, [7], query="q1", operator="New") == {7: 2}
        assert "New" in names(again)


def test_removed_state_is_gone_as_a_whole(tmp_path: Path) -> None:
    with Cluster(tmp_path / "state", clock=Clock("q1", "q2")) as cluster:
        cluster.run_batch(0, [7], query="q1")
    with Cluster(tmp_path / "state", clock=Clock("q1", "q2")) as cluster:
        with pytest.raises(InvalidArgument, match="no operator 'other', only: 'counts'"):
            cluster.coordinator.bindings.remove("other")
        cluster.coordinator.bindings.remove("counts")
        with pytest.raises(EpochGap, match="holds nothing of it"):
            cluster.run_batch(1, [7], query="q1")
        assert cluster.run_batch(0, [7], query="q2") == {7: 1}
        (only,) = cluster.coordinator.bindings.stored()
        assert (only.query_id, only.last_batch) == ("q2", 0)
        assert only.bytes > 0
    # A process that ended in the middle: an error, and then the rest goes too.
    with Cluster(tmp_path / "state", clock=Clock("q2")) as cluster:
        cluster.store.blobs.delete("operators/counts/operator.json")
        stored_operators.remove(cluster.store, "counts")
        assert not cluster.store.blobs.list("operators")


def test_a_savepoint_knows_whose_state_it_has(cluster: Cluster, tmp_path: Path) -> None:
    """Of a class in two queries: by the query of its own checkpoint, else it is not clear."""
    queries: dict[str, list[int]] = {}
    side = Side("K", queries)
    one = cluster.register(counting.Counting(), "K", side)
    queries.update(q1=[one], q2=[one])
    cluster.run_batch(0, [7], query="q1", operator="K")
    for epoch in range(2):
        cluster.run_batch(epoch, [7], query="q2", operator="K")
    savepoint = create_savepoint(cluster.store, cluster.coordinator.store_lock, "both")
    assert savepoint.epochs == {"K": 0, "K-2": 1}
    with StateStore(str(tmp_path / "restored")) as store:
        restore_savepoint(store, savepoint.path, KEYSPACE, lambda step: None)
    with Cluster(tmp_path / "restored", clock=Clock("q2", "q3")) as again:
        one = again.register(counting.Counting(), "K", side)
        queries.update(q2=[one], q3=[one])
        with pytest.raises(StateMismatch, match=r"several queries: 'K' \(query q1\), 'K-2' \(q"):
            again.run_batch(0, [7], query="q3", operator="K")
        assert again.run_batch(2, [7], query="q2", operator="K") == {7: 3}
        assert names(again)["K-2"] == "q2"
