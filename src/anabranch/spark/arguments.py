"""What a service is made from, checked before anything is started."""

from __future__ import annotations

from typing import Any

from anabranch.errors import InvalidArgument


def check_arguments(
    spark: Any,
    location: Any,
    workers: Any,
    key_groups: Any,
    bins: Any,
    lanes: Any,
    memory_bytes: Any,
) -> None:
    """Refuse what a service could not start with."""
    if not isinstance(location, str) or not location:
        raise InvalidArgument(f"location must be a folder or a URI, got {location!r}.")
    if type(spark).__name__ != "SparkSession":
        raise InvalidArgument(f"The first argument must be a SparkSession, got {spark!r}.")
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidArgument(
            "Spark Connect sessions have no driver in this process, where the state service lives. "
            "Use a classic session: SparkSession.builder.master(...).getOrCreate()."
        )
    numbers = (
        ("workers", workers),
        ("key_groups", key_groups),
        ("bins", bins),
        ("lanes", lanes),
    )
    for name, value in numbers:
        if value is None and name == "lanes":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidArgument(f"{name} must be a whole number of at least 1, got {value!r}.")
    if workers > key_groups:
        raise InvalidArgument(
            f"{workers} workers cannot share {key_groups} key groups. Ask for fewer workers, or "
            "for more key_groups in a new location (their number is fixed once there is state)."
        )
    if not isinstance(memory_bytes, int) or memory_bytes < 16 << 20:
        raise InvalidArgument(f"memory_bytes must be at least 16 MiB, got {memory_bytes}.")
