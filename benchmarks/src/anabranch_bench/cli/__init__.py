"""The commands that this distribution adds to anabranch: bench and run."""
