"""Decoders that were saved without their head, as models of embeddings are.

Hugging Face calls such a model `...Model`, and its tensors lack the `model.` before their names.

Knows names and the config's keys. Does not know which families there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BARE: Final = "Model"
_WHOLE: Final = "ForCausalLM"
#: it is in every decoder, and has this name in a bare one alone
_MARK: Final = "embed_tokens.weight"
_PREFIX: Final = "model."


def as_whole(config: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a config whose architecture has a head, and whether the model can generate.

    A head that is not in the checkpoint is taken from the embedding, so that the model can be
    loaded; it can generate where that is how it was trained.
    """
    names: list[str] = config["architectures"]
    whole = [name.removesuffix(_BARE) + _WHOLE for name in names if str(name).endswith(_BARE)]
    if not whole:
        return dict(config), True
    is_tied = bool(config.get("tie_word_embeddings"))
    # a family that nobody knows is told by the name in its own file, which comes first
    return {**config, "architectures": [*names, *whole], "tie_word_embeddings": True}, is_tied


def whole_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names of tensors in a whole model, each with its name in the file."""
    stored = list(names)
    prefix = _PREFIX if _MARK in stored else ""
    return {f"{prefix}{name}": name for name in stored}
