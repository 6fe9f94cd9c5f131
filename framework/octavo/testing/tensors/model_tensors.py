"""M2, of model families: what becomes of a checkpoint's tensors.

Knows names, shapes and which operations have another result. Does not know any family.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

from octavo.errors import ModelLoadError
from octavo.execution.loader import plan_load
from octavo.testing.invariants import PromiseBroken
from octavo.testing.tensors.hand_runner import HandRunner
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo.testing.tensors.model_cases import Case, cases_of, random_tensors
from octavo.testing.tensors.watched_models import watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from octavo.testing.subjects import Subject


def every_tensor_makes_one_parameter(subject: Subject) -> None:
    """And each parameter is written once, under a name of its own."""
    for case in cases_of(subject):
        specs = case.empty().parameters()
        for what, names in (
            ("parameter", [spec.name for spec in specs]),
            ("tensor", [source for spec in specs for source in spec.sources]),
        ):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise PromiseBroken(f"{case}: the {what} {twice[0]} is there more than once")
        loaded = set(case.loaded().weights)
        wrong = loaded ^ {spec.name for spec in specs}
        if wrong:
            raise PromiseBroken(f"{case}: {min(wrong)} is loaded and no parameter, or not loaded")


def every_tensor_changes_what_is_computed(subject: Subject) -> None:
    """With other numbers in any of them, some operation has another result.

    With little effort every other tensor is tried: of an odd number in a layer, all in two layers.
    """
    stride = 1 if subject.effort >= 1 else 2
    for case in cases_of(subject):
        prompt = case.prompt(length=9)
        before = _results(case, case.tensors, prompt)
        others = random_tensors(case.empty().parameters(), seed=1)
        for name, other in list(others.items())[::stride]:
            if _results(case, {**case.tensors, name: other}, prompt) == before:
                raise PromiseBroken(f"{case}: {name} is loaded, and changes nothing")


def _results(
    case: Case, tensors: Mapping[str, Tensor], prompt: Sequence[int]
) -> list[tuple[str, float]]:
    model = case.loaded(tensors)
    runner = HandRunner(model)
    runner.fill([(0, prompt)])
    with watched(model) as calls:
        runner.direct()
    return calls.written


def a_missing_or_misshapen_tensor_is_named(subject: Subject) -> None:
    """What is optional may be absent as a whole: then the model runs."""
    for case in cases_of(subject):
        for spec in case.empty().parameters():
            without = {n: t for n, t in case.tensors.items() if n not in spec.sources}
            if spec.is_optional:
                HandRunner(case.loaded(without)).run([(0, case.prompt(length=3))])
            else:
                _require_refused(case, without, spec.sources[0], "is missing")
            source = spec.sources[-1]
            if len(spec.sources) > 1:
                part = {n: t for n, t in case.tensors.items() if n != source}
                _require_refused(case, part, source, "is missing")
            taller = torch.cat([case.tensors[source]] * 2)
            _require_refused(case, {**case.tensors, source: taller}, source, "is twice as tall")


def _require_refused(case: Case, tensors: Mapping[str, Tensor], name: str, what: str) -> None:
    try:
        case.loaded(tensors)
    except ModelLoadError as error:
        if name not in str(error):
            raise PromiseBroken(f"{case}: {name} {what}, and is not named: {error}") from error
        return
    raise PromiseBroken(f"{case}: {name} {what}, and the model is loaded")


def what_is_left_over_is_told(subject: Subject) -> None:
    """A tensor that belongs to nothing is not among those that are ignored in silence."""
    for case in cases_of(subject):
        strays = {name: torch.ones(1) for one in case.tensors for name in _strays(one)}
        checkpoint = MemoryCheckpoint(case.config, {**strays, **case.tensors})
        silent = strays.keys() - set(plan_load(case.empty(), checkpoint).unexpected)
        if silent:
            raise PromiseBroken(f"{case}: the tensor {min(silent)} is left over, and not told")


def _strays(name: str) -> tuple[str, str, str]:
    """Return names like a tensor's, of what no family has."""
    module, _, leaf = name.rpartition(".")
    return f"{module}.stray_{leaf}", f"{module}.lora_A.{leaf}", f"{name}_scale"
