"""Where `complete` and `chat` get their text from: a model in this process, or a server.

Knows both ways and hides the difference. Does not know terminals.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from octavo.errors import ConfigError, RequestFailedError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from octavo.frontend.prompts import Prompt
    from octavo.local_model import LocalModel

    Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text. The last one has the finish reason, and the counts where known."""

    text: str
    finish_reason: str | None = None
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None


Pieces: TypeAlias = Generator[Piece, None, None]


class TextSource(ABC):
    """A model to ask. `sampling` holds the values that were given, by their OpenAI names.

    Closing a generator of text ends the request.
    """

    model: str

    @abstractmethod
    def complete(self, prompt: str, sampling: Mapping[str, Any]) -> Pieces:
        """Continue a text."""

    @abstractmethod
    def chat(self, messages: Sequence[Message], sampling: Mapping[str, Any]) -> Pieces:
        """Answer a conversation."""

    @abstractmethod
    def close(self) -> None:
        """Release what was opened; twice is fine."""


class LocalSource(TextSource):
    """A model in this process."""

    def __init__(self, opened: LocalModel) -> None:
        self._opened = opened
        self._num_calls = 0
        self.model = opened.config.model.name or ""

    def complete(self, prompt: str, sampling: Mapping[str, Any]) -> Pieces:
        """Continue a text."""
        return self._stream(prompt, sampling, is_rendered=False)

    def chat(self, messages: Sequence[Message], sampling: Mapping[str, Any]) -> Pieces:
        """Render the model's chat template and continue that."""
        return self._stream(self._opened.chat.render(messages), sampling, is_rendered=True)

    def close(self) -> None:
        """Release the model."""
        self._opened.engine.close()

    def _stream(self, prompt: Prompt, sampling: Mapping[str, Any], *, is_rendered: bool) -> Pieces:
        from octavo.frontend.offline import stream_call
        from octavo.frontend.preprocess import Call

        preprocessor = self._opened.preprocessor
        self._num_calls += 1
        wanted = {"max_tokens": None, **sampling}  # None: as far as the context goes
        call = preprocessor.prepare(
            Call(
                request_id=f"cli-{self._num_calls}",
                prompt=prompt,
                params=replace(preprocessor.default_sampling_params(), **wanted),
                arrival_s=time.monotonic(),
                add_special_tokens=not is_rendered,
            )
        )
        for output in stream_call(self._opened.engine, self._opened.tokenizer, call):
            choice = output.outputs[0]
            if choice.error is not None:
                raise RequestFailedError(choice.error)
            yield Piece(
                choice.text,
                choice.finish_reason,
                len(output.prompt_token_ids),
                choice.num_tokens,
            )


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, the flags of an engine in this process, `--url` and the sampling flags."""
    from octavo.config.flags import add_config_arguments

    parser.add_argument("--url", help="ask a running server, as http://localhost:8000, instead")
    parser.add_argument("--api-key", help="key that the server wants")
    group = parser.add_argument_group("sampling", "what is not given is the model's own default")
    for flag, kind, text in (
        ("max-tokens", int, "tokens to generate, at most"),
        ("temperature", float, "0 takes the most probable token each time"),
        ("top-p", float, "sample from the most probable tokens that have this share together"),
        ("top-k", int, "sample from this many of the most probable tokens"),
        ("min-p", float, "sample from tokens at least this probable, relative to the best"),
        ("repetition-penalty", float, "above 1: tokens that occurred are less probable"),
    ):
        group.add_argument(f"--{flag}", type=kind, metavar="VALUE", help=text)
    group.add_argument("--stop", action="append", metavar="TEXT", help="text that ends the output")
    group.add_argument(
        "--param",
        action="append",
        metavar="NAME=VALUE",
        help="a parameter that a component declares, as `octavo plugins info` shows them; the "
        "value is read as JSON, or else as text (may be given several times)",
    )
    add_config_arguments(parser, sections=("engine", "model", "plugins"))


def given_sampling(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling values that were given.

    Parameters of components are among the fields of a body, or in `extra_args` of this process's
    own requests. Raises ConfigError for one that is no NAME=VALUE, or is given twice.
    """
    from octavo.config.flags import flags_of

    names = (
        "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop",
    )  # fmt: skip
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.url and "seed" in flags_of(args):
        given["seed"] = int(flags_of(args)["seed"])
    params = _given_params(args.param or ())
    return given | (params if args.url or not params else {"extra_args": params})


def _given_params(words: Sequence[str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--param {word}: no parameter", "write --param NAME=VALUE")
        if name in params:
            raise ConfigError(f"--param {name} is given twice", "give it once")
        try:
            params[name] = json.loads(text)
        except ValueError:  # a text needs no quotes
            params[name] = text
    return params


def open_source(args: argparse.Namespace) -> TextSource:
    """Load the model, or reach the server. Raises typed errors."""
    from octavo.config.flags import given_models, resolve_arguments

    models = given_models(args)
    if args.url:
        from octavo.cli.remote_source import RemoteSource

        return RemoteSource(args.url, api_key=args.api_key, model=models[0] if models else None)
    if args.api_key is not None:
        raise ConfigError("--api-key is for a server", "give --url too")
    from octavo.local_model import open_model, with_engine_defaults

    # one request at a time: no step keeps another one waiting, and a start is quicker whose
    # steps need not be timed exactly
    config = with_engine_defaults(resolve_arguments(args), {"max_step_ms": None})
    return LocalSource(open_model(config))
