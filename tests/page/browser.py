"""What walks through the page: Node with playwright-core, and Debian's Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from anabranch.http.page import PageFiles

UI = Path(__file__).parents[2] / "ui"
NODE_MIN = 20
"""What playwright-core asks for; the build of the page does with less."""
SECONDS_MAX = 280.0


def needs_browser() -> pytest.MarkDecorator:
    """Skips with a reason where the page cannot be looked at."""
    reason = why_not()
    return pytest.mark.skipif(reason is not None, reason=reason or "")


def why_not() -> str | None:
    """What is missing here; None: nothing."""
    if not PageFiles().is_built:
        return "the page is not built: see scripts/build-page"
    if not (UI / "node_modules" / "playwright-core").is_dir():
        return "playwright-core is not installed: run `make page`"
    names = ("chromium", "chromium-browser", "google-chrome")
    if not any(shutil.which(name) for name in names):
        return "there is no Chromium: see scripts/ensure-chromium"
    node = shutil.which("node")
    if node is None:
        return "there is no Node: see scripts/ensure-node"
    asked = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30)
    version = asked.stdout.strip()
    if int(version.lstrip("v").partition(".")[0] or 0) < NODE_MIN:
        return f"Node {version} is older than {NODE_MIN}"
    return None


def run_script(name: str, *arguments: str) -> str:
    """A script of ui/e2e; what it printed. ANABRANCH_SHOTS is a folder for pictures."""
    command = ["node", str(UI / "e2e" / name), *arguments]
    if shots := os.environ.get("ANABRANCH_SHOTS"):
        command.append(shots)
    done = subprocess.run(command, cwd=UI, capture_output=True, text=True, timeout=SECONDS_MAX)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return done.stdout
