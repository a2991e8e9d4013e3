"""What runs in the Spark driver: epochs, routing, manifests, moves, lookups, maintenance."""
