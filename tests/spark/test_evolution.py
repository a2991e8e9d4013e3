"""Schemas of state that change: the table against Spark's, and queries beside Spark's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.test_names import Program, on_both

from anabranch.processor.rows.value_evolution import change_of
from anabranch.spark.state_types import spark_struct

NUMBERS = ["tinyint", "smallint", "int", "bigint", "float", "double"]
ATOMS = [*NUMBERS, "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"]
ATOMS += ["decimal(10,2)", "decimal(12,2)", "void"]
NESTED = ["array<int>", "array<bigint>", "map<string,int>", "map<string,bigint>"]
NESTED += ["struct<x:int>", "struct<x:bigint>", "struct<y:string,x:int>"]

TOLD_APART = {
    # Avro has one type for each of these groups; here they would be other values.
    *itertools.product(["smallint", "int", "date"], ["tinyint", "smallint"]),
    *itertools.product(["tinyint", "smallint", "int"], ["date", "timestamp", "timestamp_ntz"]),
    *itertools.product(["date"], ["int", "bigint", "float", "double", "timestamp"]),
    *itertools.product(["timestamp", "timestamp_ntz"], ["bigint", "float", "double"]),
    *itertools.product(["bigint", "date", "timestamp"], ["timestamp_ntz"]),
    *itertools.product(["bigint", "timestamp_ntz"], ["timestamp"]),
    ("binary", "string"),
} - {("smallint", "smallint")}


def allows(spark: SparkSession, stored: str, now: str) -> bool:
    """What Spark does with `stateStore.encodingFormat=avro`."""
    jvm: Any = spark._jvm
    converters = getattr(jvm.org.apache.spark.sql.avro, "SchemaConverters$")

    def schema(kind: str) -> Any:
        struct = jvm.org.apache.spark.sql.types.StructType.fromDDL(f"a {kind}")
        return getattr(converters, "MODULE$").toAvroTypeWithDefaults(struct, "record", "", 0)

    before = jvm.java.util.ArrayList()
    before.add(schema(stored))
    validator = jvm.org.apache.avro.SchemaValidatorBuilder().canReadStrategy().validateAll()
    try:
        validator.validate(schema(now), before)
    except Py4JJavaError as error:
        return "SchemaValidationException" not in str(error.java_exception.toString())
    return True


@pytest.mark.slow
def test_the_table_is_that_of_avro(spark: SparkSession) -> None:
    pairs = [*itertools.permutations(ATOMS, 2), *itertools.permutations(NESTED, 2)]
    for stored, now in [*pairs, ("int", "array<int>"), ("struct<x:int>", "string")]:
        change = change_of("", f"struct<a:{stored}>", spark_struct(f"struct<a:{now}>"))
        expected = allows(spark, stored, now)
        if (stored, now) in TOLD_APART:
            assert expected, (stored, now)
            expected = False
        assert (not change.found) == expected, (stored, now)


class Shaped(StatefulProcessor):
    """Tells what it finds, and puts something of each type."""

    value = "n int, s string, f float"
    element = "n int, s string"
    entry = "p struct<x: int, y: string>, n int"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("v", self.value)
        self._list = handle.getListState("l", self.element)
        self._map = handle.getMapState("m", "k string", self.entry)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        found = self._value.get(), list(self._list.get()), sorted(self._map.iterator())
        for row in rows:
            self.put(row.k)
        yield Row(k=key[0], found=repr(found))

    def put(self, k: int) -> None:
        self._value.update((k, "one", 0.5))
        self._list.appendValue((k, "one"))
        self._map.updateValue(("a",), ((k, "one"), k))


class Grown(Shaped):
    """Wider, in another order, with more fields."""

    value = "s string, more struct<z: int>, n long, f double"
    element = "more int, s string, n double"
    entry = "n double, p struct<y: string, z: double, x: long>"

    def put(self, k: int) -> None:
        if k % 2:
            self._value.update(("two", (k,), k, 0.25))
            self._list.appendValue((k, "two", 0.5))
        self._map.updateValue(("b",), (0.5, ("two", 0.5, k)))


class Shrunk(Grown):
    """With fewer fields."""

    value = "n double"
    element = "n double"
    entry = "p struct<x: double>"

    def put(self, k: int) -> None:
        self._value.update((k + 0.5,))


class Again(Shrunk):
    """With a field that had gone; it is null in what was written since."""

    value = "s string, n double"

    def put(self, k: int) -> None:
        self._value.update(("again", 1.0))


class Narrow(Shrunk):
    value = "n int"


@pytest.mark.slow
def test_queries_with_new_schemas(spark: SparkSession, tmp_path: Path) -> None:
    """Each step is a class of its own on one checkpoint, as in PySpark's tests."""

    def scenario(program: Program) -> list[Any]:
        found: list[Any] = []
        for processor in (Shaped(), Grown(), Shrunk(), Again(), Again()):
            program.add(1, 2)
            df = program.feed.stream()
            result = df.groupBy("k").transformWithState(
                processor, "k long, found string", "Update", "None"
            )
            found.append(program.rows(result, "checkpoint"))
        program.add(1)
        refused = program.feed.stream().groupBy("k")
        try:
            result = refused.transformWithState(Narrow(), "k long, found string", "Update", "None")
            program.rows(result, "checkpoint")
        except Exception as error:
            found.append("MISMATCH" in str(error) or "SCHEMA_EVOLUTION" in str(error))
        return found

    spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", "avro")
    try:
        native, ours = on_both(spark, tmp_path, scenario)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.encodingFormat")
    assert native == ours
    assert "(1.0,)" in ours[2][0][1]
    assert "(None, 1.5)" in ours[3][0][1]
    assert "('again', 1.0)" in ours[4][0][1]
    assert ours[5] is True
