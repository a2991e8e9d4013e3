"""Runs a user's `StatefulProcessor` on in-process state: one Python call per key and batch."""
