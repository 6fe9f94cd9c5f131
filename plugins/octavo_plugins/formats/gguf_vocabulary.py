"""Reads the vocabulary of a GGUF file: tokens, their types, and which ids mean what.

Follows llama.cpp (`llama-vocab.cpp`), because its rules are what such files are made for. Knows
the `tokenizer.ggml.*` keys. Does not know how text is cut into tokens.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from octavo.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from octavo_plugins.formats.gguf_header import GgufHeader

NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5
BYTE: Final = 6

# name -> the key's middle part; "seperator" is how GGUF spells it
_NAMED_IDS: Final = {
    "bos": "bos",
    "eos": "eos",
    "eot": "eot",
    "eom": "eom",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "mask": "mask",
    "fim_pad": "fim_pad",
    "fim_rep": "fim_rep",
    "fim_sep": "fim_sep",
}
# what sentencepiece vocabularies mean when a file does not say
_SENTENCEPIECE_IDS: Final = {"bos": 1, "eos": 2, "unk": 0}

# tokens that end an answer wherever they are in a vocabulary
_END_TEXTS: Final = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek writes it with these bars
    "[e~[",
)
# tokens of fill-in-the-middle that end an answer, by the name of the id they stand for
_FIM_TEXTS: Final = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
# tokens that a reader of the answer needs, though they are called control tokens
_VISIBLE_TEXTS: Final = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary. `types` and `scores` have one entry for each token.

    `ids` has only names whose id is in range. Tokens that end an answer are CONTROL in `types`.
    """

    model: str
    tokens: list[str]
    types: NDArray[np.int32]
    scores: NDArray[np.float32] | None
    ids: Mapping[str, int]


def read_vocabulary(header: GgufHeader) -> Vocabulary:
    """Read the vocabulary. Raises ModelLoadError naming the key at fault."""
    model = header.text("tokenizer.ggml.model", None)
    tokens = header.strings("tokenizer.ggml.tokens")
    if model is None or not tokens:
        raise ModelLoadError(
            f"GGUF file '{header.path}' holds no tokenizer",
            "'tokenizer.ggml.model' and 'tokenizer.ggml.tokens' must be there",
            "give the tokenizer's folder with --tokenizer",
        )
    tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
    index = {token: token_id for token_id, token in enumerate(tokens)}
    if len(index) != len(tokens):
        _refuse_duplicate(header, tokens)
    raw_types = _numbers(header, "tokenizer.ggml.token_type", len(tokens))
    raw_scores = _numbers(header, "tokenizer.ggml.scores", len(tokens))
    types = (
        np.full(len(tokens), NORMAL, np.int32) if raw_types is None else raw_types.astype(np.int32)
    )
    scores = None if raw_scores is None else raw_scores.astype(np.float32)
    ids = read_named_ids(header, len(tokens))
    end_ids = find_end_ids(ids, index.get)
    for token_id in end_ids:
        types[token_id] = CONTROL
    for text in _VISIBLE_TEXTS:
        if text in index:
            types[index[text]] = USER_DEFINED
    return Vocabulary(model, tokens, types, scores, ids)


def read_named_ids(header: GgufHeader, num_tokens: int) -> dict[str, int]:
    """Return the ids that metadata names (`bos`, `eos`, ...), leaving out those out of range.

    An id outside the vocabulary is worth a warning, not a failure: such files exist, and work.
    """
    is_sentencepiece = header.text("tokenizer.ggml.model", None) == "llama"
    ids: dict[str, int] = {}
    for name, middle in _NAMED_IDS.items():
        key = f"tokenizer.ggml.{middle}_token_id"
        default = _SENTENCEPIECE_IDS.get(name) if is_sentencepiece else None
        if default is not None and default < num_tokens:
            ids[name] = default
        token_id = header.integer(key, None)
        if token_id is None:
            continue
        if 0 <= token_id < num_tokens:
            ids[name] = token_id
        else:
            _logger.warning(
                "%s: '%s' is %d, outside the vocabulary of %d tokens; ignored",
                header.path,
                key,
                token_id,
                num_tokens,
            )
    return ids


def _numbers(header: GgufHeader, key: str, count: int) -> NDArray[np.generic] | None:
    values = header.metadata.get(key)
    if values is None:
        return None
    if not isinstance(values, np.ndarray) or len(values) < count:
        raise ModelLoadError(
            f"GGUF file '{header.path}': '{key}' must hold a number for each token",
            f"there are {count} tokens, and it is {_describe(values)}",
        )
    return values[:count]


def _describe(values: object) -> str:
    if isinstance(values, np.ndarray):
        return f"an array of {len(values)}"
    return f"of type {type(values).__name__}"


def _refuse_duplicate(header: GgufHeader, tokens: list[str]) -> None:
    first: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if token in first:
            raise ModelLoadError(
                f"GGUF file '{header.path}': a token is in the vocabulary twice",
                f"ids {first[token]} and {token_id} are both {token!r}",
            )
        first[token] = token_id


def find_end_ids(
    ids: Mapping[str, int], token_to_id: Callable[[str], int | None]
) -> frozenset[int]:
    """Return all ids that end an answer: those that metadata names, and those known by text."""
    end_ids = {ids[name] for name in ("eos", "eot", "eom") if name in ids}
    for name, texts in _FIM_TEXTS.items():
        found = [token_to_id(text) for text in texts]
        candidates = [ids.get(name), *found]
        end_ids.update([token_id for token_id in candidates if token_id is not None][:1])
    by_text = {text: token_to_id(text) for text in _END_TEXTS}
    present = {text for text, token_id in by_text.items() if token_id is not None}
    # where these are together, "<|end|>" ends a message and not the answer (gpt-oss, solar-open)
    if present >= {"<|return|>", "<|call|>"} or (
        "<|flush|>" in present and present & {"<|call|>", "<|calls|>"}
    ):
        present.discard("<|end|>")
    if "<|tool_response>" in present or token_to_id("<|plamo:eos|>") is not None:
        present.discard("</s>")  # an ordinary piece of text there
    end_ids.update(token_id for text in present if (token_id := by_text[text]) is not None)
    return frozenset(end_ids)
