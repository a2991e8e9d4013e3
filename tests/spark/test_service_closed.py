"""Closed doors: the service's token is nowhere to be seen, and no call works without it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.differential import Feed, Watched

from anabranch import StateService, agg


def secrets_of(service: StateService) -> list[str]:
    """Tokens, and with TLS a line of the key."""
    access = service._coordinator.access
    found = [access.credentials.token, access.credentials.for_lanes().token]
    if access.certificate is not None:
        found.append(access.certificate.key.decode().splitlines()[1])
    return found


@pytest.mark.parametrize("tls", [None, True])
def test_secrets_are_not_shown(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], tls: bool | None
) -> None:
    feed = Feed(spark, tmp_path, "k string, t double")
    df = feed.stream().withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "1 second")
    feed.add([{"k": "a", "t": 1}])
    location = str(tmp_path / "state")
    with StateService(spark, location, workers=1, fsync=False, tls=tls) as service:
        secrets = secrets_of(service)
        assert len(secrets) == (3 if tls else 2)
        result = service.group_by(df, "k", window=agg.tumbling("ts", "5 seconds")).aggregate(
            n=agg.count(), name="shown"
        )
        result.explain(True)
        with Watched(result, tmp_path / "check") as watched:
            watched.query.processAllAvailable()
            watched.query.explain(True)
            progress = [json.dumps(each, default=str) for each in watched.query.recentProgress]
        shown = "".join(capfd.readouterr()) + "".join(progress) + repr(service.status())
        assert "anabranch_ticks" in shown
        assert "run_lane" in shown
        assert not [secret for secret in secrets if secret in shown]
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = command.read_bytes()
            except OSError:  # it has just ended
                continue
            assert not [secret for secret in secrets if secret.encode() in text]
        for pid in [worker["pid"] for worker in service.status()["workers"].values()]:
            text = Path(f"/proc/{pid}/environ").read_bytes()
            assert not [secret for secret in secrets if secret.encode() in text]
    kept = [path for name in ("state", "check") for path in (tmp_path / name).rglob("*")]
    assert any(path.is_file() for path in kept)
    texts = [path.read_bytes() for path in kept if path.is_file()]
    assert not [secret for secret in secrets for text in texts if secret.encode() in text]


def exchange(client: Any, options: Any) -> None:
    _, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"), options)
    reader.read_chunk()


@pytest.mark.parametrize("token", [None, "Bearer wrong", "Bearer "])
def test_no_call_without_the_token(spark: SparkSession, tmp_path: Path, token: str | None) -> None:
    headers = [] if token is None else [(b"authorization", token.encode())]
    options = flight.FlightCallOptions(timeout=10, headers=headers)
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        coordinator = service._coordinator
        deadline = time.monotonic() + 60
        while not coordinator._pool.peers() and time.monotonic() < deadline:
            time.sleep(0.05)
        addresses = [coordinator.address]
        addresses += [peer.address for peer in coordinator._pool.peers().values()]
        assert len(addresses) == 2
        for address in addresses:
            assert address.startswith("127.0.0.1:")
            client = flight.connect(f"grpc://{address}")
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.do_action(flight.Action("status", b"{}"), options))
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.do_action(flight.Action("install", b"x"), options))
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.list_actions(options))
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.list_flights(options=options))
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.do_get(flight.Ticket(b"x"), options).read_all()
            with pytest.raises(flight.FlightUnauthenticatedError):
                exchange(client, options)
            client.close()
        assert service.status()["operators"] == {}
