"""The end of every dispatch: mypy finds the case that was forgotten, and at run time it shows."""

from __future__ import annotations

from typing import NoReturn

from anabranch.errors import ProtocolViolation


def unhandled(value: NoReturn) -> NoReturn:
    """Called where no event, effect, order or message is left."""
    raise ProtocolViolation(f"{value!r} has no case here")
