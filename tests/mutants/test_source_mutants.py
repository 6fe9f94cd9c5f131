"""Stock components whose sources are changed by machine: the kit alone must notice most changes.

What may survive stands in `accepted_survivors.json`, each with the reason: it changes nothing that
can be seen from outside, or only how fast something is.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mutated_components import SURVIVED, Part, Target, every_kth, fates, sample_of, unchanged
from source_mutations import Mutation, mutations

ACCEPTED = json.loads((Path(__file__).parent / "accepted_survivors.json").read_text())
LEAST_KILLED = 0.85
STAGES = {
    "allowed-ids": "AllowedIds",
    "bad-words": "BadWords",
    "logit-bias": "LogitBias",
    "min-k": "MinK",
    "min-p": "MinP",
    "min-tokens": "MinTokens",
    "penalties": "Penalties",
    "temperature": "Temperature",
    "top-k": "TopK",
    "top-p": "TopP",
    "typical-p": "TypicalP",
}
TEXT = ("json_machine", "marks", "turn_teller", "turn_scanner", "call_scanner", "reasoning_scanner")
PARSERS = ("parameters", "hermes", "think", "qwen3_coder", "phi4_mini_json", "gpt_oss", "pythonic")
FAMILIES = {
    "hermes": "Hermes",
    "think": "Think",
    "qwen3-coder": "Qwen3Coder",
    "phi4-mini-json": "Phi4MiniJson",
    "gpt-oss": "GptOss",
    "llama4-pythonic": "Llama4Pythonic",
}
CORE = Part(
    "core",
    (
        "octavo.engine.budget",
        "octavo.engine.drafting",
        "octavo.engine.prefixes",
        "octavo.engine.queues",
        "octavo.engine.scheduling",
    ),
    (Target("scheduler", "SchedulingCore"),),
    effort=1,
    cpu_limit_s=100,
)
PARTS = [
    Part(
        "allocator",
        ("octavo_plugins.allocators.keys", "octavo_plugins.allocators.paged"),
        (Target("allocator", "PagedAllocator", "paged"),),
    ),
    CORE,
    Part(
        "stages",
        ("octavo_plugins.samplers.live_tokens", "octavo_plugins.samplers.stages"),
        tuple(Target("sampler-stage", cls, name) for name, cls in STAGES.items()),
        users=("octavo_plugins.samplers.truncation",),
    ),
    Part(
        "parsers",
        (
            *(f"octavo.text.{name}" for name in TEXT),
            *(f"octavo_plugins.parsers.{name}" for name in PARSERS),
        ),
        tuple(Target("parser", cls, name) for name, cls in FAMILIES.items()),
    ),
]


def names_of(module: str, one: Mutation) -> set[str]:
    """Return what a change may be called in the list of accepted ones."""
    name = module.rpartition(".")[2]
    return {f"{name}.{one.key}", f"{name}.{one.exact_key}"}


def killed_share(part: Part, most: int) -> tuple[float, list[str]]:
    """Return the share of those that matter which is killed, and the survivors among these."""
    chosen = [
        (module, one)
        for module, one in sample_of(part, most)
        if not names_of(module, one) & set(ACCEPTED)
    ]
    every = list(fates(part, chosen))
    left = [str(one) for one in every if one.verdict == SURVIVED]
    return 1 - len(left) / len(every), left


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "part", [one for one in PARTS if one is not CORE], ids=lambda one: one.name
)
def test_the_kit_notices_most_changes(part):
    share, left = killed_share(part, 60)
    print(f"{part.name}: {share:.0%} killed; survivors:", *left, sep="\n  ")  # noqa: T201
    assert share >= LEAST_KILLED, "\n".join(left)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("one_thread")
def test_the_kit_notices_most_changes_of_the_core_before_any_is_accepted():
    verdict, took_s = unchanged(CORE)
    assert verdict == SURVIVED  # else whatever is changed would seem to be noticed
    assert took_s < CORE.cpu_limit_s / 10
    every = list(fates(CORE, every_kth(CORE, 52)))
    left = [one for one in every if one.verdict == SURVIVED]
    share = 1 - len(left) / len(every)
    print(f"core: {share:.0%} of {len(every)} killed; survivors:", *left, sep="\n  ")  # noqa: T201
    assert share >= LEAST_KILLED
    assert [
        str(one) for one in left if not names_of(one.module, one.mutation) & set(ACCEPTED)
    ] == []


def test_what_is_accepted_can_still_be_made():
    keys = {
        name
        for part in PARTS
        for module, one in sample_of(part, None)
        for name in names_of(module, one)
    }
    assert sorted(set(ACCEPTED) - keys) == []
    assert all(len(reason) > 10 for reason in ACCEPTED.values())


def test_a_change_that_is_plainly_wrong_is_noticed():
    part = PARTS[0]
    module, one = next(
        (module, one)
        for module, one in sample_of(part, None)
        if one.key == "PagedAllocator.counts: self._total - free -> self._total + free"
    )
    (fate,) = fates(part, [(module, one)])
    assert fate.verdict.startswith("killed by A1")


def test_changes_are_small_and_leave_the_source_alone():
    source = "def f(a: int = 3) -> bool:\n    '''It.'''\n    return a + 1 < 2 and not a"
    assert [(one.before, one.after) for one in mutations(source)] == [
        ("a + 1 < 2 and (not a)", "a + 1 < 2 or not a"),
        ("a + 1 < 2", "a + 1 <= 2"),
        ("a + 1", "a - 1"),
        ("1", "2"),
        ("1", "0"),
        ("2", "3"),
        ("2", "1"),
        ("not a", "a"),
    ]
