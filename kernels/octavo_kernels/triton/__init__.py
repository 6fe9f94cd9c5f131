"""Kernels in Triton: compiled for GPUs, or interpreted on a CPU with TRITON_INTERPRET=1.

Every module here can be imported without Triton, except those named `*_kernels`, which hold the
kernels themselves and are imported at the first launch.
"""
