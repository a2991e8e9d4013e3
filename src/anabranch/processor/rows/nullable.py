"""Where Spark refuses state whose fields cannot be null: under Avro, in a query's first batch."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import ProcessorError
from anabranch.processor.contract import Transaction
from anabranch.state.rows.layout import VariableSpec

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"


def check_nullable(tx: Transaction, variables: Sequence[VariableSpec]) -> None:
    """Raise as Spark does; state that an earlier release has taken stays readable."""
    if tx.epoch != 0 or tx.task.properties.get(ENCODING, "").lower() != "avro":
        return
    for spec in variables:
        needed = [field.name for field in spec.value_schema.fields if not field.nullable]
        if needed:
            raise ProcessorError(
                "[TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE] Under Avro encoding all fields of "
                f"column family {spec.name} must be nullable, as in Spark. These are not: "
                f"{', '.join(needed)}. Make them nullable (StructField(..., True), DDL without NOT "
                f"NULL), or unset {ENCODING}."
            )
