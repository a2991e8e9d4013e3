"""What runs in a worker process: transactions, moves, and what is resident in memory."""
