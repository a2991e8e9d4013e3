"""Every error that Anabranch raises, as one tree.

AnabranchError                    a PySparkException: `getCondition()`, `getMessage()`
├── InvalidArgument               the caller's mistake, found early (a ValueError too)
├── LocationError                 the state location
│   ├── LocationNotWritable       cannot be created or written
│   ├── LocationInUse             another live service holds it
│   ├── FormatNotSupported        written by a newer release, or by one before the present format
│   ├── StateMismatch             belongs to another query, operator or schema
│   └── CorruptState              a file is damaged, truncated or missing
├── EpochError                    Spark and the state disagree about batches
│   ├── IncompleteBatch           some lanes of the last batch never finished
│   └── EpochGap                  the asked batch does not follow the stored state
├── ProcessorError                user code failed; carries the user's traceback
├── ServiceUnavailable            a worker or the coordinator cannot be reached
│   ├── CallTimedOut              it did not answer in time
│   ├── AccessRefused             a certificate or a token is not accepted; asking again is no use
│   ├── NotReachable              it has ended, or its host is cut off
│   └── NotRunning                nobody listens for a location
├── ReconfigurationFailed         a move could not be completed; the query continues
│   └── StaleRouting              key groups have changed owners since the caller looked
└── ProtocolViolation             a bug in Anabranch: an event that its phase does not allow
"""

from __future__ import annotations

from pyspark.errors import PySparkException

__all__ = [
    "AccessRefused",
    "AnabranchError",
    "CallTimedOut",
    "CorruptState",
    "EpochError",
    "EpochGap",
    "FormatNotSupported",
    "IncompleteBatch",
    "InvalidArgument",
    "LocationError",
    "LocationInUse",
    "LocationNotWritable",
    "NotReachable",
    "NotRunning",
    "ProcessorError",
    "ProtocolViolation",
    "ReconfigurationFailed",
    "ServiceUnavailable",
    "StaleRouting",
    "StateMismatch",
    "displaced",
    "error_from_condition",
    "needs_extra",
]


class AnabranchError(PySparkException):
    """Base of all errors: a condition in Spark's style and a message that ends with what to do."""

    condition = "ANABRANCH_ERROR"

    def __init__(self, message: str) -> None:
        super().__init__(message=message)
        self._errorClass = self.condition

    def __str__(self) -> str:
        return self.getMessage()

    def __reduce__(self) -> tuple[type[AnabranchError], tuple[str]]:
        return type(self), (self._message,)


class InvalidArgument(AnabranchError, ValueError):
    """A bad argument; nothing was started or changed."""

    condition = "INVALID_ARGUMENT"


class LocationError(AnabranchError):
    """The state location cannot be used as asked."""

    condition = "STATE_LOCATION"


class LocationNotWritable(LocationError):
    """The location cannot be created or written."""

    condition = "STATE_LOCATION.NOT_WRITABLE"


class LocationInUse(LocationError):
    """Another live service holds the location, or has taken it over."""

    condition = "STATE_LOCATION.IN_USE"


class FormatNotSupported(LocationError):
    """The location was written by a newer release, or in a format that is no longer read."""

    condition = "STATE_LOCATION.FORMAT_NOT_SUPPORTED"


class StateMismatch(LocationError):
    """The stored state belongs to another query, operator or schema."""

    condition = "STATE_LOCATION.MISMATCH"


class CorruptState(LocationError):
    """A stored file is damaged, truncated or missing."""

    condition = "STATE_LOCATION.CORRUPT"


class EpochError(AnabranchError):
    """Spark and the stored state disagree about batches."""

    condition = "STATE_EPOCH"


class IncompleteBatch(EpochError):
    """Some lanes of the last batch never finished."""

    condition = "STATE_EPOCH.INCOMPLETE_BATCH"


class EpochGap(EpochError):
    """The asked batch does not follow the stored state."""

    condition = "STATE_EPOCH.GAP"


class ProcessorError(AnabranchError):
    """User code failed; the message carries the user's traceback."""

    condition = "STATEFUL_PROCESSOR_FAILED"


class ServiceUnavailable(AnabranchError):
    """A worker or the coordinator cannot be reached."""

    condition = "STATE_SERVICE_UNAVAILABLE"


class CallTimedOut(ServiceUnavailable):
    """A worker did not answer in time."""

    condition = "STATE_SERVICE_UNAVAILABLE.TIMED_OUT"


class AccessRefused(ServiceUnavailable):
    """One end does not accept the other's certificate or token. Trying again does not help."""

    condition = "STATE_SERVICE_UNAVAILABLE.ACCESS_REFUSED"


class NotRunning(ServiceUnavailable):
    """No service listens for a location."""

    condition = "STATE_SERVICE_UNAVAILABLE.NOT_RUNNING"


class NotReachable(ServiceUnavailable):
    """A process has ended, or its host is cut off."""

    condition = "STATE_SERVICE_UNAVAILABLE.NOT_REACHABLE"
    address: str | None = None
    """Where nobody was reached, in the process that tried; None: somebody else tells of it."""
    is_cut: bool = False
    """Whether a call that was under way was given up, and not refused by anybody."""


class ReconfigurationFailed(AnabranchError):
    """A move could not be completed; the query continues with the owners that it has."""

    condition = "RECONFIGURATION_FAILED"


class StaleRouting(ReconfigurationFailed):
    """Key groups have changed owners since the caller looked; nothing was begun."""

    condition = "RECONFIGURATION_FAILED.STALE_ROUTING"


class ProtocolViolation(AnabranchError):
    """An event that the current phase does not allow: a bug in Anabranch."""

    condition = "INTERNAL_PROTOCOL_VIOLATION"


def _tree(root: type[AnabranchError]) -> dict[str, type[AnabranchError]]:
    found = {root.condition: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


def error_from_condition(condition: str, message: str) -> AnabranchError:
    """Rebuild an error that crossed a process boundary as (condition, message)."""
    return _tree(AnabranchError).get(condition, AnabranchError)(message)


def unexpected(error: Exception) -> AnabranchError:
    """Any error as one of ours; one that nobody thought of keeps its name."""
    if isinstance(error, AnabranchError):
        return error
    return AnabranchError(
        f"{type(error).__name__}: {error}. Nothing was changed; start the query again."
    )


def displaced(operator: str) -> InvalidArgument:
    """Tasks of the stage are not the operator's lanes."""
    return InvalidArgument(
        f"The result of operator '{operator}' goes straight into union() or coalesce(), which "
        "renumber its tasks. Define the operator with own_stage=True, or call repartition(n) on "
        "its result first. Nothing was changed."
    )


def needs_extra(what: str, extra: str, instead: str = "", folder: str = ".") -> InvalidArgument:
    """Packages that only some users need are not installed; the folder is the distribution's."""
    return InvalidArgument(
        f"{what}. Install the extra '{extra}': pip install '{folder}[{extra}]' in a clone of "
        f"Anabranch{instead}."
    )
