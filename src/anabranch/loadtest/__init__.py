"""A query under an open-loop load, and the latency that its rows saw."""
