"""Durable state: atomic files, changelogs, snapshots, manifests and what to load from them."""
