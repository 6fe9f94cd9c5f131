"""What `adapt` reads of adapters and of a step's segments, as operations.h lays it out.

Knows addresses and sizes. Does not know tensors.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p


class LowRankPiece(Structure):
    """One change that an adapter makes, as `adapt` reads it."""

    _fields_ = (
        ("b", c_void_p),
        ("first_rank", c_int64),
        ("rank", c_int64),
        ("first_panel", c_int64),
        ("num_panels", c_int64),
    )


class LowRank(Structure):
    """What an adapter changes of one matrix."""

    _fields_ = (
        ("a", c_void_p),
        ("pieces", c_void_p),
        ("rank", c_int64),
        ("num_pieces", c_int64),
        ("is_half", c_int64),
    )


class AdapterSegment(Structure):
    """The tokens of a step that one adapter changes."""

    _fields_ = (
        ("tokens", c_void_p),
        ("scales", c_void_p),
        ("slot", c_int64),
        ("num_tokens", c_int64),
    )


class AdapterSegments(Structure):
    """All segments of a step."""

    _fields_ = (("segments", c_void_p), ("count", c_int64), ("num_tokens", c_int64))
