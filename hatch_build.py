"""Puts the page into the wheel: builds it from ui/ before hatchling collects files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SECONDS_MAX = 600


class PageBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling; without Node the wheel has no page, and the build says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before files are collected. An editable install builds it too, into the source tree."""
        script = Path(self.root) / "scripts" / "build-page"
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=SECONDS_MAX
        )
        for line in done.stderr.splitlines():
            self.app.display_warning(line)
