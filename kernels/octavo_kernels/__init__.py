"""Kernels for LLM inference, usable without Octavo: they take tensors and return tensors.

Importing this package imports no kernel; each lives in a subpackage named after what it needs.
"""
