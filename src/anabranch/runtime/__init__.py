"""Processes: the coordinator in the driver, the workers beside it; they interpret the protocol's effects."""
