"""Triton in processes of its own: kernels interpreted, kernels compiled, and Triton not there.

Triton settles when it is first imported whether it interprets, so that one process cannot do
both; and without a GPU only these processes run the kernels.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from octavo.config.auto import AutoContext
from octavo.config.schema import EngineConfig, ModelConfig
from octavo_kernels.triton import devices
from octavo_plugins.platforms.triton_reasons import why_not
from source_tree import ROOT

FOLDER = ROOT / "tests" / "kernels"
#: an interpreter that is older than numpy 2.4 cannot read the bounds of a loop, and says it so ...
OLD_INTERPRETER = "only 0-dimensional arrays can be converted to Python scalars"
#: ... of which older numpys warn
WARNING = "ignore:Conversion of an array with ndim:DeprecationWarning"


def run(*command, **environment):
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"TRITON_INTERPRET", "PYTEST_ADDOPTS"}
    }
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**kept, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


@pytest.mark.skipif(not devices.is_installed(), reason="triton is not installed")
@pytest.mark.parametrize(
    ("name", "interpret"),
    [
        ("test_triton_kernels", "1"),
        ("test_triton_components", "1"),
        ("test_triton_compiled", "0"),
    ],
)
def test_in_a_process_of_its_own(name, interpret):
    file = str(FOLDER / f"{name}.py")
    pytest_q = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", WARNING)
    done = run(*pytest_q, file, TRITON_INTERPRET=interpret)
    if OLD_INTERPRETER in done.stdout:
        pytest.skip("this Triton's interpreter does not go with this numpy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)


# ---------------------------------------------------------------------- without Triton or a GPU

WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
from octavo_kernels.triton import devices
assert "torch" not in sys.modules
from octavo_kernels.triton import arguments, attention, attention_plan, bench, layers
import torch
print(*devices.why_not())
try:
    layers.silu_mul(torch.ones(1, 4), torch.ones(1, 2))
except devices.TritonUnavailableError as error:
    print(error)
"""
WITHOUT_A_GPU = """
import sys, torch
from octavo_kernels.triton import attention, bench, devices, layers
assert "triton" not in sys.modules
from octavo_plugins.attention.triton_attention import TritonAttention
from octavo_plugins.ops.triton_ops import TritonOps
from octavo.errors import UnsupportedError
try:
    layers.silu_mul(torch.ones(1, 4), torch.ones(1, 2))
except devices.TritonUnavailableError as error:
    print(error)
for target in (TritonOps, TritonAttention):
    try:
        target()
    except UnsupportedError as error:
        print(error)
bench.main()
"""


def test_without_triton_all_can_be_imported_and_nothing_launched():
    done = run("-W", "error", "-c", WITHOUT_TRITON)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "triton is not installed",
        "a Triton kernel was asked for, and triton is not installed",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_what_is_asked_for_by_name_says_why_it_cannot_run():
    done = run("-c", WITHOUT_A_GPU)
    misplaced = "Triton kernels work on tensors of a GPU in this process"
    why = "no GPU: there is neither /dev/nvidiactl nor /dev/kfd"
    how = "set TRITON_INTERPRET=1 to have kernels interpreted on the CPU, slowly"
    assert done.stdout.splitlines() == [
        f"{misplaced}, and were handed one in main memory; {how}",
        "the op set 'triton' cannot run here",
        f"  {why}",
        f"  {how}",
        "the attention 'triton' cannot run here",
        f"  {why}",
        f"  {how}",
    ]
    assert done.stderr.strip() == f"nothing to measure: {why}"
    assert done.returncode == 1


# ---------------------------------------------------------------------- auto


def context(*offers):
    platform = SimpleNamespace(offers=frozenset(offers))
    return AutoContext(engine=EngineConfig(), model=ModelConfig(), chosen={"platform": platform})


def test_auto_is_told_of_a_missing_gpu_a_hidden_one_and_buffers_elsewhere(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_GPU_FILES", (str(tmp_path / "one"), str(tmp_path / "two")))
    absent = f"no GPU: there is neither {tmp_path / 'one'} nor {tmp_path / 'two'}"
    elsewhere = "the platform keeps the buffers of a step in main memory"
    assert why_not(context("cuda")) == [absent]
    assert why_not(context()) == [absent, elsewhere]
    (tmp_path / "two").touch()
    assert why_not(context("cuda")) == []
    assert why_not(context()) == [elsewhere]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert why_not(context("cuda")) == ["CUDA_VISIBLE_DEVICES='' hides every GPU"]


# ---------------------------------------------------------------------- timing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here to measure")
def test_the_benchmark_prints_times_and_shares_of_the_roofline():
    done = run("-m", "octavo_kernels.triton.bench")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum("% of reading speed" in line for line in lines) >= 16
    assert sum("% of a matrix product's speed" in line for line in lines) >= 6
