"""Which files of a folder or repository make a model, told by their names alone.

Knows naming conventions of safetensors and GGUF. Does not open files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPLIT: Final = re.compile(r"-(\d{5})-of-\d{5}$")
# encoders of images and importance matrices lie beside models, and are none
_NO_MODEL: Final = re.compile(r"(^|[-._/])(mmproj|imatrix)", re.IGNORECASE)
_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|FP?16|FP?32))$", re.IGNORECASE
)


def gguf_models(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the GGUF models among files: name without ending and number -> its files, sorted."""
    models: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.lower().endswith(".gguf") and not _NO_MODEL.search(name):
            stem = name[: -len(".gguf")]
            models.setdefault(_SPLIT.sub("", stem), []).append(name)
    return models


def quantization_of(model: str) -> str | None:
    """Return the quantisation that the name of a GGUF model ends in (`Q4_K_M`), or None."""
    match = _QUANTIZATION.search(model)
    return None if match is None else match[1]


def has_tag(model: str, tag: str) -> bool:
    """Return whether a model's name, or the folder it is in, ends in a tag, whatever the case."""
    pattern = re.compile(rf"(?:^|[-._/]){re.escape(tag)}(?:$|/)", re.IGNORECASE)
    return pattern.search(model) is not None
