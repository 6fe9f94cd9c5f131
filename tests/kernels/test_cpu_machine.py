"""The CPU kernels in processes of their own: one OpenMP runtime, few cores, sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from octavo_kernels.cpu.toolchain import find_compiler, openmp_runtime
from source_tree import ROOT

SUPPORT = ROOT / "tests" / "support"
#: runs an operation on twice the threads that there may be, and prints whether it is right
CALL = """
import sys
import torch
from cpu_kernels import call, count, run
from octavo_kernels.reference.norm import add_rms_norm
x, delta, weight = torch.randn(50, 576), torch.randn(50, 576), torch.randn(576)
expected, out, residual = torch.empty_like(x), torch.empty_like(x), x.clone()
add_rms_norm(residual, delta, weight, 1e-5, expected)
for num_threads in (1, 2, 4):
    residual = x.clone()
    fields = {"residual": residual, "delta": delta, "weight": weight, "rows": count(50)}
    for _ in range(200):
        run([call("add_rms_norm", out=out, width=576, eps=1e-5, **fields)], num_threads=num_threads)
        residual.copy_(x)
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=1e-7)
print("right")
"""
#: prints the OpenMP runtimes that are mapped into this process
RUNTIMES = """
names = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(*sorted(name for name in names if any(one in name for one in ("libgomp", "libomp", "iomp"))))
"""
KERNELS_FIRST = """
from octavo_kernels.cpu.library import Library, Program
Program(Library.load(), []).run(2)
import torch
torch.ones(1000, 1000) @ torch.ones(1000, 1000)
"""
TORCH_FIRST = """
import torch
torch.ones(1000, 1000) @ torch.ones(1000, 1000)
from octavo_kernels.cpu.library import Library, Program
Program(Library.load(), []).run(2)
"""


def python(*command: str, before: tuple[str, ...] = (), **environment: str) -> str:
    done = subprocess.run(
        [*before, sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(SUPPORT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("code", [KERNELS_FIRST, TORCH_FIRST])
def test_a_process_has_one_openmp_runtime(code):
    assert python("-c", code + RUNTIMES).split() == [str(openmp_runtime())]


def test_the_kernels_need_no_torch():
    code = "import sys; from octavo_kernels.cpu.library import Library; Library.load();"
    assert python("-c", code + "print('torch' in sys.modules)") == "False\n"


def test_one_openmp_thread():
    assert python("-c", CALL, OMP_NUM_THREADS="1") == "right\n"


def test_a_limit_below_what_is_asked():
    assert python("-c", CALL, OMP_THREAD_LIMIT="1") == "right\n"


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not installed")
def test_one_core():
    core = str(min(os.sched_getaffinity(0)))
    assert python("-c", CALL, before=("taskset", "-c", core)) == "right\n"


def sanitized() -> dict[str, str]:
    """What has a process load the sanitized kernels: they end it at the first fault."""
    compiler = find_compiler().command
    libraries = []
    # without the second the first does not find what throws, and torch throws
    for name in ("libasan.so", "libstdc++.so.6"):
        path = subprocess.check_output([*compiler, f"-print-file-name={name}"], text=True).strip()
        if not Path(path).is_absolute():
            pytest.skip(f"{compiler[0]} has no {name}")
        libraries.append(str(Path(path).resolve()))
    # Python itself frees little at its end
    return {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        "test_cpu_attention",
        "test_cpu_layers",
        "test_cpu_linear",
        "test_cpu_lora",
        "test_cpu_sampling",
        "test_cpu_sampling_edits",
        "test_cpu_logprobs",
    ],
)
def test_sanitizers_find_nothing(name):
    pytest_q = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-s")  # a report is not captured
    report = python(*pytest_q, f"tests/kernels/{name}.py", **sanitized(), PYTEST_ADDOPTS="")

    assert re.search(r"\d+ passed", report)
    assert "failed" not in report


@pytest.mark.full
@pytest.mark.timeout(900)
def test_sanitizers_find_a_row_too_many():
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        python("-c", CALL.replace("count(50)", "count(51)"), **sanitized())
