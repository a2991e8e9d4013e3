"""Rows that are passed on: not for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol.worker import ForwardRows
from anabranch.transport.auth import Credentials
from anabranch.worker.moves.forwarding import HOPS_MAX, Forwarding
from anabranch.worker.peers import Peers

FORWARD = ForwardRows(1, (KeyGroup(0),), WorkerId("w2"))


def run_after(hops: int) -> Any:
    """A transaction whose rows were passed on so often."""
    return SimpleNamespace(header=SimpleNamespace(hops=hops))


def test_rows_that_go_round_in_circles_come_back_to_the_lane() -> None:
    nothing: Any = None
    forwarding = Forwarding(nothing, Peers(Credentials("token")))
    with pytest.raises(ServiceUnavailable, match="passed on too often"):
        forwarding._forward(run_after(HOPS_MAX), FORWARD)
    with pytest.raises(ServiceUnavailable, match="not known here"):
        forwarding._forward(run_after(HOPS_MAX - 1), FORWARD)
