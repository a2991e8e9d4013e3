"""What of the key groups is in a worker's memory: loaded, evicted, saved."""
