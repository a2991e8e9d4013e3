"""Settings that cannot be obeyed together are refused, not ignored."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch.processes.worker_config import (
    CHECKPOINTS,
    STATES,
    WorkerConfig,
    check_checkpoint,
    settled_state,
)
from anabranch.state.backend import BACKENDS
from anabranch.transport.auth import Credentials

LIMIT = 64 << 20


def config(**settings: Any) -> WorkerConfig:
    where = Credentials("token"), "127.0.0.1", "state"
    return WorkerConfig("w1", "1", *where, 8, 4, **settings)


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("state", [None, *STATES])
def test_a_state_is_obeyed_or_refused(state: str | None, backend: str, checkpoint: str) -> None:
    """Whatever is accepted is what a worker then does."""
    try:
        settled = settled_state(state, backend, checkpoint, None)
    except InvalidArgument:
        assert state in ("hybrid", "remote")
        assert not config(state=state, backend=backend, checkpoint=checkpoint).reads_keys
        return
    made = config(state=settled, backend=backend, checkpoint=checkpoint)
    assert made.reads_keys == (settled != "local")
    assert state is None or settled == state


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("state", [None, "hybrid", "local", "remote"])
def test_a_limit_is_obeyed_or_refused(state: str | None, backend: str, checkpoint: str) -> None:
    try:
        settled = settled_state(state, backend, checkpoint, LIMIT)
    except InvalidArgument:
        return
    assert backend == "rocksdb" or settled == "hybrid"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sometimes", "memory", "changelog", None), "state must be one of hybrid, local, remote"),
        (("remote", "rocksdb", "changelog", None), "whole key groups to its local disk"),
        (("hybrid", "memory", "independent", None), "rows again on whole key groups"),
        ((None, "memory", "independent", LIMIT), "state_memory_bytes cannot be obeyed"),
        (("local", "memory", "changelog", LIMIT), 'state="local" keeps all'),
        (("remote", "memory", "changelog", LIMIT), 'state="remote" keeps nothing'),
    ],
)
def test_what_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        settled_state(*arguments)


def test_the_default_is_what_is_possible() -> None:
    assert settled_state(None, "memory", "changelog", LIMIT) == "hybrid"
    assert settled_state(None, "rocksdb", "changelog", LIMIT) == "local"
    assert settled_state(None, "memory", "independent", None) == "local"


def test_seconds_are_for_independent_checkpoints() -> None:
    for checkpoint in CHECKPOINTS:
        check_checkpoint(checkpoint, None)
    check_checkpoint("independent", 0.5)
    for checkpoint in ("changelog", "full", "unaligned"):
        with pytest.raises(InvalidArgument, match="snapshot_seconds cannot be obeyed"):
            check_checkpoint(checkpoint, 30.0)
    with pytest.raises(InvalidArgument, match="must be positive"):
        check_checkpoint("independent", 0)


@pytest.mark.parametrize("trusted", [None, b"-----BEGIN CERTIFICATE-----\nx\n-----END"])
def test_settings_cross_the_pipe_as_one_line(trusted: bytes | None) -> None:
    where = Credentials("hush", trusted), "127.0.0.1", "state"
    given = WorkerConfig("w1", "1", *where, 8, 4, backend="rocksdb", local_dir="/x")
    assert "\n" not in given.to_json()
    assert WorkerConfig.from_json(given.to_json()) == given
    assert "hush" not in repr(given)
