"""The four dataflows in plain Python, one message after the other: what must come out."""
