"""Text on its way in and out: chat templates, detokenising, stop strings."""
