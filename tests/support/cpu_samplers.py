"""Samplers of the CPU kernels in every variant, and rows to sample from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cpu_kernels import library, variants
from octavo_kernels.cpu.sampling import Sampler
from octavo_kernels.cpu.toolchain import BuildOptions
from octavo_kernels.reference import noise
from octavo_kernels.reference.sampling import SamplingRows

ARCHITECTURES = ("native", "haswell")


def sampler_of(architecture: str) -> Sampler:
    if architecture not in variants():
        pytest.skip("this machine has AVX2 alone, which is the native variant")
    return Sampler(library(BuildOptions(architecture=architecture)))


def noise_of(count: int, seed: int = 0) -> np.ndarray:
    zeros = np.zeros(count, dtype=np.int64)
    return noise.uniforms(np.full(count, seed, dtype=np.uint64), np.arange(count), zeros, 0)


def rows_of(uniforms, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> SamplingRows:
    count = len(uniforms)
    return SamplingRows(
        temperature=np.full(count, temperature, dtype=np.float32),
        top_k=np.full(count, top_k, dtype=np.int32),
        top_p=np.full(count, top_p),
        min_p=np.full(count, min_p),
        uniforms=np.asarray(uniforms),
    )


def mixed_rows(count: int, seed: int) -> SamplingRows:
    """Rows of all sorts: greedy, plain, and under one filter or several."""
    rng = np.random.default_rng(seed)
    return SamplingRows(
        temperature=rng.choice([0, 0.5, 1, 1.7], count).astype(np.float32),
        top_k=rng.choice([0, 0, 1, 5, 50, 400], count).astype(np.int32),
        top_p=rng.choice([1, 1, 0.3, 0.5, 0.95], count),
        min_p=rng.choice([0, 0, 0.01, 0.3], count),
        uniforms=noise_of(count, seed),
    )


def random_logits(count: int, width: int, seed: int = 0) -> torch.Tensor:
    """Peaked and flat rows; every third has many ties, and every fourth few finite numbers."""
    rng = np.random.default_rng((seed, width))
    x = (rng.standard_normal((count, width)) * rng.choice([0.3, 1, 3, 6], (count, 1))).astype("f4")
    x[::3] = np.round(x[::3])
    x[::4][rng.random(x[::4].shape) < 0.9] = -math.inf
    x[np.arange(count), rng.integers(0, width, count)] = 1.0
    return torch.from_numpy(x)
