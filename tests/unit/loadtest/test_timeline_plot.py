"""Pictures need matplotlib, and say so at once."""

from __future__ import annotations

import sys

import pytest

from anabranch.errors import InvalidArgument
from anabranch.loadtest.timeline_plot import check_matplotlib


def test_no_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidArgument, match=r"'\.\[plot\]'"):
        check_matplotlib()
