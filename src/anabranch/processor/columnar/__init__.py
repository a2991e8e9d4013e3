"""Columnar operators: whole batches of rows and state columns instead of one key at a time."""
