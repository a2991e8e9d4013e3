"""Keyed state in memory, one object for each key group of an operator."""
