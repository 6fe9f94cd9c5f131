"""Text to token ids and back, as the models see it."""
