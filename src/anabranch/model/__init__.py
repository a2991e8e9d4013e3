"""Plain values shared by every layer: ids, routing, key space."""
