"""OpenAI's responses: answers made of items, which may go on from an answer that was kept."""
