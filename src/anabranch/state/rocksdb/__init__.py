"""State that may be larger than memory: a working set in memory over a local RocksDB."""
