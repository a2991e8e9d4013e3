"""The end of every dispatch: mypy finds the event that was forgotten, the machine refuses it."""

from __future__ import annotations

from typing import NoReturn

from anabranch.errors import ProtocolViolation


def unhandled(event: NoReturn) -> NoReturn:
    """Called where no event is left."""
    raise ProtocolViolation(f"{event!r} is not an event of this machine")
