"""The part of the service with which users look into state, and remove it."""

from __future__ import annotations

from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.lookup_client import LiveState
from anabranch.durability.stored_operators import StoredOperator


class ServiceStates:
    """state, stored_state, remove_state."""

    def _running_coordinator(self) -> Coordinator:
        raise NotImplementedError

    def state(self, operator: str, variable: str | None = None) -> LiveState:
        """Look keys up as of the last committed batch, while queries run and key groups move.

        `service.state("totals").get("a")` returns a Row. If a StatefulProcessor has several state
        variables, name one ("$timers" names its timers).
        """
        return self._running_coordinator().lookups.state(operator, variable)

    def stored_state(self) -> list[StoredOperator]:
        """All state of the location, also that of queries and operators of the past."""
        return self._running_coordinator().bindings.stored()

    def remove_state(self, name: str) -> None:
        """Delete state for good: of an operator that no query has used since this service started.

        An operator that is defined under the name starts empty. Savepoints keep what they have.
        """
        self._running_coordinator().bindings.remove(name)
