"""A cluster on one machine for tests, the demo and benchmarks: hosts, a network, Spark."""
