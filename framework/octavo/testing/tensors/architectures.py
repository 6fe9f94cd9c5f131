"""The promises of model families: M1 to M7, on tiny models of made-up weights.

`sample`: a config of a tiny model, as a `config.json` has it: two or three layers, 64 wide, its
vocabulary below 200. Or a list of such configs, the path of one, or a
`octavo.testing.tensors.model_cases.FamilySample`, which also says what has to be refused.

They run on the `torch` op set and attention. Knows configs, tensors and steps. Does not know any
family.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from octavo.errors import ModelLoadError
from octavo.execution.loader import load_parameters
from octavo.execution.recording import is_recordable
from octavo.interfaces.architecture import Architecture
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.suite import Suite
from octavo.testing.tensors import model_tensors
from octavo.testing.tensors.hand_runner import HandRunner
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo.testing.tensors.model_cases import (
    Case,
    asks_for_rotary,
    cases_of,
    family_sample,
    name_of,
    random_tensors,
    refusal_of,
    wrong_values,
)
from octavo.testing.tensors.transformers_logits import NotComparable, transformers_logits
from octavo.testing.tensors.watched_models import watched_closely

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.testing.subjects import Subject
    from octavo.testing.tensors.hand_runner import Chunk


def _fresh(subject: Subject) -> Architecture:
    return cases_of(subject)[0].empty()


promises = Promises("architecture", Architecture, _fresh)

#: of the largest logit: what float32 allows where sums are made in another order
_TOLERANCE = 2e-5
#: of another implementation, whose operations differ
_TOLERANCE_OF_OTHERS = 1e-4
_CUTS = (1, 13, 31)


def _require_close(got: Tensor, wanted: Tensor, limit: float, what: str) -> None:
    """Raise PromiseBroken unless rows of logits are as near as `limit` of the largest."""
    error = (got.double() - wanted.double()).abs().amax(-1)
    allowed = limit * max(1.0, float(wanted.abs().max()))
    if not bool((error <= allowed).all()):
        row = int((~(error <= allowed)).nonzero()[0])
        raise PromiseBroken(
            f"{what}: the logits at position {row} are off by {float(error[row]):.2g}, "
            f"of {allowed:.2g} at most"
        )


def _prefill(model: Architecture, prompt: Sequence[int]) -> Tensor:
    return HandRunner(model).run([(0, prompt)])[0]


@promises.keeps("M1")
def its_logits_are_those_of_transformers(subject: Subject) -> str | None:
    """Or those of the sample's own definition, for a family that transformers does not have."""
    definition, reasons = family_sample(subject).definition, []
    for case in cases_of(subject):
        prompt = case.prompt()
        try:
            if definition is not None:
                tensors = case.tensors
                wanted = definition(case.config, tensors, prompt)
            else:
                tensors, wanted = transformers_logits(case, prompt)
        except NotComparable as error:
            reasons.append(str(error))
            continue
        got = _prefill(case.loaded(tensors), prompt)
        _require_close(got, wanted, _TOLERANCE_OF_OTHERS, f"{case}, beside its definition")
    return f"not comparable: {'; '.join(dict.fromkeys(reasons))}" if reasons else None


promises.keeps("M2")(model_tensors.every_tensor_makes_one_parameter)
promises.keeps("M2")(model_tensors.every_tensor_changes_what_is_computed)
promises.keeps("M2")(model_tensors.a_missing_or_misshapen_tensor_is_named)
promises.keeps("M2")(model_tensors.what_is_left_over_is_told)


@promises.keeps("M3")
def a_prefill_is_a_shorter_one_and_decodes(subject: Subject) -> None:
    """Wherever it is cut, in whatever blocks."""
    for case in cases_of(subject):
        prompt = case.prompt()
        whole = _prefill(case.loaded(), prompt)
        cuts = _CUTS if subject.effort >= 1 else _CUTS[1:2]
        for cut in (one for one in cuts if one < len(prompt)):
            runner = HandRunner(case.loaded(), seed=cut)
            pieces = runner.run([(0, prompt[:cut])])
            pieces += [runner.run([(0, [token])])[0] for token in prompt[cut:]]
            what = f"{case}, a prefill of {cut} and then decodes"
            _require_close(torch.cat(pieces), whole, _TOLERANCE, what)


@promises.keeps("M4")
def only_ops_and_attention_are_called(subject: Subject) -> None:
    """Nothing of torch beside them, in a prefill or a decode: no operation, no new tensor."""
    for case in cases_of(subject):
        model = case.loaded()
        runner = HandRunner(model)
        for chunk in (case.prompt(length=7), [1]):
            runner.fill([(0, chunk)])
            with watched_closely(model) as calls:
                runner.direct()
            if calls.strays:
                raise PromiseBroken(f"{case}: a forward pass calls {calls.strays[0]} by itself")
            if not calls.calls:
                raise PromiseBroken(f"{case}: a forward pass calls none of the handed operations")


@promises.keeps("M4")
def a_replay_has_the_same_bits(subject: Subject) -> str | None:
    """Of a recorded step, with other counts, lengths, tables and rows."""
    for case in cases_of(subject):
        replayed, direct = HandRunner(case.loaded()), HandRunner(case.loaded())
        if not is_recordable(replayed.architecture):
            return "it declares that its steps cannot be recorded"
        steps = _steps(case)
        for number, logits in enumerate(replayed.run_recorded(steps)):
            for ours, theirs in zip(logits, direct.run(steps[number]), strict=True):
                if not torch.equal(ours, theirs):
                    raise PromiseBroken(
                        f"{case}: step {number}, replayed from the record of step 0, has other "
                        f"logits than the step itself, by {float((ours - theirs).abs().max()):.2g}"
                    )
    return None


def _steps(case: Case) -> list[list[Chunk]]:
    """Return steps of prefills, chunks and decodes of four sequences, fewer and more each."""
    a, b, c, d = (case.prompt(seed) for seed in range(4))
    return [
        [(0, a[:5]), (2, c[:1])],
        [(1, b[:30]), (0, a[5:6]), (2, c[1:20]), (3, d[7:9])],
        [(0, a[6:7])],
        [(2, c[20:21]), (1, b[30:31]), (0, a[7:8]), (3, d[9:10])],
    ]


@promises.keeps("M5")
def a_config_it_cannot_serve_is_refused(subject: Subject) -> str | None:
    """What the sample says is refused; an embedding of positions that nobody knows, too."""
    case, told = cases_of(subject)[0], []
    changes = list(family_sample(subject).refused)
    if asks_for_rotary(case):
        unknown = {"rope_type": "no-such-rope", "rope_theta": 10_000.0, "factor": 2.0}
        changes.append({"rope_parameters": unknown, "rope_scaling": unknown})
    for change in changes:
        error = refusal_of(case, change)
        if error is None:
            raise PromiseBroken(f"{case} with {change} is not refused")
        named = [key for key in (*change, "rope_type") if key in str(error)]
        if not named:
            raise PromiseBroken(f"the refusal of {change} names no key: {error}")
        told.append(error.headline)
    return told[0] if told else None


@promises.keeps("M5")
def a_config_may_hold_anything(subject: Subject) -> None:
    """A value of the wrong kind is fine where nobody reads it, and else a typed error."""
    for case in cases_of(subject):
        for key, value in wrong_values(case.config):
            try:
                model = case.empty({key: value})
                model.parameters()
                model.cache_specs()
            except ModelLoadError:
                continue  # in the words of the family's own names, or of those it translates to
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise PromiseBroken(f"{key} = {value!r} in the config raises {what}") from error


@promises.keeps("M5")
def it_serves_what_it_offers(subject: Subject) -> None:
    """The component's facts are the names in `architectures` that the class serves."""
    served, offered = set(subject.cls.served), set(subject.entry.component.offers)
    if offered and offered != served:
        raise PromiseBroken(f"it offers {sorted(offered)}, and serves {sorted(served)}")
    for case in cases_of(subject):
        if name_of(case.config) not in served:
            raise PromiseBroken(f"{name_of(case.config)} is not among what it serves: {served}")


@promises.keeps("M6")
def a_row_does_not_depend_on_its_batch(subject: Subject) -> None:
    """Alone or among others, in whatever order, prefills and decodes together."""
    for case in cases_of(subject):
        runner, got = HandRunner(case.loaded()), [list[torch.Tensor]() for _ in range(4)]
        steps = _steps(case)
        for step in steps:
            for (sequence, _), logits in zip(step, runner.run(step), strict=True):
                got[sequence].append(logits)
        for sequence, pieces in enumerate(got):
            tokens = [t for step in steps for one, chunk in step if one == sequence for t in chunk]
            alone = _prefill(case.loaded(), tokens)
            what = f"{case}, sequence {sequence} among others and alone"
            _require_close(torch.cat(pieces), alone, _TOLERANCE, what)


@promises.keeps("M7")
def models_share_nothing(subject: Subject) -> None:
    """Two models of other weights, by turns; neither configs nor tensors are changed."""
    case = cases_of(subject)[0]
    other = random_tensors(case.empty().parameters(), seed=2)
    steps = _steps(case)
    alone = [_all(HandRunner(case.loaded(tensors)), steps) for tensors in (case.tensors, other)]
    first, second = (HandRunner(case.loaded(tensors)) for tensors in (case.tensors, other))
    for number, step in enumerate(steps):
        for runner, wanted in ((first, alone[0]), (second, alone[1])):
            if not torch.equal(torch.cat(runner.run(step)), wanted[number]):
                raise PromiseBroken(f"{case}: step {number} is another beside a second model")
    given = json.loads(json.dumps(case.config))
    load_parameters(case.of(given), MemoryCheckpoint(given, case.tensors))
    if given != case.config:
        raise PromiseBroken(f"{case}: a model changes the config that it is given")


def _all(runner: HandRunner, steps: Sequence[Sequence[Chunk]]) -> list[Tensor]:
    return [torch.cat(runner.run(step)) for step in steps]


class ArchitectureSuite(Suite, promises=promises):
    """The tests of a model family, on configs of tiny models."""
