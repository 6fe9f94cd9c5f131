"""The arguments of every operation, as operations.h lays them out.

A field that holds an address takes what `Tensor.data_ptr()` gives. Counts (`rows`) are addresses
too: they are read when a call runs. Strides are in elements. Knows layouts alone; what each
operation does is said in operations.h.
"""

from __future__ import annotations

from ctypes import Structure, c_float, c_int64, c_void_p
from typing import Final


class RmsNorm(Structure):
    """Arguments of `rms_norm`."""

    _fields_ = (
        ("out", c_void_p),
        ("x", c_void_p),
        ("weight", c_void_p),
        ("rows", c_void_p),
        ("out_stride", c_int64),
        ("x_stride", c_int64),
        ("heads", c_int64),
        ("width", c_int64),
        ("eps", c_float),
    )


class AddRmsNorm(Structure):
    """Arguments of `add_rms_norm`."""

    _fields_ = (
        ("out", c_void_p),
        ("residual", c_void_p),
        ("delta", c_void_p),
        ("weight", c_void_p),
        ("rows", c_void_p),
        ("width", c_int64),
        ("eps", c_float),
    )


class Rotary(Structure):
    """Arguments of `rotary`."""

    _fields_ = (
        ("x", c_void_p),
        ("positions", c_void_p),
        ("table", c_void_p),
        ("rows", c_void_p),
        ("row_stride", c_int64),
        ("head_stride", c_int64),
        ("heads", c_int64),
        ("half", c_int64),
    )


class GatedActivation(Structure):
    """Arguments of `gated_activation`."""

    _fields_ = (
        ("out", c_void_p),
        ("gate_up", c_void_p),
        ("rows", c_void_p),
        ("width", c_int64),
        ("kind", c_int64),
    )


class Elementwise(Structure):
    """Arguments of `elementwise`."""

    _fields_ = (
        ("x", c_void_p),
        ("rows", c_void_p),
        ("width", c_int64),
        ("kind", c_int64),
        ("number", c_float),
    )


class GatherRows(Structure):
    """Arguments of `gather_rows`."""

    _fields_ = (
        ("out", c_void_p),
        ("x", c_void_p),
        ("index", c_void_p),
        ("rows", c_void_p),
        ("width", c_int64),
    )


class Linear(Structure):
    """Arguments of `linear`."""

    _fields_ = (
        ("out", c_void_p),
        ("x", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("rows", c_void_p),
        ("out_stride", c_int64),
        ("x_stride", c_int64),
        ("columns", c_int64),
        ("outputs", c_int64),
        ("format", c_int64),
        ("is_exact", c_int64),
        ("is_laid_out", c_int64),
    )


class Embedding(Structure):
    """Arguments of `embedding`."""

    _fields_ = (
        ("out", c_void_p),
        ("ids", c_void_p),
        ("weight", c_void_p),
        ("rows", c_void_p),
        ("columns", c_int64),
        ("format", c_int64),
    )


class Adapt(Structure):
    """Arguments of `adapt`."""

    _fields_ = (
        ("out", c_void_p),
        ("x", c_void_p),
        ("by_slot", c_void_p),
        ("batch", c_void_p),
        ("num_slots", c_int64),
        ("max_rank", c_int64),
        ("out_stride", c_int64),
        ("x_stride", c_int64),
        ("columns", c_int64),
        ("outputs", c_int64),
    )


class SamplingEdit(Structure):
    """An edit of one row of logits, as `sample` reads them."""

    _fields_ = (
        ("row", c_int64),
        ("kind", c_int64),
        ("count", c_int64),
        ("ids", c_void_p),
        ("adds", c_void_p),
        ("counts", c_void_p),
        ("mask", c_void_p),
        ("repetition", c_float),
        ("frequency", c_float),
        ("presence", c_float),
    )


class Sample(Structure):
    """Arguments of `sample`."""

    _fields_ = (
        ("logits", c_void_p),
        ("rows", c_void_p),
        ("temperature", c_void_p),
        ("top_k", c_void_p),
        ("top_p", c_void_p),
        ("min_p", c_void_p),
        ("uniforms", c_void_p),
        ("edits", c_void_p),
        ("num_edits", c_void_p),
        ("ids", c_void_p),
        ("is_bad", c_void_p),
        ("stride", c_int64),
        ("width", c_int64),
    )


class Logprobs(Structure):
    """Arguments of `logprobs`."""

    _fields_ = (
        ("logits", c_void_p),
        ("entries", c_void_p),
        ("rows", c_void_p),
        ("token_ids", c_void_p),
        ("num_top", c_void_p),
        ("starts", c_void_p),
        ("chosen", c_void_p),
        ("ranks", c_void_p),
        ("top_ids", c_void_p),
        ("top_logprobs", c_void_p),
        ("stride", c_int64),
        ("width", c_int64),
    )


class WriteKv(Structure):
    """Arguments of `write_kv`."""

    _fields_ = (
        ("pages", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("slots", c_void_p),
        ("tokens", c_void_p),
        ("k_stride", c_int64),
        ("k_head_stride", c_int64),
        ("v_stride", c_int64),
        ("v_head_stride", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("block_size", c_int64),
        ("format", c_int64),
    )


class Attention(Structure):
    """Arguments of `attention`."""

    _fields_ = (
        ("out", c_void_p),
        ("q", c_void_p),
        ("pages", c_void_p),
        ("sequences", c_void_p),
        ("query_start", c_void_p),
        ("seq_lens", c_void_p),
        ("block_tables", c_void_p),
        ("out_stride", c_int64),
        ("out_head_stride", c_int64),
        ("q_stride", c_int64),
        ("q_head_stride", c_int64),
        ("table_stride", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("block_size", c_int64),
        ("format", c_int64),
        ("window", c_int64),
        ("parts_floats", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
    )


ARGUMENTS: Final[dict[str, type[Structure]]] = {
    "rms_norm": RmsNorm,
    "add_rms_norm": AddRmsNorm,
    "rotary": Rotary,
    "gated_activation": GatedActivation,
    "elementwise": Elementwise,
    "gather_rows": GatherRows,
    "linear": Linear,
    "embedding": Embedding,
    "sample": Sample,
    "logprobs": Logprobs,
    "adapt": Adapt,
    "write_kv": WriteKv,
    "attention": Attention,
}
