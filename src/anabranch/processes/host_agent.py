"""The agent of a host: joins the coordinator, obeys its orders, fences itself when it is cut off.

One `AgentSession` is one agent as the coordinator counts them. When it ends, for whatever reason,
its workers have ended too. `be_agent` begins another one if that makes sense.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from anabranch.errors import AccessRefused, AnabranchError
from anabranch.model.ids import AgentId
from anabranch.processes.agent_config import JOINED, AgentConfig
from anabranch.processes.agent_proof import Echo, own_address, proof, versions
from anabranch.processes.agent_workers import AgentWorkers
from anabranch.processes.environment import worker_environment
from anabranch.processes.host_limits import flaw_of, host_limits, within
from anabranch.processes.launcher import LocalLauncher
from anabranch.processes.state_folder import folder_here
from anabranch.protocol.leases import LeaseTimes, OwnLease
from anabranch.transport.client import Peer, forget
from anabranch.transport.introduction import introduced
from anabranch.transport.messages.hosts import (
    Beat,
    EndHead,
    EndKind,
    Join,
    JoinReply,
    Leave,
    OrderHead,
    Orders,
    Report,
    ReturnHead,
    StartHead,
)
from anabranch.transport.messages.kinds import AliveHead

_log = logging.getLogger("anabranch.agent")

COORDINATOR = "The coordinator"
CALL_SECONDS_MAX = 5.0
"""For a reply of the coordinator, which has nothing to wait for."""
LEAVE_SECONDS_MAX = 1.0
"""For it to hear that this agent ends; it finds out by itself too."""
PROVE_SECONDS_MAX = 60.0
"""The coordinator reads a file and dials back meanwhile."""
LOOK_SECONDS = 0.2
REOPEN_SECONDS = 0.2
PAUSE_SECONDS = 0.3
PAUSE_SECONDS_MAX = 5.0
"""Between two attempts to join: at first, and at most."""
TAKEN_SECONDS = 15.0
"""How long an agent waits for the place of another one, which may be about to be given up."""

Say = Callable[[str], None]


class EndingKind(Enum):
    """Why a session is over."""

    OVER = "over"
    """The coordinator needs the host no more: the service has stopped, or lets it go."""
    REFUSED = "refused"
    """It would refuse the host every time."""
    TAKEN = "taken"
    """Another agent has the host."""
    ALONE = "alone"
    """The coordinator cannot be reached, or has given this agent up."""
    STOPPED = "stopped"
    """Its carrier ends it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a session."""

    kind: EndingKind
    reason: str


def run_agent(config: AgentConfig, say: Say = _log.info) -> str:
    """Be the agent of a host until that makes no sense any more; returns why, as a sentence.

    Raises nothing but what interrupts: a failed task would count against a Spark job.
    """
    return be_agent(config, say).reason


def be_agent(config: AgentConfig, say: Say) -> Ending:
    """As `run_agent`, with the kind of the end."""
    try:
        limits = host_limits()
        flaw = flaw_of(limits)
        if flaw is not None:
            refusal = f"Host {config.facts.host} cannot run workers: {flaw}"
            say(refusal)
            return Ending(EndingKind.REFUSED, refusal)
        return _Patience(replace(config, facts=within(config.facts, limits)), say).run()
    except Exception as error:
        _log.exception("The agent of host %s has ended", config.facts.host)
        reason = f"The agent has ended by an error: {type(error).__name__}: {error}"
        return Ending(EndingKind.REFUSED, reason)


class _Patience:
    """One session after the other, until there is no hope for another one."""

    def __init__(self, config: AgentConfig, say: Say) -> None:
        self._config, self._say = config, say
        self._said = ""
        self._since: float | None = None
        """Since when nothing has come of it."""

    def run(self) -> Ending:
        """Return when there is none left."""
        pause = PAUSE_SECONDS
        while True:
            session = AgentSession(self._config, self._say_once)
            try:
                ending = session.run()
                self._say_once(ending.reason)
            finally:
                session.close()
            if session.has_joined:
                self._since, pause = None, PAUSE_SECONDS
            if self._is_enough(ending):
                return ending
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _say_once(self, text: str) -> None:
        """Many attempts in a row may fail for the same reason."""
        if text != self._said:
            self._said = text
            self._say(text)

    def _is_enough(self, ending: Ending) -> bool:
        patience = self._config.patience_seconds
        if ending.kind in (EndingKind.REFUSED, EndingKind.STOPPED):
            return True
        if patience is None:
            return False
        if ending.kind is EndingKind.OVER:
            return True
        if ending.kind is EndingKind.TAKEN:
            patience = min(patience, TAKEN_SECONDS)
        self._since = clock() if self._since is None else self._since
        return clock() - self._since >= patience


def clock() -> float:
    """Seconds that also pass while the machine sleeps, where the system tells them."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_time is None else time.clock_gettime(boot_time)


class AgentSession:
    """One agent, from its join until its last worker has ended."""

    def __init__(self, config: AgentConfig, say: Say) -> None:
        self._config, self._say = config, say
        self.agent = AgentId(uuid.uuid4().hex[:12])
        self.has_joined = False
        self._name = f"Host {config.facts.host}"
        self._coordinator = Peer(config.coordinator, config.credentials, COORDINATOR)
        self._ended = threading.Event()
        self._ending = Ending(EndingKind.STOPPED, f"The agent of {self._name} was stopped.")
        self._end_lock = threading.Lock()
        self._lease = OwnLease(CALL_SECONDS_MAX, clock())
        self._launcher: LocalLauncher | None = None
        self._workers: AgentWorkers | None = None
        self._reader = 0
        """Number of the newest thread that reads orders."""
        self._ordered = clock()
        """When an order, or a sign of life, came last."""

    def run(self) -> Ending:
        """Join, and obey until something ends it."""
        where = self._config.coordinator
        try:
            address = self._config.address or own_address(where, CALL_SECONDS_MAX)
            self._meet()
            sent = clock()
            reply = self._join(address)
        except AccessRefused as error:
            return Ending(EndingKind.REFUSED, str(error))
        except (AnabranchError, OSError) as error:
            return Ending(EndingKind.ALONE, f"The service at {where} cannot be reached: {error}")
        if not reply.is_accepted:
            kind = EndingKind.REFUSED if reply.is_final else EndingKind.TAKEN
            return Ending(kind, reply.reason)
        self._lease = OwnLease(reply.lease_seconds, sent)
        self._spawn(lambda: self._beat_on(reply.beat_seconds), "beats")
        self._spawn(self._guard, "guard")
        # It imports all that workers need, while the location is proven.
        folder = folder_here(self._config.local_dir, reply.state_folder.wanted)
        self._launcher = LocalLauncher(worker_environment(reply.environment), keeps_errors=True)
        self._workers = AgentWorkers(
            self.agent,
            self._config.facts.host,
            address,
            folder,
            self._launcher,
            self._report,
        )
        refusal = self._prove(reply, address, folder)
        if refusal is not None:
            return refusal
        self._launcher.warm_up()
        self.has_joined = True
        self._say(f"{self._name} ({address}) has joined the service at {where}.")
        return self._obey_until_end(LeaseTimes(reply.lease_seconds, reply.beat_seconds).silence)

    def close(self) -> None:
        """End all that is left, however the session ends."""
        self._end(self._ending)
        if self._workers is not None:
            self._workers.end_all(EndKind.KILL)
        if self.has_joined and self._ending.kind is EndingKind.STOPPED:
            with contextlib.suppress(AnabranchError):
                self._coordinator.call(Leave(self.agent, self._ending.reason), LEAVE_SECONDS_MAX)
        if self._launcher is not None:
            self._launcher.close()

    # -- join --

    def _meet(self) -> None:
        """Find out whom to trust: each run of a service has another certificate authority."""
        config = self._config
        if config.carrier == JOINED and config.credentials.certificates is None:
            token = config.credentials.token
            credentials = introduced(config.coordinator, token, config.tls)
            self._coordinator = Peer(config.coordinator, credentials, COORDINATOR)

    def _join(self, address: str) -> JoinReply:
        config = self._config
        join = Join(self.agent, config.facts, address, config.carrier, config.executor, versions())
        return self._coordinator.call(join, CALL_SECONDS_MAX)

    def _prove(self, reply: JoinReply, address: str, folder: str) -> Ending | None:
        """Show that this host can run workers; why it cannot."""
        try:
            with Echo(self.agent, address) as echo:
                shown = proof(self.agent, reply, echo.listens_at, folder)
                answer = self._coordinator.call(shown, PROVE_SECONDS_MAX)
        except OSError as error:
            reason = f"{self._name} has no address {address}: {error}. Correct --address."
            return Ending(EndingKind.REFUSED, reason)
        except AnabranchError as error:
            reason = f"The service at {self._config.coordinator} cannot be reached: {error}"
            return Ending(EndingKind.ALONE, reason)
        return None if answer.is_accepted else Ending(EndingKind.REFUSED, answer.reason)

    # -- lease --

    def _beat_on(self, every: float) -> None:
        """Tell that this agent is there; each reply renews the lease."""
        while not self._ended.wait(every):
            running = () if self._workers is None else self._workers.running()
            sent = clock()
            try:
                reply = self._coordinator.call(Beat(self.agent, running), 2 * every)
            except AccessRefused as error:  # another run of the service, or the token was revoked
                self._fence(str(error))
                return
            except AnabranchError:
                forget(self._config.coordinator)  # the next one tries a connection of its own
                continue
            if not reply.counts:
                self._fence(f"The service has given this agent of {self._name} up.")
            self._lease.acknowledged(sent, clock())

    def _guard(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._is_fenced()

    def _is_fenced(self) -> bool:
        """Whether the lease is over; whoever finds out ends the workers first of all."""
        if not self._lease.is_over(clock()):
            return False
        self._fence(
            f"{self._name} has had no answer of the service for {self._lease.seconds:g} s. Its "
            "workers were ended; other hosts take their place."
        )
        return True

    def _fence(self, reason: str) -> None:
        if self._workers is not None:
            self._workers.end_all(EndKind.KILL)
        self._end(Ending(EndingKind.ALONE, reason))

    # -- orders --

    def _obey_until_end(self, silence: float) -> Ending:
        """Have orders read, by another thread whenever the one before hears nothing any more."""
        self._read_orders()
        while not self._ended.wait(LOOK_SECONDS):
            if clock() - self._ordered >= silence:
                forget(self._config.coordinator)
                self._read_orders()
        if self._ending.kind is EndingKind.OVER and self._workers is not None:
            self._workers.end_all(EndKind.STOP)
        return self._ending

    def _read_orders(self) -> None:
        self._reader, self._ordered = self._reader + 1, clock()
        number = self._reader
        self._spawn(lambda: self._obey_all(number), "orders")

    def _obey_all(self, reader: int) -> None:
        """Take orders from one stream after the other, as long as this is the newest reader."""
        while self._is_newest(reader):
            try:
                for parcel in self._coordinator.stream(Orders(self.agent), shows_signs=True):
                    # After a stop of this process, fencing comes before anything else.
                    if not self._is_newest(reader) or self._is_fenced():
                        return
                    self._ordered = clock()
                    self._obey(parcel.head)
            except AccessRefused as error:
                self._fence(str(error))
            except AnabranchError:
                pass  # another stream may be opened
            self._ended.wait(REOPEN_SECONDS)

    def _is_newest(self, reader: int) -> bool:
        return reader == self._reader and not self._ended.is_set()

    def _obey(self, order: OrderHead) -> None:
        assert self._workers is not None
        match order:
            case StartHead():
                self._workers.start(order)
            case EndHead():
                self._workers.end(order)
            case ReturnHead():
                kind = EndingKind.OVER if order.is_final else EndingKind.ALONE
                self._end(Ending(kind, order.reason))
            case AliveHead():
                pass

    def _report(self, report: Report) -> None:
        self._coordinator.call(report, CALL_SECONDS_MAX)

    # -- end --

    def _end(self, ending: Ending) -> None:
        with self._end_lock:
            if not self._ended.is_set():
                self._ending = ending
                self._ended.set()

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        threading.Thread(target=target, name=f"anabranch-agent-{name}", daemon=True).start()
