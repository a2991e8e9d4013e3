"""A reconfiguration in a notebook."""

from __future__ import annotations

from anabranch.coordinator.move_handle import MoveHandle, Progress
from anabranch.model.ids import WorkerId


def test_a_handle_shows_itself() -> None:
    times = {"load_ms": 120, "wait_ms": 0, "apply_ms": 30, "write_ms": 5}
    batch = {"operator": "a", "epoch": 7, "seconds": 0.2, "rows_forwarded": 3, **times}
    move = MoveHandle(
        *(1, "live", (WorkerId("w1"),), (WorkerId("w1"), WorkerId("w2"))),
        lambda _: (Progress(4, 0, 0, 4), {"bytes": 3 << 20, "flips": 4}),
        lambda *_: (batch,),
        lambda move, cause: move,
        lambda workers, cause: move,
        "page",
    )
    move.ended("", {"bytes": 3 << 20, "flips": 4})
    shown = move._repr_html_()
    assert "1 to 2" in shown
    assert "120 ms" in shown
    assert "<svg" in shown
    assert "page" in shown
