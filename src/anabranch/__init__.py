"""Anabranch: a state service for PySpark Structured Streaming."""
