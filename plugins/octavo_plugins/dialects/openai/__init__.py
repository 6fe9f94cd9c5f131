"""The API of OpenAI, with the extra fields of vLLM."""
