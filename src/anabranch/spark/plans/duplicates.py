"""Plans `dropDuplicates` and `dropDuplicatesWithinWatermark`."""

from __future__ import annotations

from pyspark.sql.types import StructType

from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.first_rows import FirstRows
from anabranch.processor.sites import PlacedBy
from anabranch.spark.columnar import arrow_schema, with_hash
from anabranch.spark.plan import OperatorPlan, check_site
from anabranch.spark.plans.catalyst import Node, delay_ms, items, schema_of, type_of
from anabranch.spark.plans.fingerprint import fingerprint
from anabranch.spark.plans.operator import (
    NodeInput,
    Replacement,
    StaysNative,
    check_types,
    moment_of,
    own_names,
    restored_columns,
)
from anabranch.state.columnar.layout import nullable

MOMENT = "__event_time"
"""Column with what is compared with the watermark."""

_MICROS = 1000


def plan_duplicates(given: NodeInput, placed_by: PlacedBy | None) -> Replacement:
    """Of a Deduplicate or DeduplicateWithinWatermark."""
    attributes = given.attributes()
    keys = items(given.node.keys())
    is_within = given.node.nodeName() == "DeduplicateWithinWatermark"
    event_time = given.event_time()
    check_types(attributes, keys)
    # 1. All columns under names of ours, keys first, and the event time where it is needed
    ordered = [*keys, *(a for a in attributes if _place(a, keys) is None)]
    names = own_names(ordered)
    columns = list(zip(ordered, names, strict=True))
    key_names = names[: len(keys)]
    in_key = event_time is not None and _place(event_time, keys) is not None
    if event_time is not None:
        columns.append((moment_of(given.catalyst, event_time), MOMENT))
    frame = given.frame(columns)
    if in_key and not is_within:
        key_names.append(MOMENT)  # it follows from the key: nothing else becomes of the groups
    # 2. The operator
    by = _placed(frame.select(*key_names).schema, placed_by)
    within = None
    if is_within:
        if event_time is None or isinstance(type_of(event_time), StructType):
            raise StaysNative("its event time is not a timestamp")
        within = MOMENT, delay_ms(event_time) * _MICROS
    output_names = [names[_index(a, ordered)] for a in attributes]
    output = schema_of(attributes, output_names)
    definition = ColumnarDefinition(
        processor=FirstRows(
            output_names,
            nullable(arrow_schema(output)),
            fingerprint(keys),
            expiry=MOMENT if in_key else None,
            within=within,
        ),
        key_schema=arrow_schema(frame.select(*key_names).schema),
        input_schema=arrow_schema(frame.schema),
        output_schema=nullable(arrow_schema(output)),
        late=None if event_time is None else MOMENT,
        placed_by=by,
    )
    plan = OperatorPlan(
        input=with_hash(frame, key_names, by),
        definition=definition,
        output_schema=output,
        reads_clock=event_time is not None,
    )
    return Replacement(plan, restored_columns(given.catalyst, items(given.node.output())))


def _place(attribute: Node, among: list[Node]) -> int | None:
    identity = attribute.exprId()
    found = (at for at, each in enumerate(among) if each.exprId().equals(identity))
    return next(found, None)


def _index(attribute: Node, among: list[Node]) -> int:
    at = _place(attribute, among)
    assert at is not None
    return at


def _placed(keys: StructType, placed_by: PlacedBy | None) -> PlacedBy | None:
    """Streams that are not keyed by the site stay where hashes say."""
    if placed_by is None or placed_by.column not in keys.names:
        return None
    check_site(placed_by, keys.fields)
    return placed_by
