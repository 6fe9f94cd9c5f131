"""What chat and plain completions share: ids, usage, and streams that end in one way.

Knows generations and events. Does not know the shapes of either API.
"""

from __future__ import annotations

import itertools
import logging
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.errors import OctavoError
from octavo.serving.http_errors import api_error_of
from octavo.serving.logs import request_id_var
from octavo.serving.streaming import event
from octavo_plugins.dialects.openai.answers import usage_of
from octavo_plugins.dialects.openai.params import renamed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from octavo.frontend.outputs import RequestOutput
    from octavo.serving.generation import Generation
    from octavo_plugins.dialects.openai.answers import Usage
    from octavo_plugins.dialects.openai.bodies import GenerationBody

DONE = b"data: [DONE]\n\n"

_logger = logging.getLogger("octavo.serving")


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk of an answer repeats.

    `call_id` is unique in this server. `id` need not be: it is made from the client's own id for
    the request, where it sent one.
    """

    id: str
    call_id: str
    created: int
    model: str


class Identities:
    """Makes the identities of answers."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count()

    def next(self, body: GenerationBody, model_name: str) -> Identity:
        """Return the identity of the answer to a request."""
        answer_id = f"{self._prefix}-{body.request_id or request_id_var.get()}"
        call_id = f"{answer_id}.{next(self._numbers)}"
        return Identity(answer_id, call_id, int(time.time()), model_name)


@dataclass(slots=True)
class UsageCounter:
    """Counts the tokens of one answer, over all its prompts and choices."""

    generation: Generation
    _completion: dict[tuple[int, int], int] = field(default_factory=dict)
    _cached: dict[int, int] = field(default_factory=dict)

    def take(self, index: int, output: RequestOutput) -> None:
        """Note what is new of prompt number `index`."""
        self._cached[index] = output.num_cached_tokens
        for one in output.outputs:
            self._completion[index, one.index] = one.num_tokens

    def usage(self) -> Usage:
        """Return the usage so far."""
        num_prompt_tokens = sum(len(call.prompt_token_ids) for call in self.generation.calls)
        num_tokens = sum(self._completion.values())
        return usage_of(num_prompt_tokens, num_tokens, sum(self._cached.values()))


async def guarded(
    events: AsyncGenerator[bytes, None], generation: Generation, names: Mapping[str, str]
) -> AsyncGenerator[bytes, None]:
    """Yield the events and [DONE]. A failure becomes one event with an `error` (B17).

    `names` are those of `renamed`. Whatever way the stream ends, the generation is closed at once.
    """
    try:
        with renamed(names):
            async with aclosing(events):
                async for chunk in events:
                    yield chunk
    except OctavoError as error:
        _logger.warning("a stream ended with an error: %s", error.headline)
        yield event(api_error_of(error).body())
    except Exception as error:
        _logger.exception("a stream failed")
        yield event(api_error_of(error).body())
    finally:
        generation.close()
    yield DONE
