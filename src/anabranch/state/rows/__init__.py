"""State of the row API: values, lists, maps, timers and TTL of a key group as Python objects."""
