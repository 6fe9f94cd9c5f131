"""The stock parsers: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.parser import Parser

_HERE = "octavo_plugins.parsers"


def _offers(*roles: str, aliases: tuple[str, ...] = ()) -> frozenset[str]:
    return frozenset({*roles, *(f"alias:{name}" for name in aliases)})


class Plugin(OctavoSpecs):
    """Declares the stock parsers."""

    def octavo_parsers(self) -> Iterator[Component[Parser]]:
        """Yield those of calls, those of both, those of reasoning; `auto` asks in this order."""
        yield Component(
            name="hermes",
            target=f"{_HERE}.hermes:Hermes",
            summary="<tool_call> around JSON: Hermes, Qwen 2.5 and 3, SmolLM 3",
            offers=_offers("tools", aliases=("qwen", "qwen2-5", "qwen3", "smollm3")),
        )
        yield Component(
            name="think",
            target=f"{_HERE}.think:Think",
            summary="<think> around reasoning: DeepSeek R1, Qwen 3, GLM, Kimi, MiniMax",
            offers=_offers(
                "reasoning",
                aliases=(
                    *("deepseek-r1", "deepseek-v3", "qwen3", "glm45", "kimi-k2"),
                    *("minimax-m2", "smollm3"),
                ),
            ),
        )


plugin = Plugin()
