"""Agents that ask to join: who is let in, who is refused, and what the sentence says."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.coordinator.host_registry import HostRegistry
from anabranch.coordinator.join_check import WORKER_BYTES_MIN
from anabranch.durability.blobs import BlobStore
from anabranch.model.host import HostFacts
from anabranch.model.ids import AgentId, HostId
from anabranch.processes.agent_config import JOINED
from anabranch.processes.agent_proof import Echo, proof, versions
from anabranch.protocol.coordinator_messages import HostJoined, HostLost
from anabranch.protocol.leases import LeaseTimes
from anabranch.transport.messages.hosts import (
    Beat,
    BeatReply,
    Join,
    JoinReply,
    Leave,
    Orders,
    ProveReply,
    ReturnHead,
    StateFolder,
)
from anabranch.transport.messages.kinds import AliveHead

DRIVER = socket.gethostname()
H1, A, B = HostId("h1"), AgentId("a"), AgentId("b")
JOIN = Join(A, HostFacts(H1, 2), "127.0.0.2", JOINED, None, versions())


class Heard:
    """What the registry tells, in its order."""

    def __init__(self) -> None:
        self.events: list[HostJoined | HostLost] = []
        self.changes = 0

    def change(self) -> None:
        self.changes += 1


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def registry(tmp_path: Path, heard: Heard) -> Iterator[HostRegistry]:
    note = heard.events.append
    times = LeaseTimes(lease=0.6, beat=0.05, absence=0.2)
    registry = HostRegistry(BlobStore(str(tmp_path / "state")), "run", note, note, times)
    registry.on_change(heard.change)
    registry.start()
    yield registry
    registry.stop()


def join(registry: HostRegistry, request: Join = JOIN) -> JoinReply:
    reply = registry.call(request)
    assert isinstance(reply, JoinReply)
    return reply


def prove(
    registry: HostRegistry, reply: JoinReply, agent: AgentId = A, folder: str = "."
) -> ProveReply:
    with Echo(agent, "127.0.0.2") as echo:
        answer = registry.call(proof(agent, reply, echo.listens_at, folder))
    assert isinstance(answer, ProveReply)
    return answer


def until(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit, "nothing has happened"
        time.sleep(0.01)


def test_a_host_joins_with_its_order_stream(registry: HostRegistry, heard: Heard) -> None:
    reply = join(registry)
    assert reply.is_accepted
    assert prove(registry, reply) == ProveReply(True, "")
    assert heard.events == []
    orders = registry.stream(Orders(A))
    assert next(orders) == (AliveHead(), {})
    until(lambda: heard.events)
    assert heard.events == [HostJoined(H1, 2, {}, False)]
    assert registry.hosts()[H1].agent == A
    registry.release(H1, "It is not needed.")
    until(lambda: len(heard.events) == 2)
    assert isinstance(heard.events[1], HostLost)
    assert registry.lost() == {H1: "It is not needed."}
    heads = [head for head, _ in orders]
    assert heads[-1] == ReturnHead("It is not needed.", True)
    assert registry.call(Beat(A, ())) == BeatReply(False)


@pytest.mark.parametrize(
    ("field", "name"),
    [("python", "Python"), ("pyarrow", "PyArrow"), ("pyspark", "PySpark"), ("anabranch", "Anabr")],
)
def test_other_versions_are_refused(registry: HostRegistry, field: str, name: str) -> None:
    mine = replace(versions(), anabranch="0.1.0") if field == "anabranch" else versions()
    ours = getattr(mine, field)
    theirs = replace(versions(), **{field: "0.0.1"})
    reply = join(registry, replace(JOIN, versions=theirs))
    if not getattr(versions(), field):  # of a source folder nobody knows it
        assert reply.is_accepted
        return
    assert not reply.is_accepted
    assert reply.is_final
    assert "Host h1 has" in reply.reason
    assert f"{name}" in reply.reason
    assert "0.0.1" in reply.reason
    assert f"the service on {DRIVER} has" in reply.reason
    assert ours in reply.reason


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (HostFacts(H1, 4, {}, WORKER_BYTES_MIN - 1), "Host h1 has 255 MiB"),
        (HostFacts(H1, 0), "Host h1 has no room"),
    ],
)
def test_a_host_that_is_too_small_is_refused(
    registry: HostRegistry, facts: HostFacts, says: str
) -> None:
    reply = join(registry, replace(JOIN, facts=facts))
    assert reply.is_final
    assert says in reply.reason
    assert f"the service on {DRIVER} needs 256 MiB" in reply.reason


def test_memory_limits_the_number_of_workers(registry: HostRegistry, heard: Heard) -> None:
    facts = HostFacts(H1, 5, {}, 3 * WORKER_BYTES_MIN)
    assert prove(registry, join(registry, replace(JOIN, facts=facts))).is_accepted
    next(registry.stream(Orders(A)))
    until(lambda: heard.events)
    assert heard.events[0] == HostJoined(H1, 3, {}, False)


def test_another_folder_under_the_name_of_the_location_is_refused(
    registry: HostRegistry, tmp_path: Path
) -> None:
    reply = join(registry)
    other = tmp_path / "other"
    answer = prove(registry, replace(reply, location=str(other)))
    assert not answer.is_accepted
    assert f"Host h1 cannot run workers of the service on {DRIVER}" in answer.reason
    assert "nonce" in answer.reason
    assert not join(registry).is_accepted, "its claim was not given up"

    reply = join(registry, replace(JOIN, agent=B))
    (other / reply.nonce_path).parent.mkdir(parents=True)
    (other / reply.nonce_path).write_text("of another service")
    answer = prove(registry, replace(reply, location=str(other)), B)
    assert "sees another folder under the name" in answer.reason
    assert str(tmp_path / "state") in answer.reason


def test_what_the_host_writes_must_arrive(registry: HostRegistry, tmp_path: Path) -> None:
    """A folder that was copied, say, is not shared."""
    reply = join(registry)
    copy = tmp_path / "copy" / reply.nonce_path
    copy.parent.mkdir(parents=True)
    copy.write_bytes((tmp_path / "state" / reply.nonce_path).read_bytes())
    answer = prove(registry, replace(reply, location=str(tmp_path / "copy")))
    assert "does not arrive" in answer.reason


def test_a_folder_that_cannot_hold_state_is_refused(tmp_path: Path, heard: Heard) -> None:
    """Said by the agent, which makes the folder; the sentence names both hosts and what to do."""
    (tmp_path / "file").touch()
    wanted = StateFolder(True, str(tmp_path / "file" / "state"))
    note = heard.events.append
    registry = HostRegistry(BlobStore(str(tmp_path)), "run", note, note, state_folder=wanted)
    registry.start()
    try:
        reply = join(registry)
        assert reply.state_folder == wanted
        answer = prove(registry, reply, folder=wanted.wanted or "")
        assert f"Host h1 cannot run workers of the service on {DRIVER}" in answer.reason
        assert f"Files cannot be kept in {wanted.wanted}" in answer.reason
        assert "local_dir=" in answer.reason
        assert "--local-dir" in answer.reason
        reply = join(registry, replace(JOIN, agent=B))
        assert prove(registry, reply, B, str(tmp_path / "new")).is_accepted
        assert (tmp_path / "new").is_dir()
    finally:
        registry.stop()


def test_an_address_at_which_nobody_answers_is_refused(registry: HostRegistry) -> None:
    reply = join(registry)
    with socket.create_server(("127.0.0.2", 0)) as free:
        nobody = f"127.0.0.2:{free.getsockname()[1]}"
    answer = registry.call(proof(A, reply, nobody, "."))
    assert isinstance(answer, ProveReply)
    assert "The address 127.0.0.2 of host h1 cannot be reached from the service's" in answer.reason
    assert DRIVER in answer.reason


def test_an_address_of_somebody_else_is_refused(registry: HostRegistry) -> None:
    reply = join(registry)
    with Echo(B, "127.0.0.2") as echo:
        answer = registry.call(proof(A, reply, echo.listens_at, "."))
    assert isinstance(answer, ProveReply)
    assert "Somebody else answers there" in answer.reason


def test_an_agent_that_leaves_is_lost_at_once(registry: HostRegistry, heard: Heard) -> None:
    assert prove(registry, join(registry)).is_accepted
    orders = registry.stream(Orders(A))
    next(orders)
    registry.call(Leave(A, "Its person has pressed Ctrl-C."))
    until(lambda: len(heard.events) == 2)
    assert heard.events[1] == HostLost(H1, "Its person has pressed Ctrl-C.")


def test_a_silent_agent_is_lost_and_told_so_when_it_comes_back(
    registry: HostRegistry, heard: Heard
) -> None:
    assert prove(registry, join(registry)).is_accepted
    orders = registry.stream(Orders(A))
    next(orders)
    until(lambda: len(heard.events) == 2)
    assert isinstance(heard.events[1], HostLost)
    assert "not been heard" in heard.events[1].reason
    heads = [head for head, _ in registry.stream(Orders(A))]
    assert heads == [ReturnHead("This agent does not count any more.", False)]
    reply = join(registry)
    assert not reply.is_accepted
    assert not reply.is_final
    assert join(registry, replace(JOIN, agent=B)).is_accepted


def test_workers_are_placed_when_as_many_hosts_as_expected_have_joined(
    registry: HostRegistry, heard: Heard
) -> None:
    registry.expect(2, 60)
    for number, agent in enumerate((A, B), 1):
        facts = HostFacts(HostId(f"h{number}"), 2)
        assert prove(
            registry, join(registry, replace(JOIN, agent=agent, facts=facts)), agent
        ).is_accepted
        next(registry.stream(Orders(agent)))
    until(lambda: len(heard.events) >= 2)
    first, second = heard.events[:2]
    assert isinstance(first, HostJoined)
    assert isinstance(second, HostJoined)
    assert (first.others_follow, second.others_follow) == (True, False)


def test_workers_do_not_wait_for_hosts_for_ever(registry: HostRegistry, heard: Heard) -> None:
    registry.expect(2, 0.2)
    assert prove(registry, join(registry)).is_accepted
    orders = registry.stream(Orders(A))
    next(orders)
    until(lambda: len(heard.events) >= 2)
    assert heard.events[:2] == [HostJoined(H1, 2, {}, True), HostJoined(H1, 2, {}, False)]


def test_a_stopping_service_sends_agents_away_for_good(tmp_path: Path, heard: Heard) -> None:
    state = tmp_path / "state"
    registry = HostRegistry(BlobStore(str(state)), "run", heard.events.append, heard.events.append)
    registry.start()
    assert list(state.rglob("nonce"))
    registry.stop()
    assert not list(state.rglob("nonce"))
    assert join(registry).is_final
    heads = [head for head, _ in registry.stream(Orders(A))]
    assert heads == [ReturnHead("The service has stopped.", True)]
