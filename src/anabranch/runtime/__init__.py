"""Processes: the coordinator in the driver, the workers beside it; they run the protocol."""
