"""What the errors of a storage mean: whether they pass by themselves, and what to do about them."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

import pyarrow as pa

STORAGE_ERRORS = (OSError, pa.ArrowException)

NOTHING_LOST = "Nothing is lost: a restarted query goes on after the last batch that was committed."
_MAKE_SPACE = f"Free or add space there and start the query again. {NOTHING_LOST}"

_AWS = re.compile(
    r"AWS Error (?P<code>[A-Z0-9_]+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<call>\w+) "
    r"operation: ?(?P<detail>.*?)(?: \(Request ID: [^)]*\))?\.?\Z",
    re.DOTALL,
)
# A code that the AWS library does not know, in the words of the store.
_OTHER = re.compile(
    r"Unable to parse ExceptionName: (?P<code>\w+) Message: (?P<detail>.*)", re.DOTALL
)
_PASSING_CODES = frozenset(
    {
        "BANDWIDTH_LIMIT_EXCEEDED",
        "INTERNAL_FAILURE",
        "NETWORK_CONNECTION",
        "OPERATION_ABORTED",
        "REQUEST_TIMEOUT",
        "SERVICE_UNAVAILABLE",
        "SLOW_DOWN",
        "THROTTLING",
    }
)
_PASSING_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504})
_CREDENTIAL_CODES = frozenset(
    {
        "ACCESS_DENIED",
        "INVALID_ACCESS_KEY_ID",
        "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN",
        "SIGNATURE_DOES_NOT_MATCH",
        "UNRECOGNIZED_CLIENT",
    }
)
_CLOCK_CODES = frozenset({"REQUEST_EXPIRED", "REQUEST_TIME_TOO_SKEWED"})
_LASTING = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_FULL_STATUS = 507
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """What an S3-compatible store answered."""

    code: str
    status: int | None
    call: str
    detail: str

    @classmethod
    def of(cls, error: BaseException) -> StoreAnswer | None:
        """From pyarrow's message, the only place that has it; None for another kind of error."""
        match = _AWS.search(str(error))
        if match is None:
            return None
        other = _OTHER.match(match["detail"]) or match
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", other["code"]).upper()
        status = match["status"]
        return cls(code, int(status) if status else None, match["call"], other["detail"])

    @property
    def is_passing(self) -> bool:
        """Whether the store was busy, broken for a moment or out of reach."""
        return self.code in _PASSING_CODES or self.status in _PASSING_STATUSES

    def __str__(self) -> str:
        what = f"HTTP status {self.status}" if self.code == "UNKNOWN" else self.code
        detail = "" if self.detail == "No response body" else self.detail.rstrip(".")
        return f"{self.call} failed with {what}" + (f" ({detail})" if detail else "")


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    answer = StoreAnswer.of(error)
    if answer is not None:
        return answer.is_passing
    if not isinstance(error, OSError) or isinstance(error, _LASTING):
        return False
    return error.errno not in _FULL | _FORBIDDEN


def reason(error: BaseException) -> str:
    """Why, in a few words and without a full stop."""
    answer = StoreAnswer.of(error)
    if answer is not None:
        return str(answer)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.rstrip(".")
    return str(error).rstrip(".") or type(error).__name__


def advice(error: BaseException, otherwise: str) -> str:
    """What to do; `otherwise` is for an error that is not known here."""
    answer = StoreAnswer.of(error)
    if answer is not None:
        return _store_advice(answer, otherwise)
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL:
        return _MAKE_SPACE
    if number in _FORBIDDEN:
        return (
            "Give the user of this process the right to read and write there, mount it writable, "
            f"and start the query again. {NOTHING_LOST}"
        )
    return otherwise


def _store_advice(answer: StoreAnswer, otherwise: str) -> str:
    if answer.code == "NO_SUCH_BUCKET":
        return (
            "Create the bucket, correct its name in the location, or add ?endpoint=http://host:port"
            " if it is in another store."
        )
    if answer.code in _CREDENTIAL_CODES or answer.status in (401, 403):
        return (
            "Check the credentials of this process (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "a profile or a role) and that they allow s3:GetObject, s3:PutObject, "
            "s3:DeleteObject and s3:ListBucket there, and the clock of this machine. "
            f"{NOTHING_LOST}"
        )
    if answer.status == _FULL_STATUS:
        return _MAKE_SPACE
    if answer.code == "EXPIRED_TOKEN":
        return f"Give this process new credentials and start the query again. {NOTHING_LOST}"
    if answer.code in _CLOCK_CODES:
        return f"Set the clock of this machine: the store finds it wrong. {NOTHING_LOST}"
    if answer.is_passing:
        return (
            "Check that the store runs and can be reached (the endpoint option names it), then "
            f"start the query again. {NOTHING_LOST}"
        )
    return otherwise
