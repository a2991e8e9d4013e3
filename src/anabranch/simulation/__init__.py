"""The real protocol machines on a seeded scheduler, network and store, against an oracle."""
