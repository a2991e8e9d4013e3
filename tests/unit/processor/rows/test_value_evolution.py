"""How schemas of state may change; `tests/spark/test_evolution.py` asks Spark the same."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import types as T

from anabranch.processor.rows.value_evolution import (
    Change,
    change_of,
    removed_fields,
    renewed_fields,
)
from anabranch.spark.state_types import spark_struct

NEEDED = T.StructField("n", T.IntegerType(), nullable=False)


def change(stored: str, now: str, gone: tuple[str, ...] = ()) -> Change:
    return change_of("variable 'v'", f"struct<{stored}>", spark_struct(f"struct<{now}>"), gone)


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        ("a:int,b:string", "b:string,a:int"),
        ("a:int", "a:bigint"),
        ("a:tinyint", "a:smallint"),
        ("a:int", "a:double"),
        ("a:bigint", "a:float"),
        ("a:float", "a:double"),
        ("a:string", "a:binary"),
        ("a:void", "a:array<int>"),
        ("a:int", "z:string,a:int,y:array<int>"),
        ("a:struct<x:int,y:string>", "a:struct<z:date,y:string,x:double>"),
        ("a:array<struct<x:int>>", "a:array<struct<y:int,x:bigint>>"),
        ("a:map<string,int>", "a:map<string,double>"),
    ],
)
def test_allowed(stored: str, now: str) -> None:
    assert change(stored, now) == Change()


@pytest.mark.parametrize(
    ("stored", "now", "why"),
    [
        ("a:bigint", "a:int", "field 'a' was bigint, now it is int, which cannot hold"),
        ("a:double", "a:float", "was double, now it is float"),
        ("a:int", "a:date", "was int, now it is date"),
        ("a:int", "a:string", "was int, now it is string"),
        ("a:binary", "a:string", "was binary, now it is string"),
        ("a:decimal(10,2)", "a:decimal(12,2)", r"now it is decimal\(12,2\)"),
        ("a:int", "a:array<int>", "now it is array<int>"),
        ("a:struct<x:int>", "a:int", "was struct<x:int>, now it is int"),
        ("a:int", "a:struct<x:int>", "was int, now it is struct<x:int>"),
        ("a:struct<x:bigint>", "a:struct<x:int>", r"field 'a\.x' was bigint"),
        ("a:array<bigint>", "a:array<int>", r"field 'a\[\]' was bigint"),
        ("a:map<string,bigint>", "a:map<string,int>", r"field 'a\{\}' was bigint"),
        ("a:map<int,bigint>", "a:map<bigint,bigint>", "keys of field 'a' were int.*keys must stay"),
    ],
)
def test_refused(stored: str, now: str, why: str) -> None:
    (found,) = change(stored, now).found
    assert found.startswith("variable 'v': ")
    assert re.search(why, found)


def test_added_fields_must_be_nullable() -> None:
    inner = T.StructType([T.StructField("x", T.IntegerType()), NEEDED])
    now = T.StructType([T.StructField("a", inner), NEEDED])
    found = change_of("variable 'v'", "struct<a:struct<x:int>>", now).found
    assert [line.partition(" must be nullable")[0] for line in found] == [
        "variable 'v': the added field 'a.n'",
        "variable 'v': the added field 'n'",
    ]


def test_removed_fields_are_remembered() -> None:
    first = change("a:int,b:struct<x:int,y:int>,c:array<struct<z:int>>", "b:struct<y:int>")
    assert first.removed == ["b.x", "a", "c"]
    removed = removed_fields({"v": {"a": 1}, "w": {"q": 1}}, {"v": first})
    assert removed == {"v": {"a": 2, "b.x": 1, "c": 1}, "w": {"q": 1}}
    # One of the value itself comes back as another column, with any type.
    again = spark_struct("struct<b:struct<y:int>,c:int>")
    assert not change_of("v", "struct<b:struct<y:int>>", again, removed["v"]).found
    assert renewed_fields(removed["v"], again) == (("c", 1),)
    # One inside of another does not: values stored before may have it.
    (found,) = change("b:struct<y:int>", "b:struct<y:int,x:int>", ("b.x",)).found
    assert "field 'b.x' was removed before" in found
