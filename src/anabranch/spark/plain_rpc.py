"""Tokens of lanes travel inside Spark's closures: a warning if anybody can read those."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark import SparkContext

_log = logging.getLogger("anabranch.service")

_warned: set[str] = set()
"""Applications that have heard it."""

Setting = Callable[[str], str | None]


def plain_rpc(setting: Setting) -> str | None:
    """What is wrong with how Spark's processes talk to each other; None: nothing."""

    def is_on(name: str) -> bool:
        return (setting(name) or "").lower() == "true"

    is_encrypted = is_on("spark.network.crypto.enabled") or is_on("spark.ssl.rpc.enabled")
    missing = []
    if not is_on("spark.authenticate"):
        missing.append("spark.authenticate=true")
    if not is_encrypted:
        missing.append("spark.network.crypto.enabled=true")
    if not missing:
        return None
    return (
        "Spark's own connections are not protected: whoever can listen on the network can read "
        "rows, and the token with which tasks call the state service. Start Spark with "
        f"{' and '.join(missing)}; docs/security.md says more."
    )


def warn_of_plain_rpc(context: SparkContext) -> None:
    """Once for each application; one on a single machine sends nothing over a network."""
    application = str(context.applicationId)
    if application in _warned or str(context.master).startswith("local"):
        return
    _warned.add(application)
    warning = plain_rpc(lambda name: context.getConf().get(name, None))
    if warning is not None:
        _log.warning("%s", warning)
