"""Composition: components are declared, discovered, looked up by name, and built."""
