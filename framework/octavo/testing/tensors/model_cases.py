"""Tiny random models of a family: configs from the suite's sample, weights made up for them.

Knows configs, names and shapes. Does not know what any family computes.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from octavo.errors import ModelLoadError
from octavo.execution.loader import load_parameters
from octavo.testing.invariants import SampleNeededError
from octavo.testing.samples import sample_of
from octavo.testing.subjects import stock
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.interfaces.architecture import Architecture, ParameterSpec
    from octavo.testing.subjects import Subject

    #: from a config, weights by name and token ids to logits [tokens, vocab]
    Definition: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Tensor], list[int]], Tensor]

WHAT = "a config of a tiny model of this family (or a list of them, or a path of a config.json)"
_PROMPT_TOKENS = 40
#: wide enough that attention is sharp, and a lost window or rotation shows
_MATRIX, _VECTOR = 1.5, 0.3
_MATRIX_DIMENSIONS = 2
_WRONG = ("null", "0", "-1", "1.5", "true", '"no"', "[]", "{}", "[null]")


@dataclass(frozen=True, slots=True)
class FamilySample:
    """What a family is tried with.

    `refused` are changes of the first config, each of which it has to refuse; `definition`
    computes the logits of a family that transformers does not have.
    """

    configs: tuple[Mapping[str, Any], ...]
    refused: tuple[Mapping[str, Any], ...] = ()
    definition: Definition | None = None


@dataclass(slots=True)
class Case:
    """A config, and how models of it are made."""

    subject: Subject
    config: Mapping[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{name_of(self.config)} of {self.config.get('model_type', 'no model_type')}"

    def empty(self, changes: Mapping[str, Any] | None = None) -> Architecture:
        """Return a model of the config, or of one with changes, that has no weights yet."""
        return self.of(json.loads(json.dumps({**self.config, **(changes or {})})))

    def of(self, config: dict[str, Any]) -> Architecture:
        """Return a model of this very config, without weights."""
        ops, attention = stock("ops", "torch"), stock("attention", "torch")
        made: Architecture = self.subject.cls(config, ops, attention)
        return made

    def loaded(self, tensors: Mapping[str, Tensor] | None = None) -> Architecture:
        """Return a model with its weights, or with others."""
        model = self.empty()
        given = self.tensors if tensors is None else tensors
        load_parameters(model, MemoryCheckpoint(model.config, given))
        return model

    def prompt(self, seed: int = 0, length: int = _PROMPT_TOKENS) -> list[int]:
        """Return tokens of the vocabulary, no more than fit into the context."""
        model = self.empty()
        generator = torch.Generator().manual_seed(seed)
        size = (min(length, model.max_positions),)
        ids: list[int] = torch.randint(model.vocab_size, size, generator=generator).tolist()
        return ids


def cases_of(subject: Subject) -> list[Case]:
    """Return a case for each config of the sample, made once for a subject.

    Raises SampleNeededError without a sample.
    """
    if "cases" not in subject.memory:
        # as a file would hold them: keys are texts, and nothing is shared with the sample
        configs = [json.loads(json.dumps(dict(one))) for one in family_sample(subject).configs]
        made = [Case(subject, config) for config in configs]
        for case in made:
            case.tensors = random_tensors(case.empty().parameters())
        subject.memory["cases"] = made
    cases: list[Case] = subject.memory["cases"]
    return cases


def family_sample(subject: Subject) -> FamilySample:
    """Return the sample as what it stands for. Raises SampleNeededError for what is none."""
    given = sample_of(subject, WHAT)
    if isinstance(given, str | Path):
        path = Path(given)
        path = path / "config.json" if path.is_dir() else path
        if not path.is_file():
            raise SampleNeededError(f"the sample of {subject.kind} '{subject.name}' is no {path}")
        given = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(given, FamilySample):
        return given
    configs = (given,) if isinstance(given, dict) else tuple(given)
    if not configs or not all(isinstance(one, dict) for one in configs):
        raise SampleNeededError(f"the sample of {subject.kind} '{subject.name}' is not {WHAT}")
    return FamilySample(configs)


def name_of(config: Mapping[str, Any]) -> str:
    """Return the architecture that a config names."""
    return next(iter(config.get("architectures") or ()), "(no architecture)")


def random_tensors(specs: Sequence[ParameterSpec], seed: int = 0) -> dict[str, Tensor]:
    """Return weights for all sources, drawn so that each of them matters.

    Norms differ from one (or from what makes one of them with the spec's offset), biases from
    zero, and they are the same for a name each time.
    """
    return {
        name: _random(name, shape, spec.offset, seed)
        for spec in specs
        for name, shape in zip(spec.sources, spec.shapes, strict=True)
    }


def _random(name: str, shape: tuple[int, ...], offset: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + seed)
    noise = torch.randn(shape, generator=generator)
    if len(shape) == _MATRIX_DIMENSIONS:
        return noise.mul_(_MATRIX * shape[1] ** -0.5)
    mean = 0.0 if name.endswith(".bias") else 1.0 - offset
    vector: Tensor = mean + _VECTOR * noise
    return vector


def refusal_of(case: Case, changes: Mapping[str, Any]) -> ModelLoadError | None:
    """Return why a changed config is refused, when the model is made or prepared; None if not."""
    try:
        model = case.empty(changes)
        tensors = random_tensors(model.parameters())
        load_parameters(model, MemoryCheckpoint(model.config, tensors))
        model.cache_specs()
        model.prepare(8, 8, 16)
    except ModelLoadError as error:
        return error
    return None


def wrong_values(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each key with values that are seldom right for it."""
    for key in config:
        if key != "architectures":
            for value in _WRONG:
                yield key, json.loads(value)


def asks_for_rotary(case: Case) -> bool:
    """Return whether a model of this family makes tables of rotary embedding."""
    model = case.loaded()
    made, tables = model.ops.rotary_table, list[Any]()

    def noted(config: Any, max_positions: int) -> Any:
        tables.append(config)
        return made(config, max_positions)

    model.ops.rotary_table = noted  # type: ignore[method-assign]
    model.prepare(8, 8, 16)
    return bool(tables)
