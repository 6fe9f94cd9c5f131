"""Kernels in C++ for CPUs: compiled at first use, called with raw pointers on a team of threads."""
