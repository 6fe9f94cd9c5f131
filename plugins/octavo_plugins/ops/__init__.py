"""The stock op sets: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.ops import OpSet


class Plugin(OctavoSpecs):
    """Declares the stock op sets."""

    def octavo_ops(self) -> Iterator[Component[OpSet]]:
        """Yield torch, cpu, triton."""
        yield Component(
            name="torch",
            target="octavo_plugins.ops.torch_ops:TorchOps",
            summary="plain torch, on any machine: the reference",
        )
        yield Component(
            name="cpu",
            target="octavo_plugins.ops.cpu_ops:CpuOps",
            options="octavo_plugins.ops.cpu_options:CpuOpsOptions",
            summary="C++ kernels over quantised weights, compiled at first use",
            offers=frozenset({"cpu-kernels"}),
            why_not="octavo_plugins.native.cpu_reasons:why_not_ops",
            rank=5,
        )
        yield Component(
            name="triton",
            target="octavo_plugins.ops.triton_ops:TritonOps",
            summary="Triton kernels between torch's matrix products, on GPUs",
            requires=("triton>=3.6",),
            why_not="octavo_plugins.platforms.triton_reasons:why_not",
            rank=10,
        )


plugin = Plugin()
