"""A transaction in a worker: rows in, applied, made durable, answered."""
