"""A model opened in this process: engine, tokenizer, and the checks in front of them.

What `LLM` and `AsyncLLM` share. Knows how the parts are put together. Does not know how requests
are run (`octavo.frontend.offline`, `octavo.engine_thread`).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.frontend.chat import ChatRenderer
from octavo.frontend.defaults import generation_defaults
from octavo.frontend.preprocess import Preprocessor
from octavo.frontend.progress import TransferLine
from octavo.frontend.request_params import DeclaredParams
from octavo.model_files import describe_model, load_tokenizer, locate_model
from octavo.openmp import let_threads_sleep
from octavo.plugin.request_params import declared_params, unread_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.engine import Engine
    from octavo.frontend.defaults import GenerationDefaults
    from octavo.interfaces.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The parts of an opened model."""

    config: ResolvedConfig
    engine: Engine
    tokenizer: Tokenizer
    preprocessor: Preprocessor
    chat: ChatRenderer

    def warn_of_priority(self) -> None:
        """Say in the log where the priorities of requests change nothing."""
        why = self.preprocessor.declared.unread.get("priority")
        if why is not None:
            logger.warning("priority changes nothing: %s", why)


def resolve_settings(
    settings: Mapping[str, Any], engine_defaults: Mapping[str, Any] | None = None
) -> ResolvedConfig:
    """Return the config of keyword settings; those without effect are logged as warnings.

    `engine_defaults` stand in for the defaults of `[engine]` where nobody has set anything.
    Raises ConfigError or PluginError.
    """
    config = with_engine_defaults(resolve(overrides=settings), engine_defaults or {})
    for note in config.notes:
        logger.warning(note)
    return config


def with_engine_defaults(config: ResolvedConfig, defaults: Mapping[str, Any]) -> ResolvedConfig:
    """Return a config with other defaults of `[engine]`: what somebody has set stays."""
    unset = {key: value for key, value in defaults.items() if config.is_default("engine", key)}
    return config.with_changes(engine=unset) if unset else config


def open_model(config: ResolvedConfig) -> LocalModel:
    """Load a model and start its engine. Raises the typed errors of loading.

    The tokenizer is read in a second thread while the engine imports torch and loads weights.
    """
    unread = unread_fields(config.chosen["scheduler"])
    declared = DeclaredParams(declared_params(config.in_use), unread)
    transfers = TransferLine()
    try:
        path = locate_model(config, transfers)
    finally:
        transfers.close()

    def read_texts() -> tuple[Tokenizer, GenerationDefaults, ChatRenderer]:
        description = describe_model(config, path)
        has_sampling = config.model.generation_config == "auto"
        defaults = generation_defaults(
            description, has_sampling=has_sampling, pooling=config.model.pooling
        )
        tokenizer = load_tokenizer(config, description)
        return tokenizer, defaults, ChatRenderer(tokenizer, config.model)

    let_threads_sleep()
    with ThreadPoolExecutor(1, "octavo-tokenizer") as pool:
        texts = pool.submit(read_texts)
        engine = build_engine(config)
        try:
            tokenizer, defaults, chat = texts.result()
        except BaseException:
            engine.close()
            raise
    preprocessor = Preprocessor(
        tokenizer, engine.info, defaults, declared=declared, seed=config.engine.seed
    )
    return LocalModel(config, engine, tokenizer, preprocessor, chat)
