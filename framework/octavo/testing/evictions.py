"""The promises of eviction orders: E1 to E5.

Knows the interface. Does not know allocators, but for the stock one that an order serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from octavo.interfaces.eviction import Eviction
from octavo.testing import allocator_traces
from octavo.testing.allocator_traces import GROUPS, Plan, plans
from octavo.testing.clocks import watched_calls
from octavo.testing.elsewhere import is_same_elsewhere
from octavo.testing.eviction_crowds import CROWDS, popped_of_crowd, told_of_crowds
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.searching import Story, for_all, keep
from octavo.testing.subjects import stock
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.interfaces.allocator import Allocator, AllocatorContext
    from octavo.testing.subjects import Subject

promises = Promises("eviction", Eviction)

_MANY = 100
#: what is done with a block; `pop` takes none
_CALL = st.tuples(st.sampled_from(["add", "add", "add", "remove", "pop"]), st.integers(1, 9))
_CALLS = st.one_of(
    st.lists(_CALL, min_size=1, max_size=12), st.lists(_CALL, min_size=12, max_size=60)
)


def _run(subject: Subject, number: str) -> Callable[[list[tuple[str, int]], Story], None]:
    """Return the run of calls that sees one number: a wrong length need not mean wrong blocks."""

    def run(calls: list[tuple[str, int]], story: Story) -> None:
        eviction: Eviction = subject.build()
        there: set[int] = set()
        for action, block in calls:
            if action == "add" and block not in there:
                story.tell(f"add {block}")
                eviction.add(block)
                there.add(block)
            elif action == "remove" and block in there:
                story.tell(f"remove {block}")
                eviction.remove(block)
                there.remove(block)
            elif action == "pop" and there:
                popped = eviction.pop()
                story.tell(f"pop: {popped}")
                story.see("E1", popped in there, f"popped {popped}, and candidates are {there}")
                there.discard(popped)
            if number == "E2":
                story.see(
                    "E2",
                    len(eviction) == len(there),
                    f"its length is {len(eviction)}, of {len(there)}",
                )
        rest = list(_popped(eviction))
        story.see("E1", sorted(rest) == sorted(there), f"left were {there}, and popped are {rest}")

    return run


def _popped(eviction: Eviction) -> Iterator[int]:
    """Yield what is popped until there is nothing, which there is in time."""
    for _ in range(_MANY):
        try:
            yield eviction.pop()
        except IndexError:
            return


@promises.keeps("E1")
def each_block_is_popped_once(subject: Subject) -> None:
    """Unless it was removed before."""
    keep(subject, "E1", _CALLS, _run(subject, "E1"), examples=200)


@promises.keeps("E1")
def each_of_many_blocks_is_popped_once(subject: Subject) -> None:
    """Of a few dozen or of a thousand, whatever their numbers."""
    for crowd in CROWDS:
        popped_of_crowd(subject, "E1", *crowd)


@promises.keeps("E2")
def its_length_is_the_number_of_candidates(subject: Subject) -> None:
    """After every call."""
    keep(subject, "E2", _CALLS, _run(subject, "E2"), examples=200)


@promises.keeps("E2")
def its_length_holds_with_many_blocks(subject: Subject) -> None:
    """After every call."""
    for crowd in CROWDS:
        popped_of_crowd(subject, "E2", *crowd)


@promises.keeps("E3")
def popping_nothing_is_an_index_error(subject: Subject) -> None:
    """When new, and when all were taken."""
    eviction: Eviction = subject.build()
    for when in ("that is new", "that was emptied"):
        try:
            popped = eviction.pop()
        except IndexError:
            pass
        except Exception as error:
            raise PromiseBroken(
                f"pop on one {when} raises {type(error).__name__}, not IndexError"
            ) from error
        else:
            raise PromiseBroken(f"pop on one {when} returns {popped!r}")
        eviction.add(1)
        eviction.add(2)
        eviction.remove(2)
        eviction.pop()


@promises.keeps("E4")
def the_same_calls_give_the_same_order(subject: Subject) -> None:
    """Twice the same calls, and neither a clock nor a random number is asked for."""

    def body(calls: list[tuple[str, int]]) -> None:
        orders = []
        for _ in range(2):
            with watched_calls(subject.cls.__module__) as seen:
                orders.append(_order(subject.build(), calls))
            if seen:
                raise PromiseBroken(f"it calls {seen[0]}")
        if orders[0] != orders[1]:
            raise PromiseBroken(f"the same calls popped {orders[0]}, then {orders[1]}: {calls}")

    for_all(subject, _CALLS, body, examples=50)


def _order(eviction: Eviction, calls: list[tuple[str, int]]) -> list[int]:
    there: set[int] = set()
    popped: list[int] = []
    for action, block in calls:
        if action == "add" and block not in there:
            eviction.add(block)
            there.add(block)
        elif action == "remove" and block in there:
            eviction.remove(block)
            there.remove(block)
        elif action == "pop" and there:
            popped.append(eviction.pop())
            there.discard(popped[-1])
    return popped + [eviction.pop() for _ in range(len(there))]


@promises.keeps("E4")
def another_process_gives_the_same_order(subject: Subject) -> None:
    """Where strings hash otherwise."""
    if not is_same_elsewhere(subject, told_of_crowds):
        raise PromiseBroken(
            "the same calls popped another order in another process: "
            "does it go by `hash`, by `id`, or by the order of a set?"
        )


@promises.keeps("E5")
def an_allocator_on_it_keeps_its_promises(subject: Subject) -> None:
    """The stock one, on random traces of calls."""

    def make(context: AllocatorContext) -> tuple[Allocator, bool]:
        return stock("allocator", "paged", context=context), True

    def run(plan: Plan, story: Story) -> None:
        allocator_traces.play(make, subject.build(), plan, story)

    def body(plan: Plan) -> None:
        for number in ("A1", "A3", "A5", "A10"):
            story = Story(number)
            story.play(lambda story=story: run(plan, story))  # type: ignore[misc]

    for_all(subject, plans(tuple(GROUPS)), body, examples=100)


class EvictionSuite(Suite, promises=promises):
    """The tests of an eviction order."""
