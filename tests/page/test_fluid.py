"""The page of 200 workers and 10,000 key groups, from a synthetic journal: frames stay short."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.page import synthetic
from tests.page.browser import needs_browser, run_script

from anabranch.durability.store import StateStore
from anabranch.http.server import HttpServer
from anabranch.http.stored import StoredService

MEDIAN_MS_MAX = 100
"""On a machine that runs other tests meanwhile; docs/page.md has what an idle one reaches."""


@needs_browser()
@pytest.mark.slow
def test_frames_stay_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    synthetic.write(tmp_path / "state")
    store = StateStore(str(tmp_path / "state")).look()
    server = HttpServer(StoredService(store), store.blobs, is_live=False)
    server.start()
    try:
        measured = json.loads(run_script("fluid.mjs", server.login_url).splitlines()[-1])
    finally:
        server.stop()
    sys.stdout.write(json.dumps(measured, indent=1))
    assert len(measured) == 5
    slow = {name: each for name, each in measured.items() if each["median_ms"] > MEDIAN_MS_MAX}
    assert not slow
