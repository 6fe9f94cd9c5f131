"""Benchmarks behind `octavo bench`: medians, next to what this machine could do at most."""
