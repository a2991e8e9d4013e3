"""Results for people (tables, lines, pictures) and for machines (JSON)."""
