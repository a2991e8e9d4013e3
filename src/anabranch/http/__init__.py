"""Control from outside: HTTP API, tokens, events and metrics, in a thread of the driver."""
