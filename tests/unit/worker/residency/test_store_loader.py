"""When a key group is read whole for the sake of a few keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anabranch.processes.worker_config import WorkerConfig
from anabranch.worker.residency.store_loader import StoreLoader


@pytest.mark.parametrize(
    ("keys", "pages", "is_whole"),
    [(0, 4, True), (0, 5, False), (4, 61, False), (28, 61, False), (29, 61, True)],
)
def test_half_of_its_pages(keys: int, pages: int, is_whole: bool) -> None:
    share = WorkerConfig.__dataclass_fields__["whole_share"].default
    config = SimpleNamespace(
        keyspace=None, whole_share=share, state="hybrid", state_memory_bytes=None
    )
    core: Any = SimpleNamespace(config=config)
    nothing: Any = None
    groups = StoreLoader(core, nothing)
    assert groups._is_whole(pages, np.zeros(keys, np.int64)) is is_whole
