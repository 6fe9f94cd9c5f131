"""Measures what `octavo serve` costs beside the model: CPU of a chunk, memory, idle time."""
