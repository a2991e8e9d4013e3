"""A query goes on whatever happens to the HTTP server beside it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.spark.moving import Sink
from tests.spark.tallies import source

from anabranch import StateService, agg
from anabranch.durability.blobs import BlobStore
from anabranch.http.endpoint import ServiceEndpoint, TokenFile

BATCHES = 5
"""That have to come while the server has trouble."""
CPU_SHARE_MAX = 0.35
"""Of a core, that all clients together may cost the driver; measured 0.04 to 0.1."""
STREAMS = 1000

CLIENTS = """
import socket, sys, time
port, token = int(sys.argv[1]), sys.argv[2]
def ask(path):
    return (f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n"
            f"Authorization: Bearer {token}\\r\\n\\r\\n").encode()
streams, slow = [], []
print("begun", flush=True)
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", port), 0.5)
        if len(streams) < STREAMS:
            connection.sendall(ask("/api/v1/events")); streams.append(connection)
        elif len(slow) < 100:
            connection.sendall(b"GET /api/v1/st"); slow.append(connection)
        else:
            connection.sendall(ask("/api/v1/status") * 50); connection.close()
    except OSError:
        time.sleep(0.001)
"""


@contextmanager
def flooded(service: StateService) -> Iterator[None]:
    """A process connects, listens, dawdles and asks as fast as it can."""
    endpoint = ServiceEndpoint.read(BlobStore(service._store.blobs.location))
    assert endpoint is not None
    port = endpoint.url.rpartition(":")[2]
    words = [CLIENTS.replace("STREAMS", str(STREAMS)), port, TokenFile(endpoint).read()]
    clients = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE)
    try:
        assert clients.stdout is not None
        assert clients.stdout.readline() == b"begun\n"
        yield
    finally:
        clients.kill()
        clients.wait(60)
        if clients.stdout is not None:
            clients.stdout.close()


def cpu_of_server() -> float:
    """CPU seconds of the thread that serves."""
    (thread,) = (t for t in threading.enumerate() if t.name == "anabranch-http")
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def more(sink: Sink, query: StreamingQuery) -> None:
    sink.wait_for(query, len(sink.rows) + BATCHES)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts CPU as Linux does")
def test_a_query_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    where = str(tmp_path / "state")
    with StateService(spark, where, workers=1, key_groups=8, http=True) as service:
        sink = Sink()
        counted = service.group_by(source(spark), "k").aggregate(n=agg.count(), name="counted")
        query = (
            counted.writeStream.foreachBatch(sink.write)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        sink.wait_for(query, 2)
        with flooded(service):
            before, started = cpu_of_server(), time.monotonic()
            more(sink, query)
            while time.monotonic() - started < 10:
                more(sink, query)
            share = (cpu_of_server() - before) / (time.monotonic() - started)
            assert 0 < share < CPU_SHARE_MAX
            more(sink, query)
        server = service._control._server
        assert server is not None

        async def dies(_: int) -> bool:
            raise RuntimeError("as if there were a bug")

        server._server.on_tick = dies  # type: ignore[method-assign,assignment]
        server._thread.join(60)
        assert not server._thread.is_alive()
        more(sink, query)
        assert query.exception() is None
        query.stop()
    assert not list(folder.glob("*/*"))
