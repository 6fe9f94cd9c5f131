"""The `gguf` tokenizer: straight from a GGUF file's metadata.

Knows the metadata keys, and caches what it built. Does not know how a vocabulary becomes a
tokenizer (`gguf_builder`).
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any, Final

import tokenizers

from octavo.errors import ConfigError
from octavo.interfaces.tokenizer import TokenizerFormat
from octavo_plugins.formats.cache_folder import cache_folder, write_atomically
from octavo_plugins.formats.gguf_header import read_header, reasons_no_gguf
from octavo_plugins.formats.gguf_splits import split_paths
from octavo_plugins.formats.gguf_vocabulary import find_end_ids, read_named_ids, read_vocabulary
from octavo_plugins.tokenizers.fast_tokenizer import FastTokenizer, TokenizerFacts
from octavo_plugins.tokenizers.gguf_builder import SENTENCEPIECE, build, pre_tokenizer
from octavo_plugins.tokenizers.token_bytes import byte_level, sentencepiece

if TYPE_CHECKING:
    from pathlib import Path

    from octavo_plugins.formats.gguf_header import GgufHeader

# Part of the cache's key: raise it whenever `gguf_builder` builds something else than before.
_BUILDER_VERSION: Final = 1

_logger: Final = logging.getLogger(__name__)


class GgufTokenizer(TokenizerFormat):
    """Loads tokenizers from GGUF files.

    A built tokenizer is kept in `~/.cache/octavo/tokenizers` under a hash of the metadata it came
    from, so that only the first start builds it.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def why_not(self, path: Path) -> list[str]:
        """Return why `path` is no GGUF file."""
        return reasons_no_gguf(path)

    def load(self, path: Path) -> FastTokenizer:
        """Load the tokenizer, from the cache if it was built before."""
        header = read_header(split_paths(path)[0])
        library = _cached(header)
        return FastTokenizer(library, _facts(header, library))


def _cached(header: GgufHeader) -> tokenizers.Tokenizer:
    """Return the library's tokenizer from the cache, or build it and put it there."""
    key = f"{_BUILDER_VERSION} {tokenizers.__version__} {header.fingerprint('tokenizer.')}"
    try:
        folder = cache_folder("tokenizers")
    except ConfigError as error:
        _logger.warning("the tokenizer is built anew at each start: %s", error)
        return build(header, read_vocabulary(header))
    cached = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if cached.is_file():
        try:
            return tokenizers.Tokenizer.from_file(str(cached))
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception
            _logger.warning("the cached tokenizer '%s' is damaged, built anew: %s", cached, error)
    library = build(header, read_vocabulary(header))
    try:
        write_atomically(cached, library.to_str())
    except OSError as error:
        _logger.warning("cannot keep the tokenizer in '%s': %s", cached, error)
    return library


def _facts(header: GgufHeader, library: tokenizers.Tokenizer) -> TokenizerFacts:
    """Read what is beside the vocabulary. It is cheap, so that it is never cached."""
    is_sentencepiece = header.text("tokenizer.ggml.model", None) == SENTENCEPIECE
    num_tokens = len(header.metadata["tokenizer.ggml.tokens"])
    ids = read_named_ids(header, num_tokens)
    adds_bos = True if is_sentencepiece else pre_tokenizer(header).adds_bos
    adds_bos = header.flag("tokenizer.ggml.add_bos_token", adds_bos)
    adds_eos = header.flag("tokenizer.ggml.add_eos_token", default=False)
    markers = library.get_added_tokens_decoder()
    return TokenizerFacts(
        bos_token_id=ids.get("bos"),
        eos_token_id=ids.get("eos"),
        eos_token_ids=find_end_ids(ids, library.token_to_id),
        special_ids=frozenset(i for i, token in markers.items() if token.special),
        special_tokens={
            f"{name}_token": token
            for name in ("bos", "eos", "unk", "sep", "pad", "mask")
            if name in ids and (token := library.id_to_token(ids[name])) is not None
        },
        chat_templates=_chat_templates(header),
        spelling=sentencepiece if is_sentencepiece else byte_level,
        strips_leading_space=is_sentencepiece
        and header.flag("tokenizer.ggml.add_space_prefix", default=True),
        prefix=(ids["bos"],) if adds_bos and "bos" in ids else (),
        suffix=(ids["eos"],) if adds_eos and "eos" in ids else (),
    )


def _chat_templates(header: GgufHeader) -> dict[str, str]:
    templates: dict[str, str] = {}
    default = header.text("tokenizer.chat_template", None)
    if default is not None:
        templates["default"] = default
    for name in header.strings("tokenizer.chat_templates") or []:
        template = header.text(f"tokenizer.chat_template.{name}", None)
        if template is not None:
            templates[name] = template
    return templates
