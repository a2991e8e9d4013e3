"""Where each of Spark's aggregate functions runs, by name; a test asks Spark for all names."""

from __future__ import annotations

from collections.abc import Mapping


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ON_SERVICE = _names(
    """
    any any_value avg bit_and bit_or bit_xor bool_and bool_or corr count count_if covar_pop
    covar_samp every first first_value kurtosis last last_value max max_by mean min min_by
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance
    """
)
"""Spark has expressions that merge their states."""

ON_SPARK: Mapping[str, frozenset[str]] = {
    "keep all values of a group": _names(
        """
        array_agg collect_list collect_set collect_union listagg median mode percentile
        percentile_cont percentile_disc string_agg
        """
    ),
    "have a state in a format of Spark's own": _names(
        """
        approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
        approx_top_k_combine bitmap_and_agg bitmap_construct_agg bitmap_or_agg count_min_sketch
        histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
        kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
        percentile_approx theta_intersection_agg theta_sketch_agg theta_union_agg
        tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
        tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer
        """
    ),
}
"""By why."""

NO_STATE = frozenset({"grouping", "grouping_id", "measure"})
"""Spark replaces them before it aggregates."""


def function_lines() -> list[str]:
    """Lines of Markdown: the functions, by where they run."""
    rows = [("service", "Spark merges their states with expressions", ON_SERVICE)]
    rows += [("Spark", f"they {why}", names) for why, names in ON_SPARK.items()]
    lines = ["| aggregate functions | run on | why |", "|---|---|---|"]
    for where, why, names in rows:
        lines.append(f"| {', '.join(f'`{name}`' for name in sorted(names))} | {where} | {why} |")
    return lines
