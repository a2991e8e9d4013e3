"""A server that dies or hangs, and who may come near its secrets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.http.scripted import Client, ScriptedService, serving, tokens_of

from anabranch.durability.blobs import BlobStore
from anabranch.errors import InvalidArgument
from anabranch.http import server as server_module
from anabranch.http.endpoint import READER_VARIABLE, ServiceEndpoint
from anabranch.http.server import HttpServer
from anabranch.model.journal_entry import EntryKind

PATIENCE_SECONDS = 60.0
NOBODY = 65534


def test_a_server_that_dies_leaves_no_file_that_lies(
    server: HttpServer, service: ScriptedService, tmp_path: Path, runtime: Path
) -> None:
    blobs = BlobStore(str(tmp_path / "state"))
    assert ServiceEndpoint.read(blobs) is not None

    async def dies(*_: Any) -> bool:
        raise RuntimeError("as if there were a bug")

    server._server.on_tick = dies  # type: ignore[method-assign,assignment]
    server._thread.join(PATIENCE_SECONDS)
    assert not server._thread.is_alive()
    assert ServiceEndpoint.read(blobs) is None
    assert list(runtime.iterdir()) == []
    service.happens(EntryKind.BATCH, operator="totals", epoch=1, seconds=0.1)
    server.stop()


def test_a_server_that_hangs_holds_up_nobody(
    server: HttpServer, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STOP_SECONDS_MAX", 0.5)
    client = Client(server, tokens_of(server)["reader"])
    with client, client.stream("GET", "/api/v1/events") as events:
        assert next(events.iter_lines()) == ": listening"
        loop = server._events._loop
        assert loop is not None
        loop.call_soon_threadsafe(time.sleep, 5.0)
        started = time.monotonic()
        for epoch in range(1000):
            service.happens(EntryKind.BATCH, operator="totals", epoch=epoch, seconds=0.1)
        server.stop()
        assert time.monotonic() - started < 4.5


SNEAK = """
import json, os, sys, urllib.error, urllib.request
folder, endpoint, pid = sys.argv[1:]
def tried(what):
    try:
        return repr(what())
    except urllib.error.HTTPError as error:
        return str(error.code)
    except Exception as error:
        return type(error).__name__
text = open(endpoint).read()
url = text[text.index("http://"):].partition('"')[0]
request = urllib.request.Request(url + "/api/v1/status")
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(json.dumps({
    "list": tried(lambda: os.listdir(folder)),
    "read": tried(lambda: [open(os.path.join(folder, n)).read() for n in sys.stdin.read().split()]),
    "environ": tried(lambda: open(f"/proc/{pid}/environ").read()),
    "ask": tried(lambda: opener.open(request, timeout=30).status),
    "cmdline": open(f"/proc/{pid}/cmdline").read(),
    "told": text,
}))
"""


PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
"""One that other users may run."""


@pytest.mark.skipif(
    os.geteuid() != 0 or None in (shutil.which("setpriv"), PYTHON),
    reason="needs root, setpriv and a Python of the system, to be another user",
)
def test_another_user_of_this_machine(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a place that everybody may enter: only the rights of the files themselves count.
    top = Path(os.environ.get("TMPDIR", "/tmp")) / f"anabranch-other-user-{os.getpid()}"
    top.mkdir(mode=0o755)
    top.chmod(0o755)
    try:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(top))
        with serving(service, top / "state") as server:
            endpoint = top / "state" / "endpoint.json"
            endpoint.parent.chmod(0o755)
            endpoint.chmod(0o644)  # as with StateService(shared=True)
            as_other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            sneaking = [str(PYTHON), "-I", "-c", SNEAK, str(server.token_file.path.parent)]
            done = subprocess.run(
                [*as_other, *sneaking, str(endpoint), str(os.getpid())],
                input=server.token_file.path.name,
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=True,
            )
            secrets = tokens_of(server)
    finally:
        shutil.rmtree(top)
    found = json.loads(done.stdout)
    assert (found["list"], found["read"]) == ("PermissionError", "PermissionError")
    assert found["environ"] == "PermissionError"
    assert found["ask"] == "401"
    for token in (secrets["operator"], secrets["reader"]):
        assert token not in done.stdout
    assert service.looks == 0


# -- a token that stays --


def test_a_reader_token_that_stays(
    service: ScriptedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 40 + "\n")
    file.chmod(0o640)
    monkeypatch.setenv(READER_VARIABLE, str(file))
    for _ in range(2):  # the same for each run
        with serving(service, tmp_path / "state") as server, Client(server, "x" * 40) as client:
            assert client.get("/metrics").status_code == 200
            assert client.api("POST", "/moves", json={"kind": "rebalance"}).status_code == 403
            assert tokens_of(server)["operator"] != "x" * 40


@pytest.mark.parametrize(("content", "mode"), [("short", 0o600), ("x" * 40, 0o644), (None, 0)])
def test_a_reader_token_that_is_no_secret_is_refused(
    service: ScriptedService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    mode: int,
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    monkeypatch.setenv(READER_VARIABLE, str(file))
    with pytest.raises(InvalidArgument, match=READER_VARIABLE):
        HttpServer(service, BlobStore(str(tmp_path / "state")))
