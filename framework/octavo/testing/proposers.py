"""The promises of proposers: D1 to D5.

Those that run beside a model, in the executor, are tried beside one: `sample` is then settings of
the engine, as `LLM` takes them, and names a "model" if they cannot draft for a tiny llama.

Knows token ids and requests. Does not know how any proposer guesses.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from octavo.interfaces.proposer import EngineProposer, Proposer
from octavo.testing.census import census
from octavo.testing.clocks import watched_calls
from octavo.testing.engine_traces import MODES, play, traces
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.searching import Story, for_all
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from octavo.testing.engine_traces import Trace
    from octavo.testing.invariants import Check
    from octavo.testing.subjects import Subject

promises = Promises("proposer", Proposer)

_BESIDE_A_MODEL = "octavo.testing.tensors.drafts"


@dataclass(slots=True)
class _View:
    """A request as a proposer sees it."""

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int


#: texts that repeat themselves now and then
_TEXTS = st.lists(
    st.sampled_from([[1, 2, 3, 4, 5, 6], [1, 2, 3, 9], [7], [8, 8, 8], [4, 5, 6, 7, 8]]),
    min_size=1,
    max_size=8,
).map(lambda parts: [token for part in parts for token in part])


def _is_engines(subject: Subject) -> bool:
    return issubclass(subject.cls, EngineProposer)


def _beside_a_model(check: str, subject: Subject) -> str | None:
    """Try a proposer of the executor; what does so needs torch, and is imported only here."""
    tried: Check = getattr(importlib.import_module(_BESIDE_A_MODEL), check)
    return tried(subject)


@promises.keeps("D1")
def the_same_tokens_give_the_same_drafts(subject: Subject) -> str | None:
    """At once or grown token by token, alone or among others, under any id."""
    if not _is_engines(subject):
        return _beside_a_model("drafts_are_those_of_a_fresh_start", subject)

    def body(texts: list[list[int]]) -> None:
        grown: EngineProposer = subject.build()
        with watched_calls(subject.cls.__module__) as calls:
            views = [_View(f"r{i}", text[:1], 1) for i, text in enumerate(texts)]
            last = [list[int]() for _ in texts]
            for end in range(1, max(map(len, texts)) + 1):
                for i, (view, text) in enumerate(zip(views, texts, strict=True)):
                    if end <= len(text):
                        view.token_ids[:] = text[:end]
                        last[i] = list(grown.propose(view, 8))
            for i, text in enumerate(texts):
                alone = list(subject.build().propose(_View("other", list(text), len(text)), 8))
                if alone != last[i]:
                    raise PromiseBroken(
                        f"after {text} it proposes {alone}, and {last[i]} when they came one by one"
                    )
        if calls:
            raise PromiseBroken(f"it calls {calls[0]}")

    for_all(subject, st.lists(_TEXTS, min_size=1, max_size=3), body, examples=60)
    return None


@promises.keeps("D2")
def there_are_never_more_drafts_than_wanted(subject: Subject) -> str | None:
    """For one request and step, whatever is asked for."""
    proposer: Proposer = subject.build()
    most = proposer.max_drafts
    if most < 0:
        raise PromiseBroken(f"max_drafts is {most!r}")
    if not isinstance(proposer, EngineProposer):
        return _beside_a_model("drafts_are_ids_and_not_too_many", subject)

    def body(case: tuple[list[int], int]) -> None:
        text, wanted = case
        drafts = list(subject.build().propose(_View("r", list(text), 1), wanted))
        limit = min(wanted, most)
        if len(drafts) > limit:
            raise PromiseBroken(f"{len(drafts)} drafts after {text}, of {limit} at most")
        if not all(isinstance(one, int) and one >= 0 for one in drafts):
            raise PromiseBroken(f"drafts after {text} are no token ids: {drafts}")

    for_all(subject, st.tuples(_TEXTS, st.integers(0, 9)), body, examples=80)
    return None


@promises.keeps("D3")
def forgetting_leaves_nothing_behind(subject: Subject) -> str | None:
    """And forgetting what is unknown is fine."""
    proposer: Proposer = subject.build()
    if not isinstance(proposer, EngineProposer):
        return _beside_a_model("rows_that_ended_leave_nothing", subject)
    proposer.forget("never seen")
    before = census(proposer)
    for number in range(20):
        text = [1, 2, 3, 4, 5, 6] * (number + 1)
        proposer.propose(_View(f"r{number}", text, 6), 4)
    for number in range(20):
        proposer.forget(f"r{number}")
    after = census(proposer)
    if after > before:
        raise PromiseBroken(
            f"20 requests came and were forgotten: it held {before} objects, and holds {after}"
        )
    proposer.forget("r0")
    return None


@promises.keeps("D4")
def a_request_is_not_changed(subject: Subject) -> str | None:
    """Its tokens are the engine's own list."""
    if not _is_engines(subject):
        return _beside_a_model("requests_are_not_changed", subject)

    def body(text: list[int]) -> None:
        view = _View("r", list(text), 1)
        drafts = subject.build().propose(view, 5)
        if view.token_ids != text or view.request_id != "r":
            raise PromiseBroken(f"propose changed the tokens {text} to {view.token_ids}")
        if drafts is view.token_ids:
            raise PromiseBroken("propose returned the request's own list")

    for_all(subject, _TEXTS, body, examples=40)
    return None


@promises.keeps("D5")
def it_changes_no_text(subject: Subject) -> str | None:
    """Random traces of requests, each of which gets the tokens that it gets alone."""
    if not _is_engines(subject):
        return _beside_a_model("the_text_is_the_same_beside_a_model", subject)
    modes = {name: one for name, one in MODES.items() if name.startswith("drafts")}

    def body(trace: Trace) -> None:
        mode, events = trace
        setup = replace(modes[mode], proposer=subject.build())
        for number in ("S1", "S4", "S5", "S6"):
            story = Story(number)
            story.tell(f"an engine in the mode '{mode}'")
            story.play(lambda story=story: _play(setup, events, story))  # type: ignore[misc]

    for_all(subject, traces(modes), body, examples=120)
    return None


def _play(setup: Any, events: Any, story: Story) -> None:
    play(setup, events, story)


class ProposerSuite(Suite, promises=promises):
    """The tests of a proposer."""
