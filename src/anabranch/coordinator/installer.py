"""Brings operators to workers; one that user code keeps from loading does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from anabranch.coordinator.calls import INSTALL_SECONDS_MAX, at_once
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.errors import AnabranchError, CallTimedOut, ProcessorError, ServiceUnavailable
from anabranch.model.ids import WorkerId
from anabranch.processes.worker_pool import WorkerPool
from anabranch.transport.client import Peer

_log = logging.getLogger("anabranch.coordinator")


class Installer:
    """Operators of this run, in the workers that there are."""

    def __init__(
        self,
        pool: WorkerPool,
        owns_nothing: Callable[[WorkerId], bool],
        stack_of: Callable[[WorkerId, str], str],
    ) -> None:
        """`stack_of` tells where user code of an operator is, in a worker that does not answer."""
        self._pool = pool
        self._owns_nothing = owns_nothing
        self._stack_of = stack_of

    def everywhere(self, operator: OperatorRecord) -> None:
        """All workers at once; raises what its user code raises there."""
        errors: list[AnabranchError] = []
        running = self._pool.incarnations()
        calls = [
            partial(self._try, operator, worker, running.get(worker), peer, errors)
            for worker, peer in self._pool.peers().items()
        ]
        at_once(calls)
        if errors:
            raise errors[0]

    def at_start(
        self, worker: WorkerId, incarnation: int, operators: Iterable[OperatorRecord]
    ) -> bool:
        """All operators, in a process that has just started; False: it is or will be gone."""
        peer = self._pool.peers().get(worker)
        if peer is None:
            return False  # it has ended already; the pool says so
        for operator in operators:
            if operator.is_unloadable:
                continue
            try:
                self._install(operator, worker, peer)
            except CallTimedOut:
                why = _hangs(operator.name, worker, self._stack_of(worker, operator.name))
                self._pool.replace(worker, incarnation, why)
                return False
            except ServiceUnavailable as error:  # its end is reported by the pool
                _log.info("Worker %s went away while it was started: %s", worker, error)
                return False
            except AnabranchError as error:  # the other operators need the worker all the same
                _log.error("Worker %s: %s", worker, error)
        return True

    def _install(self, operator: OperatorRecord, worker: WorkerId, peer: Peer) -> None:
        """A worker that a rescale has added imports its libraries beside batches of the others."""
        in_background = self._owns_nothing(worker)
        install = replace(operator.install, in_background=in_background)
        peer.call_patiently(install, INSTALL_SECONDS_MAX)

    def _try(
        self,
        operator: OperatorRecord,
        worker: WorkerId,
        incarnation: int | None,
        peer: Peer,
        errors: list[AnabranchError],
    ) -> None:
        try:
            self._install(operator, worker, peer)
        except CallTimedOut:
            # First: the replacement must not hang too.
            operator.is_unloadable = True
            why = _hangs(operator.name, worker, self._stack_of(worker, operator.name))
            errors.append(ProcessorError(why))
            self._pool.replace(worker, incarnation, f"operator '{operator.name}' hangs there.")
        except ServiceUnavailable as error:  # its replacement gets the operator when it starts
            if incarnation is not None:
                self._pool.replace(worker, incarnation, str(error))
        except AnabranchError as error:
            errors.append(error)


def _hangs(operator: str, worker: WorkerId, stack: str) -> str:
    where = f" It is here:\n{stack}" if stack else ""
    return (
        f"Operator '{operator}' was not loaded by worker {worker} within "
        f"{INSTALL_SECONDS_MAX:.0f} s.{where}\nImporting its module, or its init(), does not come "
        "back. Fix that, and define the operator again."
    )
