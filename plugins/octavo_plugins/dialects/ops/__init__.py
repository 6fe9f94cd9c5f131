"""Health, version and metrics of the server."""
