"""What happened in a span of time, as one page: pure, from entries of the journal."""
