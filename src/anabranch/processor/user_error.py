"""An error of user code as a message: what and where first, the user's frames, what to do last."""

from __future__ import annotations

import traceback


def user_failure(what: str, error: BaseException, advice: str) -> str:
    """`what` failed with this error; the first frame is ours, and left out."""
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    told = traceback.TracebackException(type(error), error, trace)
    name = "".join(told.format_exception_only()).rstrip("\n")
    lines = "".join(told.format())
    # The error itself is the first line already.
    frames = lines.rstrip("\n").removesuffix(name).rstrip("\n")
    return "\n".join(filter(None, (f"{what}: {name}", frames, advice)))
