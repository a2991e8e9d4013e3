"""Which operator the lanes of a query mean: a definition can be started as several queries.

A name that the program gave has one state, which belongs to one query. Under `service.enable()`
names come from classes, and each query has state of its own, as it has in Spark: the operators of a
class in a query are told apart by their place, the first one defined being 0.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from anabranch.coordinator.operator_record import OperatorRecord, install_message
from anabranch.coordinator.query_clock import QueryClock, QuerySide
from anabranch.coordinator.site_traffic import SiteTraffic
from anabranch.durability.operator_file import OperatorFile
from anabranch.durability.store import StateStore
from anabranch.durability.stored_operators import (
    StoredOperator,
    is_begun,
    listed,
    namesakes,
    records,
    remove,
)
from anabranch.errors import InvalidArgument, ServiceUnavailable, StateMismatch
from anabranch.processor.contract import OperatorDefinition
from anabranch.protocol.coordinator import CoordinatorMachine
from anabranch.protocol.lane_admission import foreign_state, no_state, unknown
from anabranch.transport.messages.lanes import Begin

_log = logging.getLogger("anabranch.coordinator")

WRITE_SECONDS_MAX = 60.0
"""For so long a name waits for the end of what its last query was writing."""


@dataclass(frozen=True)
class StatePlace:
    """Where a definition has its state, for one query."""

    name: str
    at: int | None = None
    """Its place among those of its class in the query."""
    start_empty: bool = False


@dataclass(frozen=True, eq=False)
class Template:
    """A definition as the program made it; `id` is what its lanes know."""

    id: int
    name: str
    definition: OperatorDefinition
    initial: tuple[str, ...] = ()
    side: QuerySide | None = None

    @property
    def family(self) -> str | None:
        """The name that those of its class are numbered after; None: it has a name of its own."""
        return None if self.side is None else self.side.family

    def opened(
        self, place: StatePlace, stored: OperatorFile, number: int, start_empty: bool
    ) -> OperatorRecord:
        """Its operator under a name; `number` is that of this one in workers."""
        is_restored = stored.restored_epoch is not None
        if self.side is not None:
            self.side.watch(place.name)
        definition = self.definition.after(stored.description)
        by = definition.placed_by
        return OperatorRecord(
            place.name,
            definition,
            install_message(place.name, number, definition, is_restored),
            [] if is_restored else list(self.initial),  # it is in the savepoint's state
            number,
            is_restored,
            self.id,
            place.at,
            start_empty or place.start_empty,
            traffic=None if by is None else SiteTraffic(by.sites),
        )


InstallOperator = Callable[[Template, StatePlace], OperatorRecord]


class Bindings:
    """Finds or makes the operator of a definition for a query, once for each query."""

    def __init__(
        self,
        store: StateStore,
        store_lock: AbstractContextManager[Any],
        machine: CoordinatorMachine,
        lock: AbstractContextManager[Any],
        operators: Mapping[str, OperatorRecord],
        clock: QueryClock,
        install: InstallOperator,
    ) -> None:
        self._store = store
        self._store_lock = store_lock
        self._machine = machine
        self._machine_lock = lock
        self._operators = operators
        self._clock = clock
        self._install = install
        self._lock = threading.RLock()
        self._templates: dict[int, Template] = {}
        self._started: set[int] = set()
        """Definitions whose query has begun; a name waits for the others."""
        self._bound: dict[tuple[int, str], OperatorRecord] = {}
        self._used: set[str] = set()
        """Names of operators that queries have had since the service started."""

    def add(self, template: Template) -> None:
        """A definition was made."""
        with self._lock:
            if template.family is None:  # it takes the place of earlier ones of its name
                for old in [t.id for t in self._templates.values() if t.name == template.name]:
                    del self._templates[old]
            self._templates[template.id] = template

    def is_free(self, name: str) -> bool:
        """Whether a definition under `service.enable()` can begin with a name."""
        with self._lock:
            if not self._is_open(name, None):
                return False
            query_id = self._query_of(name)
            return query_id is None or not self._is_running(name, query_id)

    def bound(self, definition: int, query_id: str) -> str | None:
        """The operator that a query of a definition has; None: none of its lanes has begun."""
        record = self._bound.get((definition, query_id))
        return None if record is None else record.name

    def operator_of(self, request: Begin) -> OperatorRecord:
        """The operator that a lane means, if that is settled already or can be now."""
        key = request.definition, request.query_id
        record = self._bound.get(key)
        if record is not None and self._operators.get(record.name) is record:
            return record
        with self._lock:  # lanes of a query begin side by side
            record = self._bound.get(key)
            if record is None or self._operators.get(record.name) is not record:
                record = self._bind(request)
                self._started.add(request.definition)
                self._bound[key] = record
                self._used.add(record.name)
            return record

    def stored(self) -> list[StoredOperator]:
        """What the location holds."""
        with self._store_lock:
            return listed(self._store)

    def remove(self, name: str) -> None:
        """Delete what is stored under a name; a definition that has it begins anew."""
        with self._lock:
            if name in self._used:  # workers hold it, and may be saving it
                raise InvalidArgument(
                    f"Operator '{name}' was used by a query of this service. Stop the service, and "
                    "remove the state with a new one or with anabranch state LOCATION --remove."
                )
            with self._store_lock:
                remove(self._store, name)
            known = self._operators.get(name)
            if known is not None and known.template in self._templates:
                self._install(self._templates[known.template], StatePlace(name))

    # -- one query --

    def _bind(self, request: Begin) -> OperatorRecord:
        if request.operator not in self._operators:
            raise unknown(request.operator)
        template = self._templates.get(request.definition)
        if template is None:
            raise _defined_again(request.operator)
        if self._clock.is_running(template.name, request.query_id) is False:
            raise ServiceUnavailable(
                f"Query {request.query_id} has ended; this task's result is not used."
            )
        for key in [k for k in self._bound if self._clock.is_running(template.name, k[1]) is False]:
            del self._bound[key]
        if template.family is None:
            return self._named(template, request)
        place = self._own(template, request, template.family)
        known = self._operators.get(place.name)
        with self._store_lock:
            is_placed = known is not None and self._store.operator(place.name).place in (
                None,
                place.at,
            )
        is_ours = self._query_of(place.name) in (None, request.query_id)
        if known is None or known.template != template.id or not (is_placed and is_ours):
            return self._release(template, place, request)
        known.place = place.at
        return known

    def _named(self, template: Template, request: Begin) -> OperatorRecord:
        """A name that the program gave belongs to one query, once that has committed a batch."""
        name = template.name
        record, owner = self._operators[name], self._query_of(name)
        if record.template != template.id:  # the newer one is still being installed
            raise _defined_again(name)
        with self._store_lock:
            stored = self._store.operator(name)
            is_begun_here = is_begun(self._store, stored)
        if owner not in (None, request.query_id):
            if is_begun_here or self._is_running(name, owner):
                raise foreign_state(name, owner, request.query_id)
            if request.epoch == 0:
                return self._release(template, StatePlace(name), request)
        elif owner is None and not is_begun_here and request.epoch > 0:
            self._check_may_start(template, request)
        return record

    def _release(self, template: Template, place: StatePlace, request: Begin) -> OperatorRecord:
        """Install the definition under a name whose last query left nothing, or is this one."""
        self._wait_for_write(place.name)
        with self._store_lock:
            if place.name in self._store.operators():
                stored = self._store.operator(place.name)
                if not is_begun(self._store, stored):
                    self._store.release(place.name)
                elif stored.query_id not in (None, request.query_id):
                    raise foreign_state(place.name, stored.query_id, request.query_id)
        return self._install(template, place)

    def _wait_for_write(self, name: str) -> None:
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        while True:
            with self._machine_lock:
                view = self._machine.operators.get(name)
                if view is None or view.writing is None:
                    return
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"The last query of operator '{name}' is still writing. Start this one again "
                    "in a minute."
                )
            time.sleep(0.05)

    # -- under service.enable() --

    def _own(self, template: Template, request: Begin, family: str) -> StatePlace:
        """Where this query has the state of a definition, or will have it."""
        with self._store_lock:
            stored = records(self._store)
            begun = {name for name, record in stored.items() if is_begun(self._store, record)}
        members = self._members(template, request.query_id)
        owned = _owned(request.query_id, stored, begun)
        peers = [member for member in members if member.family == family]
        at = peers.index(template)
        found = _by_place(family, owned).get(at)
        if found is None:
            found = self._left_over(template, members, owned)
        if found is not None:
            return StatePlace(found, at)
        if request.epoch > 0:
            self._check_may_start(template, request)
        name = self._new_name(template, family, request.query_id, stored, begun)
        return StatePlace(name, at, request.epoch > 0)

    def _members(self, template: Template, query_id: str) -> list[Template]:
        """The definitions in a query, in their order."""
        assert template.side is not None
        found = {template.id, *template.side.definitions(query_id)}
        return [self._templates[each] for each in sorted(found) if each in self._templates]

    def _left_over(
        self, template: Template, members: Sequence[Template], owned: Mapping[str, OperatorFile]
    ) -> str | None:
        """State of an operator whose class has another name now: Spark goes on with it, too.

        Only where there is no choice: the one operator without state, the one state without.
        """
        matched: set[str] = set()
        without: list[Template] = []
        for member in members:
            if member.family is None:
                matched.add(member.name)
                continue
            peers = [each for each in members if each.family == member.family]
            name = _by_place(member.family, owned).get(peers.index(member))
            if name is None:
                without.append(member)
            else:
                matched.add(name)
        left = sorted(owned.keys() - matched)
        if without != [template] or len(left) != 1 or owned[left[0]].place is None:
            return None
        _log.warning(
            "Operator '%s' goes on with the state of '%s', the only one of its query that has "
            "none: its class was renamed.",
            template.name,
            left[0],
        )
        return left[0]

    def _new_name(
        self,
        template: Template,
        family: str,
        query_id: str,
        stored: Mapping[str, OperatorFile],
        begun: Collection[str],
    ) -> str:
        """The name that the definition was made with, or the next one that nobody needs."""
        if template.name in begun and stored[template.name].query_id is None:
            self._check_restored(family, stored)
            return template.name
        others = {
            record.name
            for (definition, query), record in self._bound.items()
            if query == query_id and definition != template.id
        }
        numbered = (f"{family}-{use}" for use in itertools.count(2))
        for name in itertools.chain([template.name, family], numbered):
            if name in begun or name in others or not self._is_open(name, template):
                continue
            owner = self._query_of(name) or (stored[name].query_id if name in stored else None)
            if owner in (None, query_id) or not self._is_running(name, owner):
                return name
        raise AssertionError

    def _check_restored(self, family: str, stored: Mapping[str, OperatorFile]) -> None:
        waiting = {
            name: stored[name].restored_query
            for name in namesakes(family, stored)
            if stored[name].restored_epoch is not None
        }
        if len(set(waiting.values())) > 1:
            shown = ", ".join(f"'{name}' (query {query})" for name, query in waiting.items())
            raise StateMismatch(
                f"The savepoint has state of {family} from several queries: {shown}. Start the "
                "query with the savepoint's own checkpoint (anabranch savepoint checkpoint), or "
                f"say which one it is: service.group_by(..., name='{next(iter(waiting))}')."
            )

    # -- what is known of names --

    def _is_open(self, name: str, template: Template | None) -> bool:
        """Whether no other definition has a name, or waits under it for its query."""
        others = [t for t in self._templates.values() if t.name == name and t is not template]
        return not any(t.family is None or t.id not in self._started for t in others)

    def _query_of(self, name: str) -> str | None:
        with self._machine_lock:
            view = self._machine.operators.get(name)
            return None if view is None else view.query_id

    def _is_running(self, name: str, query_id: str) -> bool:
        """What is not known is taken for running."""
        return self._clock.is_running(name, query_id) is not False

    def _check_may_start(self, template: Template, request: Begin) -> None:
        """Refuse an operator without state in the middle of a query; say what may be its state."""
        known = [self._operators.get(name) for name in (template.name, template.family or "")]
        if any(operator is not None and operator.start_empty for operator in known):
            return
        with self._store_lock:
            stored = records(self._store)
            begun = {name for name, record in stored.items() if is_begun(self._store, record)}
        owned = _owned(request.query_id, stored, begun)
        raise no_state(template.name, request.epoch, sorted(owned.keys() - self._operators.keys()))


def _owned(
    query_id: str, stored: Mapping[str, OperatorFile], begun: Collection[str]
) -> dict[str, OperatorFile]:
    """Operators with state of a query, also if a savepoint brought it."""
    return {
        name: record
        for name, record in stored.items()
        if name in begun and query_id == (record.query_id or record.restored_query)
    }


def _by_place(family: str, owned: Mapping[str, OperatorFile]) -> dict[int, str]:
    """Names by place. Earlier releases noted none: they are in the order of their numbers."""
    found = {}
    for at, name in enumerate(namesakes(family, owned)):
        place = owned[name].place
        found[at if place is None else place] = name
    return found


def _defined_again(operator: str) -> InvalidArgument:
    return InvalidArgument(
        f"Operator '{operator}' was defined again after this query was built. Start a query from "
        "the newest DataFrame, and give operators of one query names of their own."
    )
