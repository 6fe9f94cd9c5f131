"""Text to token ids and back: validation, detokenisation, stop strings, outputs. No torch."""
