"""State with fields that cannot be null."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as T
from tests.unit.processor.rows.processors import Sizing
from tests.unit.processor.rows.sizes import service, sizes
from tests.unit.processor.rows.support import Service

from anabranch.errors import ProcessorError
from anabranch.processor.rows.nullable import ENCODING


def test_state_that_cannot_be_null_is_refused_under_avro() -> None:
    class Needing(Sizing):
        def init(self, handle: Any) -> None:
            schema = T.StructType([T.StructField("n", T.LongType(), False)])
            handle.getListState("all", schema)

    def worker() -> Service:
        return service(Needing())

    for encoding in ("avro", "Avro"):
        with pytest.raises(ProcessorError, match=r"SCHEMA_MUST_BE_NULLABLE.*family all must"):
            sizes(worker(), **{ENCODING: encoding})
    later = worker()
    assert sizes(later, **{ENCODING: "unsaferow"})
    assert sizes(later, **{ENCODING: "avro"})  # state that was taken before stays readable
