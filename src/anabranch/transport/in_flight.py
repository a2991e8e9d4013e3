"""What is under way to each address, so that it ends when nobody is there any more.

A socket does not notice that a cable is cut. So whatever waits for another process is noted here,
with a way to cancel it from another thread. It is cancelled when the coordinator says that nobody
is at the address any more, and when nothing comes for so long that the host, or the connection,
must be cut off. Unary calls are not noted: they have deadlines.

A process may work for several services, one after the other too. What a coordinator says of an
address counts for calls of its own service only, which are known by their token: a worker of
another service may have the port by now.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from anabranch.errors import NotReachable
from anabranch.transport.hang_up import hang_up

_log = logging.getLogger("anabranch.transport")

SILENCE_SECONDS = 10.0
"""After so long without anything, the host is probed."""

PROBE_SECONDS_MAX = 4.0
PROBES = 2
"""In vain, one after the other: the host is cut off."""

MUTE_SECONDS = 60.0
"""A process that is there sends signs of life. Without one for so long, its connection is broken.
Native code that keeps Python's lock holds them up: the pool ends such a process as late."""

LOOK_SECONDS = 1.0
IDLE_LOOKS = 30
"""The thread that looks ends after so many looks at nothing."""

GONE_SECONDS = 60.0
"""An address is remembered as gone: whoever was told of it before comes a little later."""

Cancel = Callable[[], object]


class Underway:
    """An exchange, a stream or a patient call with an address; one thread works on it."""

    def __init__(self, in_flight: InFlight, address: str, peer: str, token: str) -> None:
        self.address = address
        self.token = token
        self.peer = peer
        self.reason = ""
        """Why it was cancelled; empty: it was not."""
        self.waits_since: float | None = None
        """When its thread began to wait, or heard something; None: it does something else."""
        self.mute_seconds: float | None = None
        self.cancel: Cancel | None = None
        """None: the call is not open yet."""
        self._in_flight = in_flight

    def opened(self, cancel: Cancel) -> None:
        """From now on it can be cancelled; at once, if that was wanted meanwhile."""
        self.cancel = cancel
        if self.reason:
            cancel()

    @contextmanager
    def waiting(self, mute_seconds: float | None = MUTE_SECONDS) -> Iterator[None]:
        """The thread waits for the other end, which shows signs of life; None: it does not."""
        self.mute_seconds = mute_seconds
        self.waits_since = time.monotonic()
        try:
            yield
        finally:
            self.waits_since = None

    def heard(self) -> None:
        """A sign of life."""
        self.waits_since = time.monotonic()

    def silent_seconds(self) -> float:
        """How long its thread has waited without anything."""
        since = self.waits_since
        return 0.0 if since is None else time.monotonic() - since

    def is_mute(self) -> bool:
        """Whether a sign of life should have come long ago."""
        return self.mute_seconds is not None and self.silent_seconds() > self.mute_seconds

    def end(self) -> None:
        """Nothing waits any more."""
        self._in_flight.ended(self)

    def give_up(self, reason: str) -> None:
        """Cancel it, from any thread."""
        self.reason = self.reason or reason
        if self.cancel is not None:
            _log.info("A call to %s (%s) ends: it %s", self.peer, self.address, self.reason)
            self.cancel()

    def not_reachable(self) -> NotReachable:
        """The error of what was cancelled."""
        error = NotReachable(f"{self.peer} {self.reason}")
        error.address, error.is_cut = self.address, True
        return error


class InFlight:
    """All that this process has under way."""

    def __init__(self, probe: Callable[[str], bool] | None = None) -> None:
        """`probe` tells whether the host of an address answers."""
        self._probe = probe or answers
        self._lock = threading.Lock()
        self._underway: set[Underway] = set()
        self._gone: dict[tuple[str, str], float] = {}
        """By token and address, since when."""
        self._probing: set[str] = set()
        self._looks: threading.Thread | None = None
        self.on_cut: list[Callable[[str], None]] = []
        """Called with an address whose connection is not to be used again."""

    def begin(self, address: str, peer: str, token: str) -> Underway:
        """Note what is about to be opened; refused if nobody is at the address any more."""
        underway = Underway(self, address, peer, token)
        with self._lock:
            self._refuse_gone(address, peer, token)
            self._underway.add(underway)
            if self._looks is None:
                self._looks = threading.Thread(
                    target=self._look, name="anabranch-in-flight", daemon=True
                )
                self._looks.start()
        return underway

    def check(self, address: str, peer: str, token: str) -> None:
        """Refuse a call to an address at which nobody is any more."""
        with self._lock:
            self._refuse_gone(address, peer, token)

    def ended(self, underway: Underway) -> None:
        """It does not wait for anything any more."""
        with self._lock:
            self._underway.discard(underway)

    def gone(self, token: str, *addresses: str) -> None:
        """Nobody of a service is there any more: end what is under way, do not begin anything."""
        now = time.monotonic()
        with self._lock:
            self._gone = {known: t for known, t in self._gone.items() if t > now - GONE_SECONDS}
            self._gone.update(((token, address), now) for address in addresses)
            ended = [
                each for each in self._underway if each.address in addresses and each.token == token
            ]
        for address in addresses:
            self._cut(address)
        for each in ended:
            each.give_up("is gone, says the coordinator.")
        _hang_up(ended)

    def here(self, token: str, *addresses: str) -> None:
        """A new process of the service listens where one was that is gone."""
        with self._lock:
            for address in addresses:
                self._gone.pop((token, address), None)

    def count(self, address: str | None = None) -> int:
        """How much is under way, to an address or at all."""
        with self._lock:
            return sum(address in (None, each.address) for each in self._underway)

    def _refuse_gone(self, address: str, peer: str, token: str) -> None:
        since = self._gone.get((token, address))
        if since is not None and since > time.monotonic() - GONE_SECONDS:
            error = NotReachable(f"{peer} is gone, says the coordinator.")
            error.address = address
            raise error

    def _cut(self, address: str) -> None:
        for listener in self.on_cut:
            listener(address)

    # -- silence --

    def _look(self) -> None:
        idle = 0
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                idle = 0 if self._underway else idle + 1
                if idle >= IDLE_LOOKS:
                    self._looks = None
                    return
                probed = {each.address for each in self._silent()} - self._probing
                self._probing |= probed
            for address in probed:
                threading.Thread(
                    target=self._probe_host, args=(address,), name="anabranch-probe", daemon=True
                ).start()

    def _silent(self) -> list[Underway]:
        """What has waited for too long without anything; the lock is held."""
        return [each for each in self._underway if each.silent_seconds() > SILENCE_SECONDS]

    def _probe_host(self, address: str) -> None:
        try:
            is_there = any(self._probe(address) for _ in range(PROBES))
            with self._lock:
                silent = [each for each in self._silent() if each.address == address]
                ended = [each for each in silent if not is_there or each.is_mute()]
        finally:
            with self._lock:
                self._probing.discard(address)
        if not ended:
            return
        self._cut(address)
        for each in ended:
            if is_there:
                each.give_up(f"has sent nothing for {each.mute_seconds:.0f} s on this connection.")
            else:
                each.give_up(f"is cut off: its host does not answer at {address}.")
        if not is_there:
            _hang_up(ended)


def answers(address: str) -> bool:
    """Whether the host answers: its kernel does, also for a process that is busy or stopped.

    A refusal is an answer too: whoever waits for that process hears it from the connection.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), PROBE_SECONDS_MAX).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _hang_up(given_up: Iterable[Underway]) -> None:
    """To cancel a call does not end it while the kernel has bytes of it that nobody takes."""
    for address in {each.address for each in given_up}:
        hang_up(address)


IN_FLIGHT = InFlight()
"""Of this process."""
