"""What is to be served, as it is known before anything is loaded.

Knows plain data. Does not know asyncio, HTTP, or how a plan is made (`startup`) or carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from octavo.frontend.parsers import ModelParsers
from octavo.frontend.request_params import DeclaredParams
from octavo.serving.process import ENGINE_COMMAND

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from octavo.config.schema import ServerConfig
    from octavo.frontend.defaults import GenerationDefaults
    from octavo.interfaces.dialect import Dialect
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.lora import LoraModule
    from octavo.serving.process import EngineProcess


class ChatTemplate(Protocol):
    """Renders conversations; `octavo.frontend.chat.ChatRenderer` does."""

    @property
    def template_text(self) -> str:
        """Return the sources of all templates: what they name they may read."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt of a conversation. Raises RequestError."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What the server itself needs of a model: the way to ids and back."""

    tokenizer: Tokenizer
    defaults: GenerationDefaults
    chat: ChatTemplate
    parsers: ModelParsers = field(default_factory=ModelParsers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """One model to be served, by any of its names; answers carry the first.

    `process` is its engine where that has been started already; without one the engine is started
    by the first request. `load_texts` reads what the server itself needs, and may take seconds.
    """

    names: tuple[str, ...]
    engine_config_json: str
    load_texts: Callable[[], Texts]
    process: EngineProcess | None = None
    declared: DeclaredParams = field(default_factory=DeclaredParams)
    adapters: tuple[LoraModule, ...] = ()
    seed: int | None = None
    engine_command: tuple[str, ...] = field(default=ENGINE_COMMAND)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPlan:
    """What is to answer requests; its first engine is loading.

    `load_dialects` is what is left to do while the engine loads.
    """

    settings: ServerConfig
    models: tuple[ModelPlan, ...]
    load_dialects: Callable[[], Iterable[Dialect]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan(AppPlan):
    """A server that has begun to start: it owns its port as well."""

    listener: socket.socket
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """Return an address that a browser on this machine can open."""
        host, port = self.listener.getsockname()[:2]
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = "localhost"
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
