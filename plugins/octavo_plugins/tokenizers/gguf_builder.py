"""Builds a tokenizer of the tokenizers library from the vocabulary of a GGUF file.

Knows byte-level BPE ("gpt2") and sentencepiece ("llama") vocabularies. Does not know files,
caches or chat templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo.errors import ModelLoadError, did_you_mean
from octavo_plugins.formats.gguf_vocabulary import CONTROL, UNKNOWN, USER_DEFINED
from octavo_plugins.tokenizers.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from octavo_plugins.tokenizers.token_bytes import SPACE_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from octavo_plugins.formats.gguf_header import GgufHeader
    from octavo_plugins.formats.gguf_vocabulary import Vocabulary

BYTE_LEVEL: Final = "gpt2"
SENTENCEPIECE: Final = "llama"
_MARKERS: Final = (UNKNOWN, CONTROL, USER_DEFINED)


def pre_tokenizer(header: GgufHeader) -> PreTokenizer:
    """Return how the file's byte-level vocabulary cuts text. An unknown name is an error.

    A file that names none was made before names were given; then the oldest way is meant.
    """
    name = header.text("tokenizer.ggml.pre", "default")
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        raise ModelLoadError(
            f"unknown pre-tokenizer '{name}' (GGUF file '{header.path}', 'tokenizer.ggml.pre')",
            did_you_mean(name, PRE_TOKENIZERS),
            f"known are {', '.join(sorted(PRE_TOKENIZERS))}",
            "give the folder of the model's own tokenizer.json with --tokenizer",
        )
    return found


def build(header: GgufHeader, vocabulary: Vocabulary) -> Tokenizer:
    """Build the library's tokenizer. Raises ModelLoadError naming the key at fault."""
    ids = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    if vocabulary.model == BYTE_LEVEL:
        tokenizer = _byte_level(header, ids)
    elif vocabulary.model == SENTENCEPIECE:
        tokenizer = _sentencepiece(header, vocabulary, ids)
    else:
        raise ModelLoadError(
            f"unknown tokenizer model '{vocabulary.model}' (GGUF file '{header.path}', "
            "'tokenizer.ggml.model')",
            f"known are {BYTE_LEVEL} (byte-level BPE) and {SENTENCEPIECE} (sentencepiece)",
            "give the folder of the model's own tokenizer.json with --tokenizer",
        )
    _add_markers(tokenizer, vocabulary)
    return tokenizer


def _byte_level(header: GgufHeader, ids: Mapping[str, int]) -> Tokenizer:
    way = pre_tokenizer(header)
    model = models.BPE(
        vocab=dict(ids),
        merges=_read_merges(header, ids),
        fuse_unk=False,
        byte_fallback=False,
        ignore_merges=way.ignores_merges,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in way.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _read_merges(header: GgufHeader, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    key = "tokenizer.ggml.merges"
    lines = header.strings(key)
    if lines is None:
        raise ModelLoadError(
            f"GGUF file '{header.path}' has no '{key}'",
            "a byte-level vocabulary cannot be used without its merges",
        )
    merges: list[tuple[str, str]] = []
    for line in lines:
        # a part may itself begin with a space
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if cut < 0 or left not in ids or right not in ids or left + right not in ids:
            _refuse_merge(header.path, key, len(merges), line)
        merges.append((left, right))
    return merges


def _refuse_merge(path: Path, key: str, index: int, line: str) -> None:
    raise ModelLoadError(
        f"GGUF file '{path}': '{key}' does not fit the vocabulary",
        f"merge {index} is {line!r}; both parts and their union must be tokens",
    )


def _sentencepiece(header: GgufHeader, vocabulary: Vocabulary, ids: Mapping[str, int]) -> Tokenizer:
    unknown_id = vocabulary.ids.get("unk")
    model = models.BPE(
        vocab=dict(ids),
        merges=_merges_from_scores(header, vocabulary, ids),
        unk_token=None if unknown_id is None else vocabulary.tokens[unknown_id],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    adds_prefix = header.flag("tokenizer.ggml.add_space_prefix", default=True)
    replace_space = normalizers.Replace(" ", SPACE_MARK)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE_MARK), replace_space] if adds_prefix else [replace_space]
    )
    strip = [decoders.Strip(" ", 1, 0)] if adds_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_from_scores(
    header: GgufHeader, vocabulary: Vocabulary, ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return the merges that sentencepiece's scores amount to: best score first.

    Sentencepiece merges the two neighbours whose union has the best score; a merge list says the
    same when each token's pairs stand at the rank of its score.
    """
    scores = vocabulary.scores
    if scores is None:
        raise ModelLoadError(
            f"GGUF file '{header.path}' has no 'tokenizer.ggml.scores'",
            "a sentencepiece vocabulary cannot be used without its scores",
        )
    merges: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, token_id in ids.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                merges.append((-float(scores[token_id]), token_id, ids[left], (left, right)))
    merges.sort(key=lambda merge: merge[:3])
    return [merge[3] for merge in merges]


def _add_markers(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Make markers of control, unknown and user-defined tokens: one id wherever they stand."""
    is_special = [
        (token, kind != USER_DEFINED)
        for token, kind in zip(vocabulary.tokens, vocabulary.types.tolist(), strict=True)
        if kind in _MARKERS
    ]
    tokenizer.add_tokens(
        [AddedToken(token, special=special, normalized=False) for token, special in is_special]
    )
