"""Which workers talk to each other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_bench.probes import connections
from anabranch_bench.probes.connections import between


class TestPeers:
    TABLE = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid tmo inode",
        "   0: 0100007F:1000 0100007F:2000 01 00000000:00000000 00:00000000 00000000 0 0 11 1",
        "   1: 0100007F:2000 0100007F:1000 01 00000000:00000000 00:00000000 00000000 0 0 22 1",
        "   2: 0100007F:1000 0100007F:3000 01 00000000:00000000 00:00000000 00000000 0 0 12 1",
        "   3: 0100007F:1000 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 13 1",
    )

    def test_connections_between_workers(self) -> None:
        assert between(self.TABLE, {"11": 1, "12": 1, "13": 1, "22": 2}) == 1

    def test_connections_to_others_and_to_itself(self) -> None:
        assert between(self.TABLE, {"11": 1, "12": 1}) == 0
        assert between(self.TABLE, {"11": 1, "22": 1}) == 0

    @pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux tells, others do not")
    def test_a_connection_that_comes_and_goes_is_remembered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "SAMPLE_SECONDS", 0.0)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); input()"
            with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as other:
                samples = connections.PeerSamples([os.getpid(), other.pid])
                accepted, _ = server.accept()
                samples.look()
                assert (samples.most, samples.count) == (1, 1)
                accepted.close()
                samples.look()
                assert (samples.most, samples.count) == (1, 2)
                other.communicate(b"\n")
        samples.look()
        assert samples.count == 2, "a process that is gone tells nothing"
