"""The driver's hash of a key is Spark's, for every type that a key can have."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.state.hashing import hash_rows
from anabranch.state.rows.layout import KeyCodec

DAY = datetime.date(1970, 1, 1)
TEXTS = ["", "a", "ü", "日本語", "x" * 31, "y" * 32, "z" * 33, "\0", "😀" * 20]


def cases(chance: random.Random) -> dict[str, list[Any]]:
    """Values by type; nulls are added to all."""
    longs = [0, 1, -1, 2**63 - 1, -(2**63), *(chance.randrange(-(2**63), 2**63) for _ in range(60))]
    doubles = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.5, -2.25]
    texts = TEXTS + ["".join(chance.choices("abcü日 ", k=n)) for n in range(80)]
    texts_of_moments = ("1969-12-31 23:59:59.999999", "2024-07-01 00:00:00")
    moments = [datetime.datetime.fromisoformat(text) for text in texts_of_moments]
    return {
        "boolean": [True, False],
        "byte": [-128, 127, 0, 5],
        "short": [-32768, 32767, -1],
        "int": [2**31 - 1, -(2**31), 0, 7, -7],
        "long": longs,
        "float": [0.0, -0.0, math.nan, math.inf, 1.5, -3.25],
        "double": doubles + [chance.gauss(0, 1e9) for _ in range(40)],
        "string": texts,
        "binary": [text.encode() for text in texts],
        "date": [DAY + datetime.timedelta(days) for days in (0, -1, 20000)],
        "timestamp": moments,
        "timestamp_ntz": moments,
        "interval day to second": [datetime.timedelta(0), datetime.timedelta(days=-3, seconds=5)],
        "decimal(18,3)": [Decimal(n).scaleb(-3) for n in (0, 1, -1, 10**17)],
        "decimal(38,10)": [
            Decimal(n).scaleb(-10) for n in (0, 1, -1, 255, -256, 10**37, -(10**36))
        ],
        "array<int>": [[], [1], [1, None, 3], [None]],
        "array<string>": [["a", "b"], ["ab"], []],
        "struct<a:int,b:string>": [(1, "x"), (None, "x"), (1, None), (None, None)],
        "struct<a:array<double>,b:struct<c:date>>": [([1.0, -0.0], (DAY,)), (None, None)],
    }


def test_hashes_are_sparks(spark: SparkSession) -> None:
    chance = random.Random(7)
    found = cases(chance)
    names = {f"c{n}": kind for n, kind in enumerate(found)}
    size = max(map(len, found.values())) + 1
    columns = [[*values, None] for values in found.values()]
    rows = [tuple(column[n % len(column)] for column in columns) for n in range(size)]
    # Keys of two columns: each type behind another one.
    pairs = list(pairwise(names))
    frame = spark.createDataFrame(rows, ", ".join(f"{n} {k}" for n, k in names.items()))
    hashed = [F.xxhash64(n).alias(n) for n in names]
    hashed += [F.xxhash64(a, b).alias(f"{a}_{b}") for a, b in pairs]
    expected = frame.select(*hashed).toArrow().to_pydict()
    schema: StructType = frame.schema
    arrays = {}
    for name in names:
        codec = KeyCodec(StructType([schema[name]]), "")
        at = list(names).index(name)
        arrays[name] = codec.write([codec.canonical((row[at],)) for row in rows])[0]
    for name, kind in names.items():
        assert hash_rows([arrays[name]], size).tolist() == expected[name], kind
    for a, b in pairs:
        assert hash_rows([arrays[a], arrays[b]], size).tolist() == expected[f"{a}_{b}"], (a, b)


def test_a_key_without_columns_has_the_hash_of_the_plan() -> None:
    assert hash_rows([], 1).tolist() == [0]
