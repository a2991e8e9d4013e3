"""How processes talk: Arrow Flight with a token, JSON for control, Arrow batches for rows."""
