"""Benchmarks and workloads for Anabranch: a distribution of its own."""
