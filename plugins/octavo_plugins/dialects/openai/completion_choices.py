"""One choice of a completion: its text, with or without the prompt before it, and its logprobs.

Knows echo and offsets. Does not know streams or other choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo_plugins.dialects.openai import answers
from octavo_plugins.dialects.openai.logprobs import CompletionLogprobsWriter
from octavo_plugins.dialects.openai.prompt_texts import prompt_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.frontend.outputs import CompletionOutput, Logprob
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo_plugins.dialects.openai.bodies import CompletionBody

    PromptLogprobs = Sequence[Mapping[int, Logprob] | None]


class ChoiceWriter:
    """Writes one choice, in one piece or in many; the first piece has the echo."""

    def __init__(
        self, body: CompletionBody, tokenizer: Tokenizer, call: PreparedCall, index: int
    ) -> None:
        self._body = body
        self._tokenizer = tokenizer
        self._call = call
        self._index = index
        self._is_first = True
        self._prompt_logprobs: PromptLogprobs | None = None
        self._logprobs = CompletionLogprobsWriter(
            tokenizer,
            as_ids=bool(body.return_tokens_as_token_ids),
            skips_special=body.skip_special_tokens is not False,
        )

    @property
    def is_waiting_for_prompt(self) -> bool:
        """Return whether the echo cannot be written yet, for want of the prompt's logprobs."""
        return self._is_first and self._prompt_logprobs is None

    def take_prompt(self, prompt_logprobs: PromptLogprobs) -> None:
        """Take the logprobs of the prompt, which all choices of it share."""
        self._prompt_logprobs = prompt_logprobs

    def write(
        self, one: CompletionOutput, prompt_logprobs: PromptLogprobs | None
    ) -> answers.CompletionChoice:
        """Return the next piece."""
        if prompt_logprobs is not None:
            self._prompt_logprobs = prompt_logprobs
        choice = answers.CompletionChoice(
            self._index, one.text, None, one.finish_reason, one.stop_reason
        )
        token_ids: list[int] = list(one.token_ids)
        entries: list[Mapping[int, Logprob] | None] = list(one.logprobs or ())
        if self._is_first:
            self._is_first = False
            self._begin(choice, token_ids, entries)
        if self._body.logprobs is not None:
            choice.logprobs = self._logprobs.write(token_ids, entries)
        if self._body.return_token_ids:
            choice.token_ids = one.token_ids
        return choice

    def _begin(
        self,
        choice: answers.CompletionChoice,
        token_ids: list[int],
        entries: list[Mapping[int, Logprob] | None],
    ) -> None:
        """Put the prompt before the first piece, where it is asked for."""
        prompt_ids = self._call.prompt_token_ids
        if self._body.echo:
            skips = self._body.skip_special_tokens is not False
            shown = prompt_text(self._call, self._tokenizer, skips_special_tokens=skips)
            choice.text = shown + choice.text
            if self._prompt_logprobs is not None:
                token_ids[:0] = prompt_ids
                entries[:0] = self._prompt_logprobs
        if self._body.return_token_ids:
            choice.prompt_token_ids = prompt_ids
        if self._body.return_prompt_text:
            choice.prompt_text = prompt_text(self._call, self._tokenizer)
        if self._body.prompt_logprobs is not None and self._prompt_logprobs is not None:
            choice.prompt_logprobs = self._logprobs.prompt(self._prompt_logprobs)
