"""Stateful operators in plans of PySpark's own API, run by the service (docs/plans.md)."""
