"""Measures servers with OpenAI's API, whoever made them, as their clients see them."""
