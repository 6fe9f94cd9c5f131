"""Loads a draft model: another model, or the first layers of the one that it drafts for.

Knows configs, files and vocabularies. Does not know rows, steps or how drafts are made.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, ModelLoadError, UnsupportedError
from octavo.execution.load import build_architecture
from octavo.execution.loader import load_parameters
from octavo.interfaces.attention import StateSpec
from octavo.interfaces.weights import Checkpoint
from octavo.model_files import describe_model, load_tokenizer, locate_model, open_checkpoint
from octavo_plugins.proposers.options import TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.config.resolved import ResolvedConfig
    from octavo.interfaces.architecture import Architecture
    from octavo.interfaces.weights import WeightBlocks

logger = logging.getLogger(__name__)

_LAYER = re.compile(r"\.layers\.(\d+)\.")


def load_draft(
    config: ResolvedConfig, target: Architecture, name: str, num_layers: int | None
) -> Architecture:
    """Return the draft model, loaded. `num_layers`: use only the first ones.

    Weights that are the target's own are shared with it. Raises ModelLoadError for another
    vocabulary, UnsupportedError for a model that cannot take tokens back, and the errors of
    loading a model.
    """
    path = locate_model(config)
    own = config if name == TARGET else _config_of(config, name)
    draft_path = path if name == TARGET else locate_model(own)
    is_same = draft_path.resolve() == path.resolve()
    checkpoint = open_checkpoint(own, draft_path)
    try:
        if num_layers is not None:
            checkpoint = FirstLayers(checkpoint, num_layers, name)
        draft = build_architecture(own, checkpoint)
        _check_kind(draft, name)
        if not is_same:
            _check_vocabulary(draft, target, name)
            _check_tokens((config, path), (own, draft_path), name)
        if is_same and target.ops.collective is None:
            draft.weights.update(_shared_weights(draft, target))
        else:
            load_parameters(draft, checkpoint)
    finally:
        checkpoint.close()
    return draft


class FirstLayers(Checkpoint):
    """A checkpoint of which only the first layers are used: config and lists by layer are cut.

    Raises ConfigError when the model has fewer. Tensors of other layers are not in `names`.
    """

    def __init__(self, whole: Checkpoint, num_layers: int, name: str) -> None:
        self._whole = whole
        total = whole.config.get("num_hidden_layers")
        if not isinstance(total, int) or num_layers > total:
            headline = f"the draft model '{name}' does not have {num_layers} layers"
            raise ConfigError(headline, f"it has {total}; lower num-layers")
        cut = {
            key: value[:num_layers] if isinstance(value, list) and len(value) == total else value
            for key, value in whole.config.items()
        }
        config = {**cut, "num_hidden_layers": num_layers}
        super().__init__(replace(whole.description, config=config))
        self._num_layers = num_layers

    def names(self) -> list[str]:
        """Return the names of the tensors outside layers, and of the first ones."""
        numbers = ((name, _LAYER.search(name)) for name in self._whole.names())
        return [name for name, found in numbers if not found or int(found[1]) < self._num_layers]

    def blocks(self, name: str) -> WeightBlocks:
        """Return one tensor."""
        return self._whole.blocks(name)

    def close(self) -> None:
        """Close the file."""
        self._whole.close()


def _config_of(config: ResolvedConfig, name: str) -> ResolvedConfig:
    """Return the config with the draft model in the model's place."""
    others = {"revision": None, "load_format": "auto", "tokenizer": None, "tokenizer_mode": "auto"}
    return config.with_changes(model={"name": name, **others})


def _shared_weights(draft: Architecture, target: Architecture) -> dict[str, Any]:
    """Return the target's weights by the names of the draft's parameters; both read one file."""
    names = [spec.name for spec in draft.parameters()]
    return {name: target.weights[name] for name in names if name in target.weights}


def _check_kind(draft: Architecture, name: str) -> None:
    if any(isinstance(spec, StateSpec) for spec in draft.cache_specs()):
        headline = f"the model '{name}' cannot draft"
        fact = "some of its layers keep one state, which cannot take back tokens that were guessed"
        raise UnsupportedError(headline, fact)


def _check_vocabulary(draft: Architecture, target: Architecture, name: str) -> None:
    if draft.vocab_size != target.vocab_size:
        raise ModelLoadError(
            f"the draft model '{name}' has another vocabulary than the model",
            f"it has {draft.vocab_size} tokens, the model has {target.vocab_size}",
            "name a draft model of the same family",
        )


def _check_tokens(
    model: tuple[ResolvedConfig, Path], draft: tuple[ResolvedConfig, Path], name: str
) -> None:
    """Compare the tokens of both models. A draft model without a tokenizer is a warning."""
    ours = load_tokenizer(model[0], describe_model(*model))
    try:
        theirs = load_tokenizer(draft[0], describe_model(*draft))
    except ModelLoadError as error:
        logger.warning("the tokens of the draft model '%s' cannot be compared: %s", name, error)
        return
    for token_id in range(max(ours.vocab_size, theirs.vocab_size)):
        wanted, found = ours.id_to_token(token_id), theirs.id_to_token(token_id)
        if wanted != found:
            raise ModelLoadError(
                f"the draft model '{name}' has another vocabulary than the model",
                f"token {token_id} is {found!r} there, and {wanted!r} in the model",
                "name a draft model of the same family",
            )
