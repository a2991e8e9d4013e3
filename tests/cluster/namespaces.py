"""Whether a test has the namespaces that it needs."""

from __future__ import annotations

import os

import pytest

from anabranch_bench.testbed.namespaces import why_not

NETNS = "ANABRANCH_NETNS"
REQUIRED = "required"
"""Value of the environment variable where a skipped test would hide something, as in CI."""


def need_namespaces() -> None:
    """Skip the test without; fail where they are required."""
    if not (reason := why_not()):
        return
    if os.environ.get(NETNS) == REQUIRED:
        pytest.fail(f"{reason} Unset {NETNS} to skip this test.", pytrace=False)
    pytest.skip(reason)
