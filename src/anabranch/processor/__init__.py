"""Stateful operators: they turn a transaction's rows into state changes and outputs."""
