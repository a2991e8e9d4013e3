"""Measurements: both sides in one run, on the same data, printed with their spread."""
