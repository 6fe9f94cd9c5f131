"""The stock parsers: declarations only, nothing they name is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.interfaces.parser import Parser

_HERE = "octavo_plugins.parsers"
_THINKING = (
    *("deepseek-r1", "deepseek-v3", "qwen3", "glm45", "glm", "kimi-k2", "minimax", "minimax-m2"),
    *("smollm3", "hermes"),
)


#: families whose calls alone are their own: name, target, summary, other names
_OF_CALLS = (
    (
        "hermes",
        "hermes:Hermes",
        "<tool_call> around JSON: Hermes, Qwen 2.5 and 3, SmolLM 3, Granite 4",
        ("qwen", "qwen2-5", "qwen3", "smollm3", "granite4"),
    ),
    (
        "qwen3-coder",
        "qwen3_coder:Qwen3Coder",
        "<function=...> and <parameter=...>: Qwen 3 Coder, Qwen 3.5",
        ("qwen3-xml",),
    ),
    ("glm", "glm:Glm", "<arg_key> and <arg_value>: GLM 4.5 to 4.7", ("glm45", "glm47")),
    ("minimax", "minimax:MiniMax", "<invoke>, or JSON lines: MiniMax M2, M1", ("minimax-m2",)),
    ("deepseek-v3", "deepseek:DeepSeekV3", "JSON in a fence: DeepSeek V3, R1", ()),
    ("deepseek-v31", "deepseek:DeepSeekV31", "name and JSON: DeepSeek V3.1, V3.2", ()),
    ("kimi-k2", "kimi_k2:KimiK2", "functions.NAME:0 and JSON: Kimi K2", ()),
    (
        "phi4-mini-json",
        "phi4_mini_json:Phi4MiniJson",
        "a list of JSON objects behind a mark: Phi 4 mini",
        ("phi4-mini",),
    ),
    (
        "llama3-json",
        "bare_json:Llama3Json",
        "JSON objects without a mark: Llama 3.1 to 3.3",
        ("llama3", "llama4-json"),
    ),
    (
        "llama4-pythonic",
        "pythonic:Llama4Pythonic",
        "a list of calls in Python: Llama 4",
        ("pythonic", "llama4"),
    ),
)


def _offers(*roles: str, aliases: tuple[str, ...] = ()) -> frozenset[str]:
    return frozenset({*roles, *(f"alias:{name}" for name in aliases)})


class Plugin(OctavoSpecs):
    """Declares the stock parsers. `auto` asks them by name, the one for unknown families last."""

    def octavo_parsers(self) -> Iterator[Component[Parser]]:
        """Yield those of calls, of calls and reasoning, of reasoning."""
        yield from _of_calls()
        yield from _of_both()
        yield Component(
            name="think",
            target=f"{_HERE}.think:Think",
            summary="<think> around reasoning: DeepSeek R1, Qwen 3, GLM, Kimi, MiniMax",
            offers=_offers("reasoning", aliases=_THINKING),
        )


def _of_calls() -> Iterator[Component[Parser]]:
    """Yield the families whose calls alone are their own."""
    for name, target, summary, aliases in _OF_CALLS:
        offers = _offers("tools", aliases=aliases)
        yield Component(name=name, target=f"{_HERE}.{target}", summary=summary, offers=offers)
    yield Component(
        name="json",
        target=f"{_HERE}.bare_json:BareJson",
        summary="JSON objects without a mark: families that are not known here",
        offers=_offers("tools"),
        rank=-1,
    )


def _of_both() -> Iterator[Component[Parser]]:
    """Yield the families that write both in ways of their own."""
    for name, target, summary, aliases in (
        ("mistral", "mistral:Mistral", "[THINK], and calls behind [TOOL_CALLS]", ("magistral",)),
        ("granite", "granite:Granite", "sentences, and calls behind a mark: Granite 3", ()),
        (
            "gpt-oss",
            "gpt_oss:GptOss",
            "messages of the Harmony format: gpt-oss",
            ("openai", "harmony", "openai-gptoss"),
        ),
    ):
        offers = _offers("tools", "reasoning", aliases=aliases)
        yield Component(name=name, target=f"{_HERE}.{target}", summary=summary, offers=offers)


plugin = Plugin()
