"""The run engine: a query under load, with or without moves, on Anabranch or on Spark alone."""
