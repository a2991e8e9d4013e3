"""Pure decisions of the autoscaler: measurements and settings in, a decision and why out."""
