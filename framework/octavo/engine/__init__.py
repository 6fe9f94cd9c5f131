"""The engine: requests, the scheduling mechanism, and the loop that plans, submits, commits."""
