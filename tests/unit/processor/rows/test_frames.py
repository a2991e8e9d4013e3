"""DataFrames that user code yields, as columns of the declared types."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import DecimalType, StructField, StructType
from tests.unit.processor.rows.support import define

from anabranch.errors import ProcessorError
from anabranch.processor.rows import frames
from anabranch.processor.rows.frames import INTEGERS_AS_DECIMALS, FrameWriter


class Nothing(StatefulProcessor):
    def init(self, handle: object) -> None:
        pass

    def handleInputRows(self, key: object, rows: object, timerValues: object) -> Any:
        return iter(())

    def close(self) -> None:
        pass


@pytest.mark.skipif(not frames._COERCES_INTEGERS, reason="this PySpark has no such setting")
def test_integers_become_decimals_where_the_session_says_so() -> None:
    output = StructType([StructField("d", DecimalType(10, 2))])
    definition = replace(define(Nothing(), "k long", ["k"], "d long", "none"), output=output)
    frame = pd.DataFrame({"d": [12345]})
    with pytest.raises(ProcessorError, match="do not fit"):
        FrameWriter(definition).columns([frame])
    allowed = replace(definition, settings=((INTEGERS_AS_DECIMALS, True),))
    (column,) = FrameWriter(allowed).columns([frame])
    assert column.type == pa.decimal128(10, 2)
    assert column.to_pylist() == [Decimal("12345.00")]
