"""vLLM's routes of vectors and scores."""
