"""A served model: loaded at once or when it is first asked for, and unloaded while nobody asks.

What the server itself needs of a model (its tokenizer, its template) stays once it was read; its
engine's process comes and goes.

Knows one model's parts and their order. Does not know HTTP, routes or other models.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from octavo.errors import EngineDeadError, OctavoError
from octavo.frontend.parsers import ModelParsers
from octavo.frontend.preprocess import Preprocessor
from octavo.serving.adapters import ServedAdapters
from octavo.serving.client import EngineClient, EngineState
from octavo.serving.metrics import ModelMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from octavo.config.schema import ServerConfig
    from octavo.engine.messages import EngineInfo
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.serving.client import RestartPolicy
    from octavo.serving.plans import ChatTemplate, ModelPlan, Texts

_logger = logging.getLogger("octavo.serving")

_STATUS: Mapping[EngineState, str] = MappingProxyType(
    {
        EngineState.UNLOADED: "unloaded",
        EngineState.STARTING: "loading",
        EngineState.READY: "loaded",
        EngineState.RESTARTING: "loading",
        EngineState.FAILED: "failed",
        EngineState.CLOSED: "unloaded",
    }
)


class ServedModel:
    """One model that clients may ask for. One event loop calls all methods.

    `max_log_len` is how many characters of a prompt the log may show; None logs no prompts. Of a
    model that was never loaded, `preprocessor`, `chat` and what follows from them raise
    EngineDeadError: a route waits for `ready` first.
    """

    def __init__(
        self, plan: ModelPlan, settings: ServerConfig, restart: RestartPolicy | None = None
    ) -> None:
        self.names = plan.names
        self.declared = plan.declared
        self.client = EngineClient(
            plan.engine_config_json,
            command=plan.engine_command,
            restart=restart,
            max_backlog_tokens=settings.max_stream_backlog_tokens,
        )
        self.adapters = ServedAdapters(self.client, plan.names, settings.lora_root)
        self.metrics = ModelMetrics(plan.names[0])
        self.created_s = int(time.time())
        self.max_log_len = settings.max_log_len if settings.enable_log_requests else None
        self._plan = plan
        self._preprocessor: Preprocessor | None = None
        self._chat: ChatTemplate | None = None
        self.parsers = ModelParsers()
        self._loading: asyncio.Task[None] | None = None
        if plan.process is None:
            for module in plan.adapters:
                self.adapters.declare(module)

    @property
    def name(self) -> str:
        """Return the name that answers carry."""
        return self.names[0]

    @property
    def is_known(self) -> bool:
        """Return whether the model was loaded at some time, so that what it takes is known."""
        return self._preprocessor is not None

    @property
    def settings(self) -> dict[str, Any]:
        """Return how the model is configured, without the server's own settings and its keys."""
        config: dict[str, Any] = json.loads(self._plan.engine_config_json)
        return {name: section for name, section in config.items() if name != "server"}

    @property
    def status(self) -> str:
        """Return where the model stands, in a word: loaded, loading, unloaded or failed."""
        return _STATUS[self.client.state]

    @property
    def preprocessor(self) -> Preprocessor:
        """Return what checks and tokenises calls."""
        if self._preprocessor is None:
            raise EngineDeadError(f"the model `{self.name}` has not been loaded yet")
        return self._preprocessor

    @property
    def chat(self) -> ChatTemplate:
        """Return what renders conversations."""
        if self._chat is None:
            raise EngineDeadError(f"the model `{self.name}` has not been loaded yet")
        return self._chat

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self.preprocessor.tokenizer

    @property
    def max_model_len(self) -> int:
        """Return how many tokens prompt and output may have together."""
        return self.preprocessor.info.max_model_len

    async def load(self) -> None:
        """Load the model. Raises its typed error; nothing runs then.

        Adapters are loaded with an engine that was started with the server, so that it does not
        start with a wrong one. Else the engine reads each with the first request for it.
        """
        _logger.info("loading %s", self.name)
        texts = asyncio.create_task(asyncio.to_thread(self._plan.load_texts))
        try:
            # an engine that is ready was started by a load that failed behind it
            is_ready = self.client.state is EngineState.READY
            info = self.client.info if is_ready else await self.client.start(self._plan.process)
        except BaseException:
            texts.cancel()
            raise
        self._know(info, await texts)
        if self._plan.process is not None:
            for module in self._plan.adapters:
                await self.adapters.load(module)

    async def ready(self) -> None:
        """Return when the model can be asked. All who wait share its loading.

        Raises EngineDeadError when it cannot be loaded, and SleepingError when it is not to be. A
        model that was known and is unloaded is ready: its engine starts with the next call.
        """
        if self.is_known:
            return
        await self.client.gate.passed()
        if self._loading is None:
            self._loading = asyncio.create_task(self.load())
            self._loading.add_done_callback(self._forget_loading)
        loading = self._loading
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            if loading.cancelled():
                raise EngineDeadError("the server is shutting down") from None
            raise
        except EngineDeadError:
            raise
        except OctavoError as error:
            headline = f"the model `{self.name}` cannot be loaded: {error.headline}"
            raise EngineDeadError(headline, *error.facts) from error

    async def close(self) -> None:
        """End what runs for the model; twice is fine."""
        if self._loading is not None:
            self._loading.cancel()
        await self.client.close()

    def _know(self, info: EngineInfo, texts: Texts) -> None:
        self._preprocessor = Preprocessor(
            texts.tokenizer, info, texts.defaults, declared=self.declared, seed=self._plan.seed
        )
        self._chat = texts.chat
        self.parsers = texts.parsers
        _logger.info("%s: %s", self.name, self.parsers)

    def _forget_loading(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        if not task.cancelled() and isinstance(task.exception(), OctavoError):
            _logger.error("the model %s cannot be loaded: %s", self.name, task.exception())


async def unload_idle(models: Iterable[ServedModel], idle_s: float) -> None:
    """Unload each model that nobody has used for so long. Runs until it is cancelled."""
    served = tuple(models)
    while True:
        waits_s = []
        for model in served:
            was_ready = model.client.state is EngineState.READY
            waits_s.append(await model.client.unload_if_idle(idle_s))
            if was_ready and model.client.state is EngineState.UNLOADED:
                _logger.info("%s was idle for %g s and is unloaded", model.name, idle_s)
        await asyncio.sleep(min(waits_s))
