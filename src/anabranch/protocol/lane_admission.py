"""Whether a lane may begin a batch; the errors say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.errors import (
    AnabranchError,
    EpochGap,
    IncompleteBatch,
    ServiceUnavailable,
    StateMismatch,
)
from anabranch.model.ids import Epoch, HostId, WorkerId
from anabranch.protocol.coordinator_messages import LaneBegan
from anabranch.protocol.epochs import EpochProgress

if TYPE_CHECKING:
    from anabranch.protocol.coordinator import OperatorView
    from anabranch.protocol.fleet import Fleet


def unknown(operator: str) -> AnabranchError:
    """An operator that nobody has defined here."""
    return ServiceUnavailable(
        f"Operator '{operator}' is not known to this service. Start the query again from the "
        "program that defines the operator."
    )


def foreign_state(operator: str, owner: str | None, query_id: str) -> AnabranchError:
    """A name has one state, and it is another query's."""
    return StateMismatch(
        f"The state of operator '{operator}' belongs to query {owner}, but query {query_id} asked "
        "for it. To continue it, start the query with the checkpointLocation that it had: "
        "without one, each start is a new query. To start empty, give the operator another name, "
        f"or remove what is stored with service.remove_state('{operator}'). service.enable() gives "
        "each query state of its own."
    )


def no_host(fleet: Fleet, reason: str) -> AnabranchError:
    """Workers wait for a host; says which hosts there are."""
    runs = fleet.runs()
    known = [
        f"{host} runs {runs[host]} workers of {'any number' if cap is None else cap}"
        + (" and is drained" if host in fleet.drained else "")
        for host, cap in ((host, view.capacity) for host, view in fleet.hosts.items())
    ]
    known += [f"{host} is lost ({why.rstrip('.')})" for host, why in fleet.lost.items()]
    return ServiceUnavailable(
        f"No host has room for {', '.join(fleet.waiting())}: {reason} "
        f"Hosts: {'; '.join(known) or 'none has joined'}. Start an agent on another host, or ask "
        "for fewer workers with rescale()."
    )


def not_reached(fleet: Fleet, host: HostId | None, workers: Iterable[WorkerId]) -> AnabranchError:
    """The lanes of a host reach some workers in no way."""
    places = ", ".join(f"{worker} on host {fleet.workers[worker].host}" for worker in workers)
    return ServiceUnavailable(
        f"Tasks on host {host} do not reach {places}, directly or through another worker. Fix the "
        "network between these hosts. Spark runs the task again, perhaps elsewhere."
    )


def begin_error(operator: OperatorView, event: LaneBegan) -> AnabranchError | None:
    """Why a lane cannot begin."""
    if operator.query_id is not None and operator.query_id != event.query_id:
        return foreign_state(event.operator, operator.query_id, event.query_id)
    current, committed = operator.current, operator.committed
    if current is not None:
        if event.epoch == current.epoch:
            return None
        if event.epoch < current.epoch:
            return EpochGap(
                f"Batch {event.epoch} of operator '{event.operator}' has ended: batch "
                f"{current.epoch} has begun. This task is late and its result is not used."
            )
        if committed != current.epoch:
            return _incomplete(event, current.epoch, current)
    first = operator.first
    if committed is None and first is not None and event.epoch > first:
        return _incomplete(event, first, current)  # it began before a restart
    if committed is None and first is None:
        error = _first_error(operator, event)
        if error is not None:
            return error
    if committed is None or event.epoch in (committed, committed + 1):
        return None
    direction = "ahead of" if event.epoch > committed else "behind"
    return EpochGap(
        f"Spark asked for batch {event.epoch} of operator '{event.operator}', {direction} its "
        f"state, which is at batch {committed}. Checkpoint and state location must be kept, "
        "copied and restored together: restore the ones that belong together."
    )


def no_state(operator: str, epoch: int, old: Sequence[str] = ()) -> AnabranchError:
    """An operator without state in the middle of a query, which has that of `old` ones."""
    known = ", ".join(f"'{name}'" for name in old)
    renamed = "If its state is elsewhere (another location or name), point to it. "
    if old:
        renamed = (
            f"It holds state of this query under {known}, which the program does not define. If "
            "the operator was renamed, continue with its state: "
            "group_by(...).transformWithState(..., "
            f"name='{old[0]}'), or service.enable(names={{'NewClass': '{old[0]}'}}). "
        )
    return EpochGap(
        f"Spark asked for batch {epoch} of operator '{operator}', but the state location holds "
        f"nothing of it. {renamed}If foreachBatch did not use its DataFrame in the first batch, "
        "use it there and start the query with a new checkpoint. If the operator is new in this "
        "query and must start empty, pass "
        f"StateService(..., start_empty=['{operator}'])."
    )


def _first_error(operator: OperatorView, event: LaneBegan) -> AnabranchError | None:
    """Why an operator cannot begin with a batch."""
    restored = operator.restored
    if restored is None:
        if event.epoch > 0 and not operator.start_empty:
            return no_state(event.operator, event.epoch)
        return None
    if event.epoch == restored + 1 or (event.epoch == 0 and not operator.continues):
        return None
    new = "" if operator.continues else "with a new checkpoint, which begins at batch 0, or "
    return EpochGap(
        f"Spark asked for batch {event.epoch} of operator '{event.operator}', whose state was "
        f"restored from a savepoint as of batch {restored}. Start the query {new}with the "
        f"savepoint's own checkpoint, which continues at batch {restored + 1} (anabranch savepoint "
        "checkpoint). Nothing was changed."
    )


def _incomplete(event: LaneBegan, epoch: Epoch, execution: EpochProgress | None) -> AnabranchError:
    if execution is None:
        cause = "not all tasks ran to their end"
    elif missing := execution.missing():
        cause = f"the tasks {missing} of {execution.lanes} never ran to their end"
    else:
        cause = "the state could not be saved"
    return IncompleteBatch(
        f"Batch {event.epoch} of operator '{event.operator}' cannot begin: in batch "
        f"{epoch} {cause}, so its rows are not in the state. In foreachBatch, write or "
        "count the whole DataFrame (not only head(), take() or limit()) and let errors pass. "
        "To run that batch again, stop the query, remove the files "
        f"offsets/{event.epoch} and commits/{epoch} from its checkpoint and start it."
    )
