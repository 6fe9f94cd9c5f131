"""Prompts for a server whose tokenizer nobody here has: made of words, or read from a file.

How many tokens a word is the server itself says, in its usage. Knows texts, lengths and files. Does
not know connections.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: short and frequent, so that most tokenizers have a token for each
_WORDS: Final = (
    "the of and to in is you that it he was for on are as with his they at be this have from or",
    "one had by word but not what all were we when your can said there use an each which she do",
    "how their if will up other about out many then them these so some her would make like him",
    "into time has look two more write go see number no way could people my than first water been",
    "call who oil its now find long down day did get come made may part",
)
_KEYS: Final = ("prompt", "messages", "prompt_tokens", "output_tokens", "arrival_s")
_TOKENS_PER_WORD: Final = 1.3


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked: a text or a conversation, so many tokens of answer, and when, if it is told.

    A text that is None is to be made up, of `prompt_tokens`.
    """

    text: str | None
    output_tokens: int
    messages: Sequence[dict[str, Any]] | None = None
    prompt_tokens: int = 0
    arrival_s: float | None = None


@dataclass(frozen=True, slots=True)
class TokensPerWord:
    """What a server was seen to count: so many tokens beside the words, and for each of them."""

    fixed: float = 0.0
    per_word: float = _TOKENS_PER_WORD

    @classmethod
    def seen(cls, counts: Sequence[tuple[int, int | None]]) -> TokensPerWord:
        """Return what follows from (words, tokens) of two prompts; a guess without counts."""
        (few, first), (many, second) = counts
        if first is None or second is None or second <= first:
            return cls()
        per_word = (second - first) / (many - few)
        return cls(first - few * per_word, per_word)

    def words(self, num_tokens: int) -> int:
        """Return how many words make a prompt of so many tokens, at least one."""
        return max(1, round((num_tokens - self.fixed) / self.per_word))


class TextMaker:
    """Makes texts that share no beginning, so that no cache helps; the same every time."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
        self._words = " ".join(_WORDS).split()

    def one(self, num_words: int) -> str:
        """Return a text of so many words."""
        return " ".join(self._draw.choices(self._words, k=num_words))


def read_prompts(path: Path, num: int, output_tokens: int | None) -> list[Prompt]:
    """Return `num` prompts of a file, from its beginning again where it has fewer.

    It is ShareGPT's JSON, or has one JSON object a line. `output_tokens` wins over what the file
    says. Raises ConfigError naming the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompts '{path}'", str(error)) from error
    if text.lstrip().startswith("["):
        found = _of_sharegpt(path, text, output_tokens)
    else:
        lines = enumerate(text.splitlines(), start=1)
        found = [_of_line(path, at, line, output_tokens) for at, line in lines if line.strip()]
    if not found:
        raise ConfigError(f"'{path}' holds no prompts")
    return [found[at % len(found)] for at in range(num)]


def _of_sharegpt(path: Path, text: str, output_tokens: int | None) -> list[Prompt]:
    """Return the first exchange of each conversation; its answer's words say how long it was."""
    try:
        turns = [one["conversations"] for one in json.loads(text)]
        pairs = [(str(one[0]["value"]), str(one[1]["value"])) for one in turns if len(one) > 1]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"'{path}' is no file of conversations as ShareGPT has them", repr(error)
        ) from error
    return [
        Prompt(asked, output_tokens or max(1, round(len(said.split()) * _TOKENS_PER_WORD)))
        for asked, said in pairs
        if asked.strip()
    ]


def _of_line(path: Path, number: int, line: str, output_tokens: int | None) -> Prompt:
    try:
        return _prompt_of(json.loads(line), output_tokens)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"line {number} of '{path}' is no prompt",
            f"{type(error).__name__}: {error}",
            f"keys: {', '.join(_KEYS)}; output_tokens, or --output-len, and one of the first three",
        ) from error


def _prompt_of(values: Any, output_tokens: int | None) -> Prompt:
    unknown = sorted(set(values) - set(_KEYS))
    if unknown:
        raise ValueError(f"unknown keys {', '.join(unknown)}")
    asked, messages = values.get("prompt"), values.get("messages")
    prompt = Prompt(
        None if asked is None else str(asked),
        output_tokens or int(values["output_tokens"]),
        messages,
        int(values["prompt_tokens"]) if asked is None and messages is None else 0,
        float(values["arrival_s"]) if "arrival_s" in values else None,
    )
    is_late = not 0 <= (prompt.arrival_s or 0) < float("inf")
    if prompt.output_tokens < 1 or prompt.prompt_tokens < 0 or is_late:
        raise ValueError("tokens and times are not negative, and an answer has a token")
    return prompt
