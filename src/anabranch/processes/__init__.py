"""How processes are started, configured, watched, ended, and killed by tests."""
