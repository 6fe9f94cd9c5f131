"""Kits of what computes: op sets, attention and sampler stages, beside definitions in float64."""
