"""S3-compatible stores: from a URI with options to a pyarrow file system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as pafs

from anabranch.errors import InvalidArgument, LocationError

RETRY_SECONDS = 60.0
"""For so long a store that does not answer, or says that it is busy, is asked again."""

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""A request that moves no byte for so long has failed; the AWS library's 3 s are too few for a
store that is only slow."""

_DEFAULT_REGION = "us-east-1"
"""What S3-compatible servers expect; also spares asking a cloud's metadata service."""


@dataclass(frozen=True, slots=True)
class S3Location:
    """A file system, the path in it, and the name to show: without options and credentials."""

    filesystem: Any
    path: str
    shown: str
    retry_seconds: float


def open_s3(uri: str) -> S3Location:
    """Understand `s3://[key:secret@]bucket/prefix?option=value&...`; see docs/stores.md."""
    parts = urlsplit(uri)
    bucket = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{bucket}{parts.path}"
    if not bucket:
        raise InvalidArgument(f"{shown} names no bucket. Write s3://bucket/prefix.")
    timeouts = {"connect_timeout": CONNECT_SECONDS, "request_timeout": SILENCE_SECONDS}
    options = timeouts | _options(parts, shown)
    retry_seconds = options.pop("retry_seconds", RETRY_SECONDS)
    if "region" not in options:
        options["region"] = (
            _DEFAULT_REGION if "endpoint_override" in options else _region_of(bucket, shown)
        )
    try:
        filesystem = pafs.S3FileSystem(
            **options,
            # One request for a small file instead of three, and it shows complete or not at all.
            allow_delayed_open=True,
            # Trying again is done once, above this, where it can be bounded and reported.
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
        )
    except (TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise InvalidArgument(f"Cannot use {shown} as a state location: {error}") from error
    return S3Location(filesystem, bucket + unquote(parts.path), shown, retry_seconds)


def _options(parts: SplitResult, shown: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if parts.username is not None:
        options["access_key"] = unquote(parts.username)
        options["secret_key"] = unquote(parts.password or "")
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name == "endpoint":
            options |= _endpoint(text, shown)
        elif name in _OPTIONS:
            options[name] = _converted(name, text, shown)
        else:
            known = ", ".join(sorted([*_OPTIONS, "endpoint"]))
            raise InvalidArgument(f"{shown}: unknown option {name!r}. There are: {known}.")
    return options


def _converted(name: str, text: str, shown: str) -> Any:
    try:
        return _OPTIONS[name](text)
    except (ValueError, KeyError) as error:
        # The value stays out of the message: it may be a secret.
        wanted = "true or false" if _OPTIONS[name] is _truth else "a number of seconds"
        raise InvalidArgument(f"{shown}: option {name!r} must be {wanted}.") from error


def _endpoint(text: str, shown: str) -> dict[str, str]:
    scheme, found, host = text.rpartition("://")
    host = host.rstrip("/")
    if not host or "/" in host or (found and scheme not in ("http", "https")):
        raise InvalidArgument(
            f"{shown}: endpoint is {text!r}. Write it as http://host:port or https://host:port."
        )
    return {"endpoint_override": host, "scheme": scheme or "https"}


def _region_of(bucket: str, shown: str) -> str:
    try:
        return str(pafs.resolve_s3_region(bucket))
    except (OSError, pa.ArrowException) as error:
        raise LocationError(
            f"Cannot find the region of {shown}: {error} Create the bucket if it is missing, add "
            "?region=... to the location if this machine may not ask for it, or "
            "?endpoint=http://host:port for a store that is not Amazon's."
        ) from error


def _truth(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "access_key": str,
    "allow_bucket_creation": _truth,
    "anonymous": _truth,
    "connect_timeout": _seconds,
    "endpoint_override": str,
    "external_id": str,
    "force_virtual_addressing": _truth,
    "proxy_options": str,
    "region": str,
    "request_timeout": _seconds,
    "retry_seconds": _seconds,
    "role_arn": str,
    "scheme": str,
    "secret_key": str,
    "session_name": str,
    "session_token": str,
    "tls_ca_file_path": str,
}
"""pyarrow's names for them, and ours."""
