"""A model opened in this process: engine, tokenizer, and the checks in front of them.

What `LLM` and `AsyncLLM` share. Knows how the parts are put together. Does not know how requests
are run (`octavo.frontend.offline`, `octavo.engine_thread`).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.frontend.chat import ChatRenderer
from octavo.frontend.defaults import generation_defaults
from octavo.frontend.parsers import ModelParsers, parsers_of
from octavo.frontend.preprocess import Preprocessor
from octavo.frontend.progress import TransferLine
from octavo.frontend.prompts import parse_prompt
from octavo.frontend.request_params import DeclaredParams
from octavo.interfaces.parser import TurnContext
from octavo.model_files import describe_model, load_tokenizer, locate_model
from octavo.openmp import let_threads_sleep
from octavo.plugin.request_params import declared_params, unread_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.engine import Engine
    from octavo.frontend.defaults import GenerationDefaults
    from octavo.frontend.prompts import Prompt
    from octavo.interfaces.parser import ReasoningMarks
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.sampling_params import SamplingParams

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The parts of an opened model."""

    config: ResolvedConfig
    engine: Engine
    tokenizer: Tokenizer
    preprocessor: Preprocessor
    chat: ChatRenderer
    parsers: ModelParsers = field(default_factory=ModelParsers)

    def reasoning_marks(
        self,
        prompt: Prompt,
        params: SamplingParams,
        template_kwargs: Mapping[str, Any] | None = None,
        *,
        is_chat: bool = False,
    ) -> ReasoningMarks | None:
        """Return where the reasoning of an answer ends; None where it is none of its concern.

        A text that goes on with a prompt has reasoning only where a budget of it is given.
        """
        parser = self.parsers.reasoning.parser
        budget = getattr(params, "thinking_token_budget", None)  # what they are is checked later
        if parser is None or not (is_chat or budget is not None):
            return None
        parsed = parse_prompt(prompt)
        text = parsed.text
        if text is None:
            text = self.tokenizer.decode(parsed.token_ids or [], skip_special_tokens=False)
        return parser.reasoning_marks(TurnContext(text, (), template_kwargs))

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

    def read_texts() -> tuple[Tokenizer, GenerationDefaults, ChatRenderer, ModelParsers]:
        description = describe_model(config, path)
        has_sampling = config.model.generation_config == "auto"
        defaults = generation_defaults(
            description, has_sampling=has_sampling, pooling=config.model.pooling
        )
        tokenizer = load_tokenizer(config, description)
        chat = ChatRenderer(tokenizer, config.model)
        return tokenizer, defaults, chat, parsers_of(config, chat.template_text, tokenizer)

    let_threads_sleep()
    with ThreadPoolExecutor(1, "octavo-tokenizer") as pool:
        texts = pool.submit(read_texts)
        engine = build_engine(config)
        try:
            tokenizer, defaults, chat, parsers = texts.result()
        except BaseException:
            engine.close()
            raise
    preprocessor = Preprocessor(
        tokenizer, engine.info, defaults, declared=declared, seed=config.engine.seed
    )
    return LocalModel(config, engine, tokenizer, preprocessor, chat, parsers)
