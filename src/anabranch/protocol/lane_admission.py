"""Whether a lane may begin a batch; the errors say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import (
    AnabranchError,
    EpochGap,
    IncompleteBatch,
    ServiceUnavailable,
    StateMismatch,
)
from anabranch.model.ids import Epoch
from anabranch.protocol.coordinator_messages import LaneBegan
from anabranch.protocol.epochs import EpochProgress

if TYPE_CHECKING:
    from anabranch.protocol.coordinator import OperatorView


def unknown(operator: str) -> AnabranchError:
    """An operator that nobody has defined here."""
    return ServiceUnavailable(
        f"Operator '{operator}' is not known to this service. Start the query again from the "
        "program that defines the operator."
    )


def begin_error(operator: OperatorView, event: LaneBegan) -> AnabranchError | None:
    """Why a lane cannot begin."""
    if operator.query_id is not None and operator.query_id != event.query_id:
        return StateMismatch(
            f"The state of operator '{event.operator}' belongs to query {operator.query_id}, but "
            f"query {event.query_id} asked for it. Start the query with the checkpoint it had "
            "before, or give the operator another name (or another location) to start empty."
        )
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


def _no_state(event: LaneBegan) -> AnabranchError:
    return EpochGap(
        f"Spark asked for batch {event.epoch} of operator '{event.operator}', but the state "
        "location holds nothing of it. If its state is elsewhere (another location or name), "
        "point to it. If foreachBatch did not use its DataFrame in the first batch, use it there "
        "and start the query with a new checkpoint. If the operator is new in this query and must "
        f"start empty, pass StateService(..., start_empty=['{event.operator}'])."
    )


def _first_error(operator: OperatorView, event: LaneBegan) -> AnabranchError | None:
    """Why an operator cannot begin with a batch."""
    restored = operator.restored
    if restored is None:
        return _no_state(event) if event.epoch > 0 and not operator.start_empty else None
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
