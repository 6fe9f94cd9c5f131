"""The promises of allocators: A1 to A16.

Knows the interface, and traces of calls. Does not know how any allocator keeps its blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from octavo.errors import UnsupportedError
from octavo.interfaces.allocator import Allocator, AllocatorContext, BlockTable
from octavo.interfaces.executor import CacheGroup
from octavo.testing import allocator_orders, allocator_room, allocator_traces
from octavo.testing.allocator_traces import GROUPS, TIGHT, Plan, plans
from octavo.testing.engine_traces import MODES, play, traces
from octavo.testing.engines import EngineSetup, make_engine, request, run_all
from octavo.testing.invariants import PromiseBroken, Promises
from octavo.testing.searching import Story, for_all, keep
from octavo.testing.stub_executor import expected_output
from octavo.testing.subjects import stock
from octavo.testing.suite import Suite

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.testing.engine_traces import Trace
    from octavo.testing.subjects import Subject


def _context(**changes: Any) -> AllocatorContext:
    fields = {
        "num_blocks": TIGHT + 1,
        "block_size": 4,
        "max_model_len": 64,
        "enable_prefix_caching": True,
        "eviction": stock("eviction", "lru"),
    }
    return AllocatorContext(**{**fields, **changes})


promises = Promises("allocator", Allocator, lambda subject: subject.build(context=_context()))


def run_plan(subject: Subject) -> Callable[[Plan, Story], None]:
    """Return the run of a trace of calls, one for each subject."""

    def make(context: AllocatorContext) -> tuple[Allocator, bool]:
        return subject.build(context=context), subject.offers("prefix-caching")

    def run(plan: Plan, story: Story) -> None:
        allocator_traces.play(make, stock("eviction", "lru"), plan, story)

    found: Callable[[Plan, Story], None] = subject.memory.setdefault("plan", run)
    return found


def _keep(subject: Subject, number: str) -> None:
    groups = tuple(GROUPS) if subject.offers("cache-groups") else ("one group",)
    keep(subject, number, plans(groups), run_plan(subject), examples=400)


@promises.keeps("A1")
def the_counts_add_up(subject: Subject) -> None:
    """After every operation."""
    _keep(subject, "A1")


@promises.keeps("A2")
def a_failed_allocation_changes_nothing(subject: Subject) -> None:
    """Neither the table nor the counts."""
    _keep(subject, "A2")


@promises.keeps("A3")
def blocks_are_used_while_they_have_owners(subject: Subject) -> None:
    """As many are used as have owners."""
    _keep(subject, "A3")


@promises.keeps("A4")
def a_hit_has_equal_tokens_and_equal_extra(subject: Subject) -> None:
    """Also where unequal tokens and salts have equal hashes."""
    _keep(subject, "A4")


@promises.keeps("A5")
def what_is_in_use_is_not_evicted(subject: Subject) -> None:
    """The blocks of the living keep their content."""
    _keep(subject, "A5")


@promises.keeps("A6")
def all_freed_is_all_free(subject: Subject) -> None:
    """And can be had again."""
    _keep(subject, "A6")


@promises.keeps("A7")
def only_committed_tokens_are_hashed(subject: Subject) -> str | None:
    """What is computed and rolled back can be hit by nobody."""
    if not subject.offers("prefix-caching"):
        return "it shares nothing, and never hits"
    allocator: Allocator = subject.build(context=_context())
    for num_committed in range(13):
        table = BlockTable.of(1)
        tokens = [1000 * num_committed + place for place in range(12)]
        if not allocator.allocate(table, len(tokens)):
            raise PromiseBroken("12 tokens do not fit an empty cache")
        allocator.commit(table, tokens, num_committed)
        for end in (len(tokens), num_committed):
            if end < len(tokens):
                allocator.truncate(table, end)
            hit = allocator.match(BlockTable.of(1), [*tokens, 1])
            wanted = num_committed // 4 * 4
            if hit != wanted:
                raise PromiseBroken(
                    f"of 12 computed tokens {num_committed} are committed, in blocks of 4, and "
                    f"{hit} are hit, not {wanted}"
                )
        allocator.free(table)
        other = [*tokens[:num_committed], *[7] * (13 - num_committed)]
        if allocator.match(BlockTable.of(1), other) > num_committed:
            raise PromiseBroken(f"a hit goes past {num_committed} committed tokens")
    return None


@promises.keeps("A8")
def a_hit_leaves_a_token_to_compute(subject: Subject) -> None:
    """However long the prompt."""
    _keep(subject, "A8")


@promises.keeps("A9")
def a_hit_is_the_longest_of_all_groups(subject: Subject) -> str | None:
    """Where nothing is evicted, all that was named is found; other models are refused."""
    _keep(subject, "A9")
    if subject.offers("cache-groups"):
        return None
    try:
        subject.build(context=_context(groups=(CacheGroup(), CacheGroup(4))))
    except UnsupportedError as error:
        return str(error).splitlines()[0]
    raise PromiseBroken("it offers no cache-groups, and is built for a model that has two")


@promises.keeps("A10")
def can_allocate_tells_what_allocate_does(subject: Subject) -> None:
    """And asking changes nothing."""
    _keep(subject, "A10")


@promises.keeps("A11")
def the_null_block_is_never_handed_out(subject: Subject) -> None:
    """Each position that is to be written has a block."""
    _keep(subject, "A11")


@promises.keeps("A12")
def the_capacity_is_what_one_request_can_have(subject: Subject) -> None:
    """Also with blocks that are given back on the way."""
    groups: list[tuple[CacheGroup, ...]] = [(CacheGroup(),)]
    if subject.offers("cache-groups"):
        groups += [(CacheGroup(), CacheGroup(8)), (CacheGroup(), CacheGroup(1))]
    for one in groups:
        setup = _setup(
            subject, EngineSetup(num_blocks=30, max_model_len=400, groups=one, max_num_seqs=2)
        )
        engine = make_engine(setup)
        capacity = min(engine.core.allocator.capacity_tokens, setup.max_model_len)
        if capacity < setup.block_size:
            raise PromiseBroken(f"29 blocks of 4 tokens are empty, and hold {capacity} tokens")
        prompt = list(range(capacity - 3))
        try:
            outcome = run_all(engine, [request("r", prompt, 3)], max_steps=2000)["r"]
        except Exception as error:
            raise PromiseBroken(
                f"a request of {capacity} tokens, the capacity, does not run: {error}"
            ) from error
        if outcome.token_ids != expected_output(prompt, 3):
            raise PromiseBroken(f"a request of {capacity} tokens, the capacity, gets wrong tokens")


@promises.keeps("A13")
def trim_gives_back_what_is_out_of_reach(subject: Subject) -> None:
    """All of it, and nothing within reach."""
    _keep(subject, "A13")


@promises.keeps("A14")
def an_engine_computes_the_same_on_it(subject: Subject) -> None:
    """Random traces of requests, each of which gets the tokens that it gets alone."""
    names = [
        name
        for name, setup in MODES.items()
        if subject.offers("cache-groups") or setup.groups == (CacheGroup(),)
    ]

    def body(trace: Trace) -> None:
        mode, events = trace
        setup = _setup(subject, MODES[mode])
        if not subject.offers("prefix-caching"):  # it may need more blocks than a paged one
            setup = replace(setup, num_blocks=max(97, setup.num_blocks), max_model_len=96)
        for number in ("S2", "S4", "S5", "S6"):
            story = Story(number)
            story.tell(f"an engine in the mode '{mode}'")
            story.play(lambda story=story: _play(setup, events, story))  # type: ignore[misc]

    for_all(subject, traces({name: MODES[name] for name in names}), body, examples=80)


@promises.keeps("A15")
def what_is_held_is_enough_and_no_more(subject: Subject) -> None:
    """Before and after tokens are taken back."""
    _keep(subject, "A15")


def _of_room(subject: Subject, check: Callable[[allocator_room.Build], None]) -> str | None:
    """Run a written case on an allocator that serves all groups and shares prefixes."""
    for offer in ("prefix-caching", "cache-groups"):
        if not subject.offers(offer):
            return f"it does not offer {offer}"
    check(lambda context: subject.build(context=context))
    return None


@promises.keeps("A10")
def what_is_admitted_runs_and_what_fits_is_admitted(subject: Subject) -> str | None:
    """With every amount of room, hits of the cache and of the living, and steps of any length."""
    return _of_room(subject, allocator_room.check_admission)


@promises.keeps("A9")
def a_hit_has_no_gaps(subject: Subject) -> str | None:
    """However many blocks are evicted."""
    return _of_room(subject, allocator_room.check_hits_have_no_gaps)


@promises.keeps("A15")
def a_table_with_blocks_takes_no_hit(subject: Subject) -> str | None:
    """It has no more blocks than its tokens need."""
    return _of_room(subject, allocator_room.check_no_second_hit)


@promises.keeps("A7")
def a_table_can_be_used_again(subject: Subject) -> str | None:
    """After it was freed, and after tokens were taken back."""
    return _of_room(subject, allocator_room.check_tables_used_again)


@promises.keeps("A5")
def a_reset_forgets_what_is_in_use(subject: Subject) -> str | None:
    """Its owners keep it, and nobody else hits it."""
    return _of_room(subject, allocator_room.check_reset_forgets)


@promises.keeps("A13")
def trim_is_exact_for_blocks_of_any_size(subject: Subject) -> str | None:
    """Also for those of one token."""
    return _of_room(subject, allocator_room.check_trim_of_any_size)


@promises.keeps("A9")
def a_hit_goes_on_behind_what_nobody_reads(subject: Subject) -> str | None:
    """The blocks before a window may be gone."""
    return _of_room(subject, allocator_room.check_hits_go_on_behind_gaps)


@promises.keeps("A16")
def the_order_of_eviction_is_told(subject: Subject) -> str | None:
    """Once of each block, with its request's parameters."""
    return _of_room(subject, allocator_orders.check_the_order_is_told)


@promises.keeps("A16")
def the_order_of_eviction_is_told_what_blocks_hold(subject: Subject) -> str | None:
    """By something that is equal for equal tokens."""
    return _of_room(subject, allocator_orders.check_contents_are_told)


@promises.keeps("A16")
def the_order_of_eviction_is_obeyed(subject: Subject) -> str | None:
    """Also when it is an odd one."""
    return _of_room(subject, allocator_orders.check_the_order_is_obeyed)


def _play(setup: EngineSetup, events: Any, story: Story) -> None:
    play(setup, events, story)


def _setup(subject: Subject, setup: EngineSetup) -> EngineSetup:
    return replace(setup, allocator=lambda context: subject.build(context=context))


class AllocatorSuite(Suite, promises=promises):
    """The tests of an allocator."""
