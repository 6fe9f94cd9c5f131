"""The kernels compile for GPUs that are not here, as they are launched: arguments, memory, code.

What they compute is tested elsewhere. `test_triton_processes` runs this file with
TRITON_INTERPRET=0: in a process without other tests, as Triton's driver is replaced.
"""

from __future__ import annotations

import os
import re

import pytest
import torch

from attention_case import AttentionCase
from octavo_kernels.reference.attention import AttentionParams
from octavo_kernels.triton import attention, devices, layers
from octavo_kernels.triton.attention_plan import TritonPlan

if os.environ.get("TRITON_INTERPRET") != "0":
    pytest.skip("runs in a process of its own", allow_module_level=True)

from octavo_kernels.triton import attention_kernels, layer_kernels
from triton_stub_driver import compiled, compiling_for

#: what a program may use on GPUs without much of it (compute capability 8.6, 8.9)
SHARED_BYTES = 100 * 1024


@pytest.fixture(autouse=True)
def _anywhere(monkeypatch):
    """Let tensors in main memory pass: nothing is launched here."""
    monkeypatch.setattr(devices, "is_interpreted", lambda: True)


def run_attention(dtype, dim, softcap=None):
    """Launch all three kernels of attention, with pieces to merge."""
    case = AttentionCase([300, 40], [1, 30], 9, 3, dim=dim)
    cache, q = case.cache(dtype), case.q.to(dtype)
    attention.write_kv(cache, q[:, :3], q[:, 3:6], case.slots(0)[: len(q)])
    for window in (None, 20):
        params = AttentionParams(0.1, window, softcap)
        attention.paged_attention(torch.empty_like(q), q, cache, TritonPlan(case.batch, 99), params)


@pytest.mark.parametrize(
    ("arch", "dtype", "dim", "softcap"),
    [
        (90, torch.float16, 64, 30.0),
        (90, torch.bfloat16, 128, None),
        (80, torch.float32, 80, None),
        pytest.param(80, torch.float16, 128, 30.0, marks=pytest.mark.full),
        pytest.param(90, torch.bfloat16, 96, 30.0, marks=pytest.mark.full),
        pytest.param(90, torch.float32, 128, None, marks=pytest.mark.full),
        pytest.param(100, torch.bfloat16, 128, None, marks=pytest.mark.full),
    ],
)
def test_attention_compiles_and_fits(arch, dtype, dim, softcap):
    kernels = (attention_kernels.attend, attention_kernels.merge, attention_kernels.write)
    with compiling_for(arch, *kernels) as driver:
        run_attention(dtype, dim, softcap)
        assert [one.name for one in driver.launches] == ["write", "attend", "merge", "attend"]
        assert {one.grid[1] for one in driver.launches[1:]} == {3}
        attends = compiled(attention_kernels.attend)
        assert all(one.metadata.shared <= SHARED_BYTES for one in attends)
        code = attends[0].asm["ptx"]
    if dtype == torch.float32:
        # whole products, not rounded to the tensor cores' tf32
        assert "tf32" not in code
    else:
        kind = "bf16" if dtype == torch.bfloat16 else "f16"
        assert re.search(rf"mma\S*\.f32\.{kind}\.{kind}|kind::f16", code)
    # products and sums say how they round, so that nothing further down may fuse them
    assert not re.search(r"\b(mul|add|sub)\.(ftz\.)?f32", code)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_layers_compile(dtype):
    kernels = [getattr(layer_kernels, name) for name in ("rms_norm", "add_rms_norm")]
    kernels += [layer_kernels.rotate, layer_kernels.gated]
    x, delta, out = torch.ones(3, 4, 576, dtype=dtype).unbind(1)[:3]
    heads, table = torch.ones(3, 12, 64, dtype=dtype), torch.ones(8, 2, 32)
    with compiling_for(90, *kernels) as driver:
        layers.rms_norm(heads[:, :9], torch.ones(64), 1e-5, heads[:, :9])
        layers.add_rms_norm(x, delta, torch.ones(576), 1e-5, out)
        layers.rotate(heads[:, :9], heads[:, 9:], table, torch.arange(3))
        layers.silu_mul(torch.ones(3, 3072, dtype=dtype), torch.ones(3, 1536, dtype=dtype))
        layers.gelu_mul(torch.ones(3, 3072, dtype=dtype), torch.ones(3, 1536, dtype=dtype))
        assert [(one.name, one.grid) for one in driver.launches] == [
            ("rms_norm", (3, 9, 1)),
            ("add_rms_norm", (3, 1, 1)),
            ("rotate", (3, 1, 1)),
            ("gated", (3, 2, 1)),
            ("gated", (3, 2, 1)),
        ]
        assert len(compiled(layer_kernels.gated)) == 2
