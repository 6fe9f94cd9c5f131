"""The CPU kernels on 64-bit Arm: cross-compiled, run under qemu, and beside those for AVX2.

Both have vectors of eight lanes and make every sum in the same order, so that not only must the
kernels' own tests pass there: all that any call in them leaves in memory must be the same bits.
Neither speed nor the order in which another core sees what is written can be tested like this.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arm_kernels
from octavo.config.auto import AutoContext
from octavo.config.schema import EngineConfig, ModelConfig
from octavo_plugins.native.cpu_reasons import why_not_ops
from source_tree import ROOT

CPUINFO = Path("/proc/cpuinfo")
HAS_AVX2 = CPUINFO.exists() and " avx2 " in CPUINFO.read_text()
MISSING = arm_kernels.what_is_missing()
#: tests of the kernels: on the CPU without `sdot`, those that multiply bytes
TESTS = {
    "neoverse-n1": [
        "test_cpu_arguments",
        "test_cpu_attention",
        "test_cpu_layers",
        "test_cpu_linear",
        "test_cpu_logprobs",
        "test_cpu_lora",
        "test_cpu_row_blocks",
        "test_cpu_sampling",
        "test_cpu_sampling_edits",
    ],
    "cortex-a53": ["test_cpu_linear"],
}

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.skipif(not HAS_AVX2, reason="this machine has no AVX2 to compare with"),
]


@pytest.mark.parametrize(("cpu", "name"), [(cpu, name) for cpu in TESTS for name in TESTS[cpu]])
def test_what_the_kernels_are_tested_for_holds_on_arm(cpu, name):
    pytest_q = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    environment = {"OCTAVO_TEST_ARM_CPU": cpu, "PYTEST_ADDOPTS": "", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [*pytest_q, f"tests/kernels/{name}.py"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)


@pytest.mark.parametrize("cpu", TESTS)
def test_auto_takes_the_kernels_on_arm(cpu):
    context = AutoContext(engine=EngineConfig(), model=ModelConfig(), chosen={})
    with arm_kernels.machine(cpu):
        assert why_not_ops(context) == []
