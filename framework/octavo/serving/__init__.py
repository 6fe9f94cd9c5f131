"""The server process, the engine process beside it, and what goes between them."""
