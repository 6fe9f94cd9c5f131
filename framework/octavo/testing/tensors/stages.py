"""The promises of sampler stages: P1 to P9, on single rows of logits.

What makes a stage do something is found by trying values of the parameters that it declares; a
suite may give them: `sample = {"typical_p": 0.5}`, or a list of such.

Knows logits, parameters and histories. Does not know batches or stock stages.
"""

from __future__ import annotations

import copy
import math
import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.interfaces.sampler import SamplerStage
from octavo.sampling_params import SamplingParams
from octavo.testing.clocks import watched_calls
from octavo.testing.invariants import PromiseBroken, Promises, where_raised
from octavo.testing.searching import for_all
from octavo.testing.suite import Suite
from octavo.testing.tensors.stage_cases import (
    CANARY,
    CASES,
    INF,
    WIDTH,
    Case,
    applied,
    is_same,
    params_of,
    pipeline,
    plain,
    row_of,
    told,
)
from octavo.testing.tensors.stage_parameters import values_of_fields
from octavo.testing.tensors.stage_references import (
    asks,
    expected_logits,
    expected_number,
    expected_support,
)

if TYPE_CHECKING:
    from octavo.testing.subjects import Subject

promises = Promises("sampler-stage", SamplerStage)

#: how many tokens of prompt and of output: on both sides of what buffers and windows hold
LONG_HISTORIES = ((0, 150), (3, 260), (700, 520), (1100, 0), (2, 1300), (0, 4200))


@promises.keeps("P1")
def it_changes_its_row_of_logits_and_nothing_else(subject: Subject) -> None:
    """Neither neighbours in memory, nor what it is shown, nor itself."""

    def body(case: Case) -> None:
        stage: SamplerStage = subject.build()
        params = params_of(subject, case)
        memory = torch.full((3, WIDTH), CANARY)
        memory[1] = torch.tensor(case.logits)
        row = row_of(stage, params, case)
        before = copy.deepcopy((row.params, row.prompt_ids, row.output_ids, plain(row.state)))
        own = plain(vars(stage))
        stage.apply(memory[1], row)
        if (row.params, row.prompt_ids, row.output_ids, plain(row.state)) != before:
            raise PromiseBroken(f"apply changed what it was shown\n{told(case, params)}")
        if plain(vars(stage)) != own:
            raise PromiseBroken(f"apply changed the stage itself\n{told(case, params)}")
        if not torch.equal(memory[[0, 2]], torch.full((2, WIDTH), CANARY)):
            raise PromiseBroken(f"apply changed another row\n{told(case, params)}")

    for_all(subject, CASES, body, examples=50)


@promises.keeps("P2")
def an_inactive_stage_changes_nothing(subject: Subject) -> None:
    """With default parameters, and with those of others."""
    stage: SamplerStage = subject.build()
    case = Case([0.1 * i for i in range(WIDTH)], [1, 2, 1, 2], [1, 2], [], 0.0, 0)
    for params in (SamplingParams(), SamplingParams(extra_args={"of-another": 1})):
        if stage.is_active(params):
            raise PromiseBroken("is_active is True of parameters that ask for nothing")
        if stage.new_state(row_of(stage, params, case)) is not None:
            raise PromiseBroken("new_state makes a state for a request that does not ask for it")
        if not is_same(applied(stage, params, case), torch.tensor(case.logits)):
            raise PromiseBroken("apply changes logits of a request that does not ask for it")


@promises.keeps("P3")
def masked_tokens_stay_masked_and_one_is_left(subject: Subject) -> None:
    """Also where nearly all are masked."""

    def body(case: Case) -> None:
        params = params_of(subject, case)
        logits = applied(subject.build(), params, case)
        masked = torch.tensor(case.logits) == -INF
        if not bool((logits[masked] == -INF).all()):
            raise PromiseBroken(f"a masked token is -inf no more\n{told(case, params)}")
        if bool(logits.isnan().any()):
            raise PromiseBroken(f"there is NaN afterwards\n{told(case, params)}")

    for_all(subject, CASES, body, examples=80)


@promises.keeps("P3")
def long_histories_leave_a_token_too(subject: Subject) -> None:
    """Hundreds and thousands of tokens, prompt or output: all are not masked, nor is NaN made."""
    dice = random.Random(0)  # noqa: S311 - a seed, so that it is the same each time
    for which in range(8):
        for num_prompt, num_output in LONG_HISTORIES:
            prompt, output = (
                [dice.randrange(WIDTH) for _ in range(count)] for count in (num_prompt, num_output)
            )
            logits = [dice.uniform(-5, 5) for _ in range(WIDTH)]
            case = Case(logits, prompt, output, [], 0.3, which)
            params = params_of(subject, case)
            left = applied(subject.build(), params, case)
            if bool(left.isnan().any()) or bool((left == -INF).all()):
                short = case._replace(prompt=prompt[:9], output=output[-9:])
                raise PromiseBroken(
                    f"after {num_prompt} tokens of prompt and {num_output} of output "
                    f"there is no token left; cut to nine each:\n{told(short, params)}"
                )


@promises.keeps("P4")
def states_are_returned_and_never_changed(subject: Subject) -> None:
    """As a draft may be taken back."""

    def body(case: Case) -> None:
        stage: SamplerStage = subject.build()
        params = params_of(subject, case)
        own = plain(vars(stage))
        row = row_of(stage, params, case)
        states, copies = [row.state], [copy.deepcopy(plain(row.state))]
        for token_id in case.drawn:
            logits = torch.tensor(case.logits)
            stage.apply(logits, row)
            edited = logits.clone()
            row.state = stage.advance(row, logits, token_id)
            if not is_same(logits, edited):
                raise PromiseBroken(f"advance changed the logits\n{told(case, params)}")
            row.output_ids = (*row.output_ids, token_id)
            states.append(row.state)
            copies.append(copy.deepcopy(plain(row.state)))
        if [plain(state) for state in states] != copies:
            raise PromiseBroken(f"a state changed after it was returned\n{told(case, params)}")
        if plain(vars(stage)) != own:
            raise PromiseBroken(f"a request's state is kept in the stage\n{told(case, params)}")

    for_all(subject, CASES, body, examples=50)


@promises.keeps("P5")
def a_row_of_no_numbers_is_left_to_be_reported(subject: Subject) -> None:
    """NaN and infinity stay, and nothing is raised; so does a row with nothing left."""
    for bad in (math.nan, INF, None):
        values = [0.3 * (i % 7) for i in range(WIDTH)] if bad is not None else [-INF] * WIDTH
        if bad is not None:
            values[7] = bad
        for which in range(4):
            case = Case(values, [4, 5, 4], [5, 4], [], 0.0, which)
            params = params_of(subject, case)
            try:
                logits = applied(subject.build(), params, case)
            except Exception as error:
                raise PromiseBroken(
                    f"logits with {bad}: it raised {where_raised(error)}"
                ) from error
            is_reported = bool(logits.isnan().any() or (logits == INF).any())
            is_masked = bool(logits[7] == -INF)  # by what the request says of this token
            if bad is not None and not is_reported and not is_masked:
                raise PromiseBroken(f"{bad} among the logits is gone\n{told(case, params)}")
            if bad is None and not bool((logits == -INF).all()):
                raise PromiseBroken(f"a row with nothing left has tokens\n{told(case, params)}")


@promises.keeps("P6")
def the_same_row_gets_the_same_bits(subject: Subject) -> None:
    """From another instance, after other rows, and whatever dice were thrown elsewhere."""

    def body(case: Case) -> None:
        params = params_of(subject, case)
        used: SamplerStage = subject.build()
        other = case._replace(logits=case.logits[::-1], output=[3, 1, 2], which=case.which + 1)
        applied(used, params_of(subject, other), other)
        with watched_calls(subject.cls.__module__) as calls:
            first = applied(used, params, case)
        if calls:
            raise PromiseBroken(f"it calls {calls[0]}")
        torch.manual_seed(int(torch.randint(2**31, ())))
        np.random.seed(random.getrandbits(32))  # noqa: NPY002 - the state that a stage may not read
        second = applied(subject.build(), params, case)
        if not is_same(first, second):
            raise PromiseBroken(f"the same row, and other logits\n{told(case, params)}")

    for_all(subject, CASES, body, examples=50)


@promises.keeps("P7")
def drafts_change_no_state_until_they_are_committed(subject: Subject) -> None:
    """Rows behind drafts, some of which are taken back, beside one token at a time."""

    def body(case: Case) -> None:
        params = params_of(subject, case)
        drafts = case.drawn[:3]
        num_right = min(case.which % 4, len(drafts))
        drafted, plainly = (pipeline(subject, params, case) for _ in range(2))
        outputs = [[*case.output, *drafts[:i]] for i in range(len(drafts) + 1)]
        ahead = [drafted(output, i) for i, output in enumerate(outputs)]
        for i in range(num_right + 1):
            if not is_same(ahead[i], plainly(outputs[i], 0)):
                raise PromiseBroken(
                    f"behind {i} drafts {drafts[:i]} the logits are others than without drafts\n"
                    + told(case, params)
                )
            plainly.stages.commit([*drafts, 1][i : i + 1])
        drafted.stages.commit([*drafts, 1][: num_right + 1])
        after = [*case.output, *[*drafts, 1][: num_right + 1]]
        if not is_same(drafted(after, 0), plainly(after, 0)):
            raise PromiseBroken(
                f"after {num_right} of {len(drafts)} drafts the state is not that of the tokens\n"
                + told(case, params)
            )

    for_all(subject, CASES, body, examples=60)


@promises.keeps("P8")
def known_parameters_keep_their_meaning(subject: Subject) -> None:
    """Where it reads fields that cut, such as top_k or bad words, the right tokens are left."""
    names = subject.build().parameters

    def body(case: Case) -> None:
        params = params_of(subject, case)
        stage: SamplerStage = subject.build()
        wanted = expected_support(names, row_of(stage, params, case), case.logits)
        if wanted is None:
            return
        sure, possible = wanted
        number = expected_number(names, row_of(stage, params, case), case.logits)
        logits = applied(stage, params, case)
        left = set((logits > -INF).nonzero().flatten().tolist())
        if not sure <= left <= possible or number not in {None, len(left)}:
            raise PromiseBroken(
                f"left are the tokens {sorted(left)}, and should be {sorted(sure)}\n"
                + told(case, params)
            )

    for_all(subject, CASES, body, examples=150)


@promises.keeps("P8")
def known_parameters_are_heard(subject: Subject) -> None:
    """Values that are known to change logits ask for the stage."""
    stage: SamplerStage = subject.build()
    for output in ([3, 1], []):
        case = Case([3 - 0.1 * i for i in range(WIDTH)], [1, 2, 1], output, [], 0.0, 0)
        for params in values_of_fields(stage):
            row = row_of(stage, params, case)
            if asks(stage.parameters, row, case.logits) and not stage.is_active(params):
                raise PromiseBroken(f"is_active is False of what asks\n{told(case, params)}")


@promises.keeps("P9")
def known_parameters_change_logits_by_as_much_as_they_say(subject: Subject) -> None:
    """Where it reads a bias, the penalties or the temperature, and nothing else."""
    names = subject.build().parameters

    def body(case: Case) -> None:
        params = params_of(subject, case)
        stage: SamplerStage = subject.build()
        wanted = expected_logits(names, row_of(stage, params, case), case.logits)
        if wanted is None:
            return
        found = applied(stage, params, case).tolist()
        live = [i for i, x in enumerate(wanted) if x > -INF]
        shift = found[live[0]] - wanted[live[0]] if live and names == ("temperature",) else 0.0
        for i in live:
            if not math.isclose(found[i] - shift, wanted[i], rel_tol=1e-4, abs_tol=1e-4):
                raise PromiseBroken(
                    f"the logit of token {i} is {found[i]}, and should be {wanted[i] + shift}\n"
                    + told(case, params)
                )

    for_all(subject, CASES, body, examples=100)


class StageSuite(Suite, promises=promises):
    """The tests of a sampler stage."""
