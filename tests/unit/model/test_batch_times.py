"""Clock readings are values: a retry that has others would be another batch."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from anabranch.model.batch_times import BatchTimes


def test_readings_are_equal_by_value_and_do_not_change() -> None:
    times = BatchTimes(1, 2, 3)
    assert times == BatchTimes(processing_time_ms=1, watermark_ms=2, late_watermark_ms=3)
    assert times != BatchTimes(1, 2, 4)
    with pytest.raises(FrozenInstanceError):
        times.watermark_ms = 9  # type: ignore[misc]
