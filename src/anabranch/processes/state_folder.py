"""The folder of this host for state that is not in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

from anabranch.errors import LocationNotWritable
from anabranch.state.scratch import Scratch
from anabranch.transport.messages.hosts import StateFolder

SPARK_FOLDERS = "SPARK_LOCAL_DIRS", "LOCAL_DIRS"
"""Variables with the folders of Spark's executor, the best one first. YARN sets the second one."""


def folder_here(
    own: str | None, wanted: str | None, environment: Mapping[str, str] = os.environ
) -> str:
    """The host's own if somebody has given one, else what the user wants, else Spark's."""
    spark = (environment.get(name, "").split(",")[0] for name in SPARK_FOLDERS)
    return next(filter(None, (own, wanted, *spark)), tempfile.gettempdir())


def folder_flaw(folder: str, asked: StateFolder) -> str | None:
    """Why workers cannot keep state there; None: they can, and the folder is there."""
    if not asked.is_needed:
        return None
    try:
        Scratch(folder).close()
    except LocationNotWritable as error:
        return str(error)
    return None
