"""The platform `cpu`: what it tells people of a machine."""

from __future__ import annotations

import pytest

from octavo_plugins.platforms import cpu

X86 = "processor\t: 0\nmodel name\t: Some Xeon\nflags\t\t: fpu sse2 fma avx avx2 f16c amx_int8\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes asimdhp asimddp sve i8mm bf16\n"


@pytest.mark.parametrize(
    ("cpuinfo", "instructions"),
    [
        (X86, "fma avx avx2 f16c amx_int8"),
        (ARM, "asimd asimdhp asimddp sve i8mm bf16"),
        ("", ""),
    ],
    ids=["x86", "arm", "elsewhere"],
)
def test_a_machine_is_described_by_the_instructions_that_count(
    monkeypatch, tmp_path, cpuinfo, instructions
):
    path = tmp_path / "cpuinfo"
    if cpuinfo:
        path.write_text(cpuinfo)
    monkeypatch.setattr(cpu, "_CPUINFO", path)

    facts = cpu.CpuPlatform().describe()

    assert facts["instructions"] == instructions
    assert facts["cpu"]
