"""The pure protocol: events in, effects out; no I/O, clock, randomness, threads or Arrow."""
