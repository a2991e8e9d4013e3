"""Aggregates under `service.enable()`, beside Spark's own, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.beside import check_program

from anabranch import StateService

FUNCTIONS = """
    count(*) n, count(v) nv, count(v, s) nvs, sum(v) sv, sum(x) sx, sum(d) sd, avg(v) av, avg(d) ad,
    min(s) los, max(s) his, min(x) lox, max(x) hix, max(d) hid, min(ts) lots, max(b) hib,
    stddev(v) sdv, var_pop(v) vp, skewness(v) sk, kurtosis(v) ku, corr(v, j) co,
    covar_samp(v, d) cs,
    regr_slope(v, d) rs, regr_r2(v, d) r2, regr_count(v, d) rc, regr_avgx(v, d) ra,
    bool_and(b) ba, bool_or(b) bo, bit_and(v) bia, bit_xor(v) bix, count_if(v > 0) ci,
    max_by(j, ts) mb, min_by(j, ts) mib, try_sum(v) ts_v, try_sum(d) ts_d, try_avg(v) ta,
    first(j) fj, last(j) lj, any_value(j) aj, mean(x) mx,
    count(*) FILTER (WHERE v > 0) nf, sum(v) FILTER (WHERE s = 'x') sf, max(j) FILTER (WHERE b) mf,
    sum(ts - timestamp '1970-01-01') iv
"""


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


def sql(text: str) -> Callable[[DataFrame], DataFrame]:
    """A program that is a query over the table `events`."""

    def program(df: DataFrame) -> DataFrame:
        df.createOrReplaceTempView("events")
        return df.sparkSession.sql(text)

    return program


@pytest.mark.soak
def test_functions(spark: SparkSession, service: StateService, tmp_path: Path) -> None:
    program = sql(f"SELECT k, {FUNCTIONS} FROM events GROUP BY k HAVING count(*) > 1")
    shown = check_program(spark, service, tmp_path, program, "update")
    assert sum(map(len, shown.values())) > 15


WINDOWS = """
    SELECT window.start s, window.end e, k, count(*) n, sum(v) sv, avg(x) ax, max(s) ms
    FROM events GROUP BY window(ts, '10 seconds'), k
    HAVING count(*) > 0 AND (k IS NULL OR k <> 'c')
"""
SLIDING = (
    "SELECT window(ts, '12 seconds', '5 seconds') w, min(v) lo, count(v) n FROM events GROUP BY 1"
)
CHAINED = """
    SELECT window(w, '20 seconds').end e, sum(n) n, max(total) m FROM (
        SELECT window(ts, '5 seconds') w, k, count(*) n, sum(d) total FROM events GROUP BY 1, 2
    ) GROUP BY window(w, '20 seconds')
"""
SESSIONS = """
    SELECT k, session_window.start s, session_window.end e, count(*) n, sum(d) sd, avg(v) av,
    stddev(x) sx, first(j) fj, max(s) ms FROM events GROUP BY session_window(ts, '3 seconds'), k
"""
SESSION_CHAIN = """
    SELECT window(w, '30 seconds').start st, count(*) n, max(n) m FROM (
        SELECT session_window(ts, '4 seconds') w, k, b, count(*) n FROM events GROUP BY 1, 2, 3
    ) GROUP BY window(w, '30 seconds')
"""
DISTINCT = "SELECT DISTINCT v, s FROM events WHERE j % 2 = 0"
GLOBAL = "SELECT count(*) n, sum(v) sv, max(s) ms, first(k) IS NULL f FROM events WHERE v > 5"
ROLLUP = "SELECT k, b, grouping_id() g, count(*) n FROM events GROUP BY ROLLUP (k, b)"
KEYS = "SELECT x, d, ts, b, v % 3 m, count(*) n FROM events GROUP BY x, d, ts, b, v % 3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "mode"),
    [
        pytest.param(WINDOWS, "append", id="windows-append"),
        pytest.param(WINDOWS, "update", id="windows-update", marks=pytest.mark.soak),
        pytest.param(SLIDING, "append", id="sliding", marks=pytest.mark.soak),
        pytest.param(CHAINED, "append", id="chained", marks=pytest.mark.soak),
        pytest.param(SESSIONS, "append", id="sessions"),
        pytest.param(SESSION_CHAIN, "append", id="session-chain", marks=pytest.mark.soak),
        pytest.param(DISTINCT, "update", id="distinct", marks=pytest.mark.soak),
        pytest.param(GLOBAL, "update", id="global", marks=pytest.mark.soak),
        pytest.param(ROLLUP, "update", id="rollup", marks=pytest.mark.soak),
        pytest.param(KEYS, "update", id="keys", marks=pytest.mark.soak),
    ],
)
def test_queries(
    spark: SparkSession, service: StateService, tmp_path: Path, text: str, mode: str
) -> None:
    shown = check_program(spark, service, tmp_path, sql(text), mode)
    assert sum(map(len, shown.values())) >= 3
