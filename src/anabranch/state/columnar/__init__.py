"""Keyed state as packed records: one table for each key group, looked up by vectors of keys."""
