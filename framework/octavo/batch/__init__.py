"""Files of requests, answered one after another: OpenAI's batch files."""
