"""A simulated Spark task: begin, send rows to the owners, collect answers, try again, finish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.model.routing import lane_groups
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.epochs import LaneReport, TransactionReport
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.worker_messages import TransactionOpened
from anabranch.simulation.in_flight import SILENCE_TICKS
from anabranch.simulation.network import Endpoint
from anabranch.simulation.oracle import GROUPS, OPERATOR, Outputs
from anabranch.simulation.scheduler import Timer

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.exchanges import LaneExchange
    from anabranch.simulation.worker import WorkerProcess

QUERY = "query-1"
RETRY_TICKS = 6
TIMEOUT_SHARE, TIMEOUT_TICKS = 0.3, 60
"""A call without an answer is made again: the transport's only source of duplicates."""

LaneReply = protocol.GrantLane | protocol.ConfirmFinish | protocol.RefuseRequest

Answer = tuple[dict[int, Outputs], tuple[TransactionReport, ...]]


class SimulatedLane:
    """One attempt of one lane in one batch."""

    __slots__ = (
        "attempt",
        "cluster",
        "end",
        "epoch",
        "exchanges",
        "host",
        "hung_request",
        "is_alive",
        "lane",
        "lanes",
        "missing",
        "name",
        "outputs",
        "reports",
        "request",
        "run",
        "scheduler",
        "tries",
        "unreached",
    )

    def __init__(
        self, cluster: Cluster, run: int, epoch: int, lane: int, lanes: int, attempt: int
    ) -> None:
        self.cluster = cluster
        self.host = DRIVER
        self.scheduler: Timer = cluster.scheduler
        if cluster.hosts is not None:
            executor = cluster.hosts.executor(cluster.driver.failed_on.get(lane, ()))
            self.host, self.scheduler = executor.name, executor
            executor.lanes.append(self)
        self.end = f"L{lane}"
        self.run = run
        """The execution of the batch that the task belongs to."""
        self.epoch = epoch
        self.lane = lane
        self.lanes = lanes
        self.attempt = attempt
        self.name = f"L{lane}/{lanes}b{epoch}a{attempt}"
        self.is_alive = True
        self.missing = set(lane_groups(lane, lanes, GROUPS))
        self.outputs: dict[int, Outputs] = {}
        self.reports: list[TransactionReport] = []
        self.exchanges: dict[int, LaneExchange] = {}
        self.request = 0
        self.hung_request = 0
        """The call whose connection swallows everything."""
        self.tries = 0
        self.unreached: list[protocol.Unreached] = []
        """What the coordinator does not know yet."""

    @property
    def endpoint(self) -> Endpoint:
        """Who sends the rows."""
        return self

    # -- coordinator --

    def begin(self) -> None:
        """Ask for owners and base."""
        if not self.is_alive:
            return
        self.tries += 1
        self.request = self.cluster.next_request(self)
        unreached = tuple(self.unreached)
        event = protocol.LaneBegan(
            self.request,
            OPERATOR,
            QUERY,
            Epoch(self.epoch),
            Lane(self.lane),
            self.lanes,
            None if self.cluster.hosts is None else self.host,
            unreached,
        )
        self.cluster.call(self, event, f"{self.name} begins")
        self._call_again_later(self.request, self.begin)

    def _finish(self) -> None:
        if not self.is_alive:
            return
        self.request = self.cluster.next_request(self)
        event = protocol.LaneFinished(
            self.request,
            OPERATOR,
            Epoch(self.epoch),
            Lane(self.lane),
            self.lanes,
            LaneReport(tuple(self.reports)),
        )
        self.cluster.call(self, event, f"{self.name} finishes")
        self._call_again_later(self.request, self._finish)

    def _call_again_later(self, request: int, call: object) -> None:
        if self.cluster.hosts is not None:
            self.scheduler.after(SILENCE_TICKS, "", self._silent, request, call)
            return
        # Messages are late, never lost, so not every call needs its clock.
        if self.cluster.rng.random() < TIMEOUT_SHARE:
            self.scheduler.after(TIMEOUT_TICKS, "", self._timeout, request, call)

    def _silent(self, request: int, call: object) -> None:
        """The coordinator gives a sign of life every now and then: who hears none calls again."""
        hosts = self.cluster.hosts
        if hosts is None or not self.is_alive or self.request != request or hosts.is_closed:
            return
        is_hung = request == self.hung_request
        if not is_hung and hosts.reaches(self, self.cluster.coordinator):
            self.scheduler.after(SILENCE_TICKS, "", self._silent, request, call)
        else:
            assert callable(call)
            call()

    def _timeout(self, request: int, call: object) -> None:
        if self.is_alive and self.request == request:
            assert callable(call)
            call()

    def replied(self, reply: LaneReply) -> None:
        """The coordinator's answer to the request that the lane waits for."""
        if not self.is_alive or reply.request != self.request:
            return
        self.request = 0
        match reply:
            case protocol.GrantLane():
                self.unreached.clear()
                self._send(reply)
            case protocol.ConfirmFinish():
                self.is_alive = False
                self.cluster.tell_driver(self, self.cluster.driver.task_done, self)
            case protocol.RefuseRequest():
                self.fail(reply.error)
            case _:
                unhandled(reply)

    # -- workers --

    def _send(self, grant: protocol.GrantLane) -> None:
        for worker, owned in grant.owners.items():
            exchange = self._open(worker, grant, owned, False)
            if exchange is not None:
                self.exchanges[exchange.number] = exchange
        for worker, owned in grant.shadows.items():
            self._open(worker, grant, owned, True)  # nobody waits for its end
        if not self.exchanges:  # no owner could be reached
            self._begin_later()

    def _open(
        self, worker: WorkerId, grant: protocol.GrantLane, owned: tuple[int, ...], is_shadow: bool
    ) -> LaneExchange | None:
        cluster = self.cluster
        groups = tuple(KeyGroup(g) for g in owned if g in self.missing)
        process = cluster.process(worker, grant.incarnations[worker])
        if process is None or not groups or cluster.refuses(self, process):
            return None
        opened = TransactionOpened(
            process.next_tx(),
            OPERATOR,
            Epoch(self.epoch),
            grant.base,
            Lane(self.lane),
            self.lanes,
            self.attempt,
            groups,
            grant.version,
            is_shadow,
        )
        exchange = cluster.exchanges.open(self, process, opened, self._relay(worker, grant))
        batch = cluster.oracle.batches[self.epoch]
        cluster.exchanges.send_rows(
            exchange, {group: batch[group] for group in groups if group in batch}
        )
        return exchange

    def _relay(self, worker: WorkerId, grant: protocol.GrantLane) -> WorkerProcess | None:
        name = grant.relays.get(worker)
        return None if name is None else self.cluster.process(name, grant.incarnations[name])

    def missed(self, exchange: LaneExchange, relay: WorkerProcess | None) -> None:
        """A host does not answer: that of a relay, or of the worker, which a relay may miss."""
        process, through = exchange.process, exchange.relay
        if relay is not None:
            process, through = relay, None
        name = None if through is None else through.worker
        missed = protocol.Unreached(process.worker, process.incarnation, name)
        self.unreached.append(missed)

    def answered(self, exchange: LaneExchange, answer: Answer | AnabranchError) -> None:
        """A worker's answer, or the loss of the stream."""
        if not self.is_alive or self.exchanges.pop(exchange.number, None) is None:
            return
        if isinstance(answer, ServiceUnavailable):
            pass  # its key groups stay missing
        elif isinstance(answer, AnabranchError):
            self.fail(answer)
            return
        else:
            outputs, reports = answer
            self.outputs.update(outputs)
            self.reports.extend(reports)
            self.missing.difference_update(outputs)
        if self.exchanges:
            return
        if self.missing:
            self._begin_later()
        else:
            self._finish()

    def _begin_later(self) -> None:
        scheduler = self.scheduler
        scheduler.after(scheduler.delay(RETRY_TICKS), "", self.begin)

    def is_waiting(self, exchange: LaneExchange) -> bool:
        """Whether an answer is awaited."""
        return exchange.number in self.exchanges

    # -- end --

    def fail(self, error: AnabranchError) -> None:
        """The task ends with an error; Spark decides what to do."""
        self.kill()
        self.cluster.tell_driver(self, self.cluster.driver.task_failed, self, error)

    def vanish(self) -> None:
        """The host dies: nobody notices."""
        self.is_alive = False
        self.exchanges.clear()

    def kill(self) -> None:
        """The task does nothing any more; what it has sent still arrives."""
        if not self.is_alive:
            return
        self.is_alive = False
        for exchange in list(self.exchanges.values()):
            self.cluster.exchanges.break_off(exchange)
        self.exchanges.clear()
