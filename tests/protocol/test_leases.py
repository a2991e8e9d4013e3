"""Claims and leases: which agent counts for a host, and for how long."""

from __future__ import annotations

import pytest

from anabranch.model.ids import AgentId, HostId
from anabranch.protocol.leases import Claims, JoinAnswer, LeaseTimes, Loss, OwnLease

H1, H2 = HostId("h1"), HostId("h2")
A, B = AgentId("a"), AgentId("b")
TIMES = LeaseTimes(lease=10.0, beat=1.0, absence=2.0)


def claims() -> Claims:
    """Agent a has joined for h1 at 0 and is heard at 1."""
    found = Claims(TIMES)
    assert found.join(H1, A, 0.0) == (JoinAnswer.WELCOME, None)
    assert found.stream_opened(A, 1, 0.5) is True
    assert found.heard(A, 1.0)
    return found


def test_a_lease_runs_from_when_the_beat_was_sent() -> None:
    lease = OwnLease(10.0, 0.0)
    lease.acknowledged(4.0, 9.0)
    lease.acknowledged(3.0, 9.5)  # answers overtake each other
    assert lease.left(9.5) == 4.5
    assert not lease.is_over(13.9)
    assert lease.is_over(14.0)
    assert lease.left(20.0) == 0.0


def test_a_lease_that_is_over_stays_over() -> None:
    lease = OwnLease(10.0, 0.0)
    lease.acknowledged(9.0, 10.0)
    assert lease.is_over(10.0)
    assert lease.is_over(1.0)


def test_an_agent_keeps_another_one_of_its_host_away() -> None:
    found = claims()
    assert found.join(H1, B, 3.9) == (JoinAnswer.TAKEN, None)
    assert found.join(H1, A, 3.9) == (JoinAnswer.AGAIN, None)
    assert found.join(H2, B, 4.0) == (JoinAnswer.WELCOME, None)
    assert (found.host_of(A), found.host_of(B)) == (H1, H2)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_silent_agent_does_not(breaks: bool) -> None:
    found = claims()
    if breaks:
        found.stream_closed(A, 1, 1.5)
    answer, loss = found.join(H1, B, 1.6 if breaks else 4.0)
    assert answer is JoinAnswer.WELCOME
    assert loss == Loss(H1, A, "It is silent, and another agent has its host.", True)
    assert not found.heard(A, 4.1)
    assert found.stream_opened(A, 2, 4.1) is None
    found.stream_closed(A, 2, 4.1)
    assert found.join(H1, A, 9.9) == (JoinAnswer.GIVEN_UP, None)


def test_a_short_lease_is_all_the_patience_there_is() -> None:
    assert LeaseTimes(lease=2.0, beat=1.0).silence == 2.0
    assert TIMES.silence == 3.0


def test_an_agent_that_is_not_heard_is_given_up() -> None:
    found = claims()
    assert found.next_expiry() == 11.0
    assert found.expire(10.9) == []
    (loss,) = found.expire(11.0)
    assert loss == Loss(H1, A, "Its agent has not been heard for 10 s.", True)
    assert found.next_expiry() is None
    assert found.expire(99.0) == []


def test_an_agent_that_shows_nothing_is_given_up() -> None:
    """It beats, and hangs where it reads the state location."""
    found = Claims(LeaseTimes(lease=10.0, proof=15.0))
    found.join(H1, A, 0.0)
    found.heard(A, 8.0)
    assert found.next_expiry() == 15.0
    assert found.expire(14.9) == []
    (loss,) = found.expire(15.0)
    assert "has not shown in 15 s that it can run workers" in loss.reason
    assert not loss.had_joined
    assert not found.heard(A, 15.1)


def test_an_agent_that_has_joined_shows_nothing_more() -> None:
    found = Claims(LeaseTimes(lease=10.0, proof=15.0))
    found.join(H1, A, 0.0)
    found.stream_opened(A, 1, 8.0)
    found.heard(A, 14.0)
    assert found.expire(16.0) == []


def test_an_agent_whose_stream_stays_broken_is_given_up() -> None:
    found = claims()
    found.stream_closed(A, 1, 3.0)
    assert found.next_expiry() == 5.0
    assert found.expire(4.9) == []
    (loss,) = found.expire(5.0)
    assert "did not come back in 2 s" in loss.reason


def test_a_stream_that_comes_back_is_no_loss() -> None:
    found = claims()
    assert found.stream_opened(A, 2, 3.0) is False
    found.stream_closed(A, 1, 3.1)  # the one before is noticed late
    assert found.next_expiry() == 13.0
    found.stream_closed(A, 2, 4.0)
    assert found.stream_opened(A, 3, 5.0) is False
    assert found.expire(7.0) == []


def test_an_agent_that_never_ran_workers_is_no_lost_host() -> None:
    found = Claims(TIMES)
    found.join(H1, A, 0.0)
    (loss,) = found.expire(10.0)
    assert not loss.had_joined
    assert found.give_up(A, "again") is None
