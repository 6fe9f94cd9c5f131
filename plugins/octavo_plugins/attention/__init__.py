"""The stock attention back ends: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.attention import Attention


class Plugin(OctavoSpecs):
    """Declares the stock attention back ends."""

    def octavo_attention(self) -> Iterator[Component[Attention]]:
        """Yield torch, cpu, triton."""
        yield Component(
            name="torch",
            target="octavo_plugins.attention.torch_attention:TorchAttention",
            options="octavo_plugins.attention.cache_options:TensorAttentionOptions",
            summary="plain torch, on any machine: the oracle",
        )
        yield Component(
            name="cpu",
            target="octavo_plugins.attention.cpu_attention:CpuAttention",
            options="octavo_plugins.attention.cache_options:CpuAttentionOptions",
            summary="C++ kernels over pages of KV, compiled at first use",
            why_not="octavo_plugins.native.cpu_reasons:why_not_attention",
            rank=5,
        )
        yield Component(
            name="triton",
            target="octavo_plugins.attention.triton_attention:TritonAttention",
            options="octavo_plugins.attention.cache_options:TensorAttentionOptions",
            summary="Triton kernels over pages of KV, on GPUs",
            requires=("triton>=3.6",),
            why_not="octavo_plugins.platforms.triton_reasons:why_not",
            rank=10,
        )


plugin = Plugin()
