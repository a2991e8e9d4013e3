"""Streams and pipelines to run, to measure and to copy: NEXMark, auctions, key-count, RIoTBench."""
