"""The executor's inside: load a model, keep the batch in persistent buffers, run steps (torch)."""
