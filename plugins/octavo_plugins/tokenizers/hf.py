"""The `hf` tokenizer: `tokenizer.json` and the JSON files around it, from a model folder.

transformers reads these files too, but importing it takes seconds; the tokenizers library alone
takes a tenth of one. Knows the files. Does not know models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import tokenizers

from octavo.errors import ModelLoadError
from octavo.interfaces.tokenizer import TokenizerFormat
from octavo_plugins.formats.json_file import read_optional_json
from octavo_plugins.formats.regular_file import read_regular
from octavo_plugins.tokenizers.fast_tokenizer import FastTokenizer, TokenizerFacts
from octavo_plugins.tokenizers.hf_decoder import decoding_of
from octavo_plugins.tokenizers.hf_templates import read_chat_templates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE: Final = "tokenizer.json"
_CONFIG: Final = "tokenizer_config.json"
_MAX_BYTES: Final = 1 << 30
_NAMED_TOKENS: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# vocabularies in other forms, from which transformers makes a tokenizer.json
_CONVERTIBLE: Final = ("tokenizer.model", "vocab.json", "tekken.json")


class HfTokenizer(TokenizerFormat):
    """Loads tokenizers from model folders.

    What goes around a text (BOS, EOS) is what `tokenizer.json` says: as in transformers 5,
    `add_bos_token` in `tokenizer_config.json` changes nothing beside it.
    """

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def why_not(self, path: Path) -> list[str]:
        """Return why there is no `tokenizer.json` at `path`."""
        if not path.is_dir():
            return [f"'{path}' is no folder"]
        if (path / FILE).exists():
            return []
        other = next((name for name in _CONVERTIBLE if (path / name).is_file()), None)
        if other is None:
            return [f"'{path}' has no {FILE}"]
        return [
            (
                f"'{path}' has no {FILE}, only {other}: convert it once with transformers, "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        ]

    def load(self, path: Path) -> FastTokenizer:
        """Load the tokenizer of a folder."""
        file = path / FILE
        if not file.exists():
            raise ModelLoadError(f"no tokenizer in '{path}'", *self.why_not(path))
        try:
            library = tokenizers.Tokenizer.from_buffer(read_regular(file, _MAX_BYTES))
        except OSError as error:
            raise ModelLoadError(f"cannot read '{file}'", f"{error.strerror or error}") from error
        except Exception as error:  # the library raises bare Exception
            raise ModelLoadError(f"'{file}' is no valid tokenizer", str(error)) from error
        config = read_optional_json(path / _CONFIG)
        named = _named_tokens(config, read_optional_json(path / "special_tokens_map.json"))
        _add_missing_markers(library, config, named)
        ids = {
            name: token_id
            for name, token in named.items()
            if (token_id := library.token_to_id(token)) is not None
        }
        decoding = decoding_of(library)
        markers = library.get_added_tokens_decoder()
        facts = TokenizerFacts(
            bos_token_id=ids.get("bos_token"),
            eos_token_id=ids.get("eos_token"),
            eos_token_ids=_end_ids(path, ids, library.get_vocab_size(with_added_tokens=True)),
            special_ids=frozenset(i for i, token in markers.items() if token.special),
            special_tokens=named,
            chat_templates=read_chat_templates(path, config),
            spelling=decoding.spelling,
            strips_leading_space=decoding.strips_leading_space,
        )
        return FastTokenizer(library, facts)


def _named_tokens(config: Mapping[str, Any], token_map: Mapping[str, Any]) -> dict[str, str]:
    """Return named tokens by their text; a token may be written as text or as an object."""
    named: dict[str, str] = {}
    for name in _NAMED_TOKENS:
        value = config.get(name, token_map.get(name))
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str) and value:
            named[name] = value
    return named


def _add_missing_markers(
    library: tokenizers.Tokenizer, config: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Make markers of tokens that only `tokenizer_config.json` says are some.

    Tokens that are not in the vocabulary would get new ids, which the model has no rows for, so
    they are left out.
    """
    present = {token.content for token in library.get_added_tokens_decoder().values()}
    declared = config.get("added_tokens_decoder")
    for entry in declared.values() if isinstance(declared, dict) else ():
        content = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(content, str) and content not in present:
            _add_marker(library, content, is_special=bool(entry.get("special", False)))
    for content in (*named.values(), *_further_tokens(config)):
        if content not in present:
            _add_marker(library, content, is_special=True)


def _further_tokens(config: Mapping[str, Any]) -> list[str]:
    """Return special tokens that have no name, or one that only this model knows."""
    further: list[str] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        value = config.get(key)
        entries = value.values() if isinstance(value, dict) else value or ()
        for entry in entries:
            content = entry.get("content") if isinstance(entry, dict) else entry
            if isinstance(content, str):
                further.append(content)
    return further


def _add_marker(library: tokenizers.Tokenizer, content: str, *, is_special: bool) -> None:
    if library.token_to_id(content) is not None:
        library.add_tokens([tokenizers.AddedToken(content, special=is_special, normalized=False)])


def _end_ids(path: Path, ids: Mapping[str, int], vocab_size: int) -> frozenset[int]:
    """Return the ids that end an answer: the tokenizer's, and those of the model's configs."""
    found = {ids["eos_token"]} if "eos_token" in ids else set()
    for name in ("generation_config.json", "config.json"):
        value = read_optional_json(path / name).get("eos_token_id")
        values = value if isinstance(value, list) else [value]
        found.update(i for i in values if isinstance(i, int) and 0 <= i < vocab_size)
    return frozenset(found)
