"""The part of the service with which users move state while queries run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, Literal, overload

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.move_request import MoveWish
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.planning import Forecast, TargetLayout
from anabranch.errors import InvalidArgument
from anabranch.migration.strategies import STANDBY, check

STANDBY_TAKES = {"bytes_per_second", "if_routing_version", "cause"}


class ServiceMoves:
    """rescale, move, drain, rebalance, standby."""

    def _reconfigurer(self) -> MoveRunner:
        raise NotImplementedError

    @overload
    def rescale(
        self, workers: int, *, strategy: str = ..., dry_run: Literal[False] = ..., **how: Any
    ) -> MoveHandle: ...

    @overload
    def rescale(
        self, workers: int, *, strategy: str = ..., dry_run: Literal[True], **how: Any
    ) -> Forecast: ...

    def rescale(
        self,
        workers: int,
        *,
        strategy: str = "live",
        dry_run: bool = False,
        assignment: str = "minimal",
        hosts: Iterable[str] | None = None,
        **how: Any,
    ) -> MoveHandle | Forecast:
        """Change the number of workers while queries run; returns at once.

        Parameters
        ----------
        workers : int
            The wanted number.
        strategy : str
            How key groups move: "live" (default), "stop-restart", "pause", "replicate",
            "megaphone", "rhino", "order-unaware", "meces", "drrs" or "lazy".
        dry_run : bool
            Only say what would be done: the result is a Forecast.
        assignment : str
            "minimal" moves as few key groups as possible, "range" assigns contiguous ranges.
        hosts : list of str, optional
            Spread the workers over these hosts, given by names, or by labels such as "rack=3" for
            all hosts that have them now. All other hosts are drained until a later request names
            them. Default: workers stay where they are, and new ones start where the fewest
            are. More workers than the hosts can hold are refused; a dry run says what would fit.
        **how
            - `wait` (bool): return only at the end.
            - `bytes_per_second` (int): limit for copies; "live" and "lazy" adapt their rate.
            - `latency_target` (float): seconds that a batch may take before copies slow down; by
              default 1.1 times the median of the batches before.
            - `if_routing_version` (int): refuse with `StaleRouting` if key groups have changed
              owners since `status()["routing_version"]` said so.
            - `cause` (str): who asks, for the journal.
            - Options of the strategy: `wave`, `delta` (live), `batch` (meces, megaphone), `plan`
              (megaphone), `concurrency`, `subscale` (drrs).

        Returns
        -------
        MoveHandle
            `progress`, `wait()`, `report()`, `cancel()`, `retarget(n)`. A new request replaces
            the running one and continues from its target layout.
        """
        return self._reconfigure(
            lambda moves: moves.rescale(workers, assignment, hosts),
            strategy,
            dry_run,
            how,
            assignment,
        )

    @overload
    def move(
        self, key_groups: Iterable[int], to: str, *, dry_run: Literal[False] = ..., **how: Any
    ) -> MoveHandle: ...

    @overload
    def move(
        self, key_groups: Iterable[int], to: str, *, dry_run: Literal[True], **how: Any
    ) -> Forecast: ...

    def move(
        self,
        key_groups: Iterable[int],
        to: str,
        *,
        strategy: str = "live",
        dry_run: bool = False,
        **how: Any,
    ) -> MoveHandle | Forecast:
        """Move some key groups to a worker; `how` is as for `rescale`."""
        return self._reconfigure(lambda moves: moves.move(key_groups, to), strategy, dry_run, how)

    @overload
    def drain(
        self,
        worker: str | None = ...,
        *,
        host: str | None = ...,
        dry_run: Literal[False] = ...,
        **how: Any,
    ) -> MoveHandle: ...

    @overload
    def drain(
        self,
        worker: str | None = ...,
        *,
        host: str | None = ...,
        dry_run: Literal[True],
        **how: Any,
    ) -> Forecast: ...

    def drain(
        self,
        worker: str | None = None,
        *,
        host: str | None = None,
        strategy: str = "live",
        dry_run: bool = False,
        **how: Any,
    ) -> MoveHandle | Forecast:
        """Move everything off a worker and end it, or off a host and end its workers.

        Workers of a drained host are replaced on other hosts, as far as these have room. The host
        takes no workers until `rescale(n, hosts=[...])` names it. `how` is as for `rescale`.
        """
        if (worker is None) == (host is None):
            raise InvalidArgument(
                "drain() takes a worker or a host: drain('w2') or drain(host='h3')."
            )
        return self._reconfigure(
            lambda moves: moves.drain(worker) if host is None else moves.drain_host(host),
            strategy,
            dry_run,
            how,
        )

    @overload
    def rebalance(self, *, dry_run: Literal[False] = ..., **how: Any) -> MoveHandle: ...

    @overload
    def rebalance(self, *, dry_run: Literal[True], **how: Any) -> Forecast: ...

    def rebalance(
        self, *, strategy: str = "live", dry_run: bool = False, **how: Any
    ) -> MoveHandle | Forecast:
        """Spread workers over the hosts, and key groups over workers by their measured load.

        Hosts that have come back get workers again. `how` is as for `rescale`.
        """
        return self._reconfigure(lambda moves: moves.rebalance(), strategy, dry_run, how)

    @overload
    def standby(self, workers: int, *, dry_run: Literal[False] = ..., **how: Any) -> MoveHandle: ...

    @overload
    def standby(self, workers: int, *, dry_run: Literal[True], **how: Any) -> Forecast: ...

    def standby(self, workers: int, *, dry_run: bool = False, **how: Any) -> MoveHandle | Forecast:
        """Keep replicas for a later `rescale(workers, strategy="rhino")` up to date from now on.

        Costs a copy of the state that would move and the traffic of all its changes; ends with the
        next request, or with `cancel()`. `how` may have `bytes_per_second`, `if_routing_version`
        and `cause`, as for `rescale`.
        """
        if unknown := sorted({*how} - STANDBY_TAKES):
            raise InvalidArgument(
                f"standby() has no option {unknown[0]!r}, only: {', '.join(sorted(STANDBY_TAKES))}."
            )
        return self._reconfigure(
            lambda moves: moves.rescale(workers, "minimal"), STANDBY, dry_run, how
        )

    def recent_moves(self) -> list[MoveHandle]:
        """Running reconfigurations and the last ones that have ended, the oldest first."""
        return self._reconfigurer().recent()

    def key_groups(self) -> list[dict[str, Any]]:
        """Owner, recent rows and bytes of state of each key group, over all operators."""
        return self._reconfigurer().key_groups()

    def ownership(self) -> dict[str, Any]:
        """Owners of all key groups, and of those on their way the target and how far they are."""
        return self._reconfigurer().ownership()

    def _reconfigure(
        self,
        make_plan: Callable[[MoveRunner], TargetLayout],
        strategy: str,
        dry_run: bool,
        how: dict[str, Any],
        assignment: str = "minimal",
    ) -> MoveHandle | Forecast:
        wait = bool(how.pop("wait", False))
        seen = how.pop("if_routing_version", None)
        wish = _wish(strategy, how, assignment)
        moves = self._reconfigurer()

        def checked_plan(moves: MoveRunner) -> TargetLayout:
            moves.check_routing(seen)
            return make_plan(moves)

        if dry_run:
            return moves.forecast(checked_plan(moves), wish)
        move = moves.ask(checked_plan, wish)
        if wait:
            move.wait()  # no limit: as long as the user waits
        return move


def _wish(strategy: str, how: dict[str, Any], assignment: str) -> MoveWish:
    rate, target = how.pop("bytes_per_second", None), how.pop("latency_target", None)
    cause = str(how.pop("cause", "program"))
    if strategy != STANDBY:  # which has looked at them
        check(strategy, how)
    if rate is not None and not (_is_number(rate) and 1 <= rate < math.inf):
        raise InvalidArgument(f"bytes_per_second must be a number of at least 1, got {rate!r}.")
    if target is not None and not (_is_number(target) and target > 0):
        raise InvalidArgument(f"latency_target must be seconds above 0, got {target!r}.")
    return MoveWish(strategy, how, None if rate is None else int(rate), target, assignment, cause)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
