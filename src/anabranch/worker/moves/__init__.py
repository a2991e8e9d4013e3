"""A worker's part in a move: state given away, taken in, and rows passed on."""
