"""The benchmarks: for each one its plan, its settings and its goals."""
