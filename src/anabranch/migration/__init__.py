"""Plans and strategies of moves: pure code, no I/O, no clock."""
