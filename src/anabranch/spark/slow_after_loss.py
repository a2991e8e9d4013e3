"""Settings of Spark without which a query stands still for longer than it must when a host is lost.

The service replaces a host's workers after `host_timeout`. What Spark does then is Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

GET_BY = "spark.shuffle.io.connectionTimeout"
RETRIES = "spark.shuffle.io.maxRetries"
LOCALITY = "spark.locality.wait"
NETWORK = "spark.network.timeout"

GOOD_FETCH, FETCH_SECONDS_MAX = "8s", 15.0
"""What to set, and what is still good enough."""
LOCALITY_SECONDS_MAX = 1.0

UNITS = {
    **{"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
}
"""As Spark writes times."""


def slow_after_loss(setting: Callable[[str, str], str]) -> str | None:
    """What to set so that batches go on soon after a host was cut off; None: all is set.

    `setting` returns the value of a name, or the given default.
    """
    flaws: list[str] = []
    fetch = setting(GET_BY, setting(NETWORK, "120s"))
    if _seconds(fetch, 1.0) > FETCH_SECONDS_MAX:
        flaws.append(
            f"{GET_BY}={GOOD_FETCH} (now {fetch}: tasks wait so long for rows that a "
            "lost host was to send)"
        )
    retries = setting(RETRIES, "3")
    if retries.strip() != "0":
        flaws.append(f"{RETRIES}=0 (now {retries}: they try again so often, as long each time)")
    wait = setting(LOCALITY, "3s")
    if _seconds(wait, 1e-3) > LOCALITY_SECONDS_MAX:
        flaws.append(f"{LOCALITY}=0 (now {wait}: tasks wait so long for a slot near their rows)")
    if not flaws:
        return None
    return (
        "After the loss of a host, batches may stand still for longer than host_timeout and 10 s. "
        f"Set {', '.join(flaws)} when you make the Spark session; later it has no effect."
    )


def _seconds(text: str, unit: float) -> float:
    """A time as Spark's settings have it; `unit` is that of plain numbers. Unknown: 0."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or (found[2] and found[2] not in UNITS):
        return 0.0
    return int(found[1]) * (UNITS[found[2]] if found[2] else unit)
