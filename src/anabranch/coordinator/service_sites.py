"""The part of the service with which users move sites from one location to another."""

from __future__ import annotations

from typing import Any, Literal, overload

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.planning import Forecast
from anabranch.coordinator.service_moves import ServiceMoves


class ServiceSites(ServiceMoves):
    """place."""

    @overload
    def place(
        self, site: str, on: str | None, *, dry_run: Literal[False] = ..., **how: Any
    ) -> MoveHandle: ...

    @overload
    def place(
        self, site: str, on: str | None, *, dry_run: Literal[True], **how: Any
    ) -> Forecast: ...

    def place(
        self,
        site: str,
        on: str | None,
        *,
        strategy: str = "live",
        dry_run: bool = False,
        **how: Any,
    ) -> MoveHandle | Forecast:
        """Move all state of a site, as a whole, while queries run; returns at once.

        The place is remembered, also after a restart. Later requests leave the site there. If its
        host is lost or drained, the site is elsewhere until the host is back.

        Parameters
        ----------
        site : str
            A value of the columns that `placed_by` names. If it is not one of `sites=`, others in
            the same key groups come along.
        on : str or None
            A host, a label of hosts such as "rack=3", or a worker. The site is spread over all
            workers there; a host without workers gets one. None: the site may be anywhere again.
            Without a place, a site belongs to the hosts with the label "site=" and its name.
        strategy, dry_run, **how
            As for `rescale`.
        """
        return self._reconfigure(lambda moves: moves.place(site, on), strategy, dry_run, how)
