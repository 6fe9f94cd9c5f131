"""Eviction orders that people asked for: alone, and in the allocator under a scan."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from octavo.interfaces.allocator import AllocatorContext, BlockTable
from octavo.sampling_params import SamplingParams
from octavo_plugins.allocators.paged import PagedAllocator
from octavo_plugins.evictions.arc import Arc
from octavo_plugins.evictions.lfu import Lfu
from octavo_plugins.evictions.lru import Lru
from octavo_plugins.evictions.retention import Retention
from simulated_engines import made_up, make_engine, request, run

if TYPE_CHECKING:
    from octavo.interfaces.eviction import Eviction

ORDERS = (Lru, Lfu, Arc, Retention)


def filled(order: Eviction, *block_ids: int) -> Eviction:
    for block_id in block_ids:
        order.on_cached(block_id, f"content {block_id}", None)
        order.add(block_id)
    return order


def hit(order: Eviction, block_id: int, params: SamplingParams | None = None) -> None:
    order.remove(block_id)
    order.on_hit(block_id, params)
    order.add(block_id)


def popped(order: Eviction) -> list[int]:
    return [order.pop() for _ in range(len(order))]


def asking(priority: int, seconds: float | None = None) -> SamplingParams:
    asked = {"retention_priority": priority, "retention_s": seconds}
    return SamplingParams(extra_args={key: one for key, one in asked.items() if one is not None})


@pytest.mark.parametrize("order_class", ORDERS)
def test_E1_E2_each_candidate_goes_once(order_class):
    draw = random.Random(1)  # noqa: S311 - the same operations every time
    order, inside, number = order_class(), set(), 0
    for _ in range(2000):
        order.now_s += draw.random()
        action = draw.choice(["cached", "cached", "hit", "pop"])
        if action == "cached" and len(inside) < 30:
            number += 1
            order.on_cached(number, draw.randrange(40), asking(draw.randrange(100), 3.0))
            order.add(number)
            inside.add(number)
        elif action == "hit" and inside:
            block_id = draw.choice(sorted(inside))
            order.remove(block_id)
            order.on_hit(block_id, asking(draw.randrange(100)))
            order.add(block_id)
        elif action == "pop" and inside:
            inside.remove(order.pop())
        assert len(order) == len(inside)
    assert sorted(popped(order)) == sorted(inside)
    with pytest.raises(IndexError):
        order.pop()


@pytest.mark.parametrize("order_class", ORDERS)
def test_what_nobody_hit_goes_in_the_order_of_release(order_class):
    assert popped(filled(order_class(), 3, 1, 2)) == [3, 1, 2]


# ---------------------------------------------------------------------- lfu


def test_lfu_evicts_what_was_hit_least():
    order = filled(Lfu(), 1, 2, 3)
    for block_id in (1, 1, 2):
        hit(order, block_id)
    assert popped(order) == [3, 2, 1]


def test_lfu_counts_hits_of_blocks_in_use_and_forgets_them_with_the_content():
    order = Lfu()
    order.on_cached(1, "a", None)
    order.on_hit(1, None)  # while its owner still runs
    order.add(1)
    filled(order, 2)
    assert order.pop() == 2
    assert order.pop() == 1
    assert popped(filled(order, 1, 2)) == [1, 2]


# ---------------------------------------------------------------------- arc


def test_arc_keeps_what_was_seen_again_from_a_scan():
    order = filled(Arc(), 1, 2)
    hit(order, 1)
    hit(order, 2)
    filled(order, *range(10, 20))
    assert popped(order)[:10] == list(range(10, 20))


def test_arc_learns_from_what_comes_back():
    order = filled(Arc(), *range(4))
    hit(order, 3)
    assert [order.pop() for _ in range(3)] == [0, 1, 2]
    for block_id in (10, 11, 12):  # the same content in other blocks: seen again, and missed
        order.on_cached(block_id, f"content {block_id - 10}", None)
        order.add(block_id)
    assert order._target == 3.0
    filled(order, 20, 21, 22)
    assert order.pop() == 3  # those seen once have no more than their share now
    order.on_cached(30, "content 3", None)
    assert order._target == 2.0


def test_arc_remembers_as_many_names_as_it_had_blocks():
    order = Arc()
    for block_id in range(100):
        filled(order, block_id)
        if len(order) > 5:
            order.pop()
    assert sum(map(len, order._ghosts)) <= 12
    assert len(order._content) == len(order)


# ---------------------------------------------------------------------- retention


def test_retention_evicts_lower_priorities_first():
    order = Retention()
    for block_id, params in ((1, asking(90)), (2, None), (3, asking(0)), (4, asking(90))):
        order.on_cached(block_id, block_id, params)
        order.add(block_id)
    assert popped(order) == [3, 2, 1, 4]


def test_retention_ends_when_its_time_is_over():
    order = Retention()
    order.on_cached(1, "a", asking(90, 5.0))
    order.on_cached(2, "b", None)
    order.add(1)
    order.add(2)
    order.now_s = 4.9
    assert order.pop() == 2
    order.on_cached(3, "c", asking(50))
    order.add(3)
    order.now_s = 5.1
    assert popped(order) == [1, 3]


def test_the_last_request_that_asks_decides_on_retention():
    order = Retention()
    order.on_cached(1, "a", asking(90))
    order.on_cached(2, "b", None)
    order.add(1)
    order.add(2)
    hit(order, 1, SamplingParams())
    hit(order, 2, asking(95))
    assert popped(order) == [1, 2]


# ---------------------------------------------------------------------- in the allocator


def play(order: Eviction, accesses: list[list[int]], num_blocks: int) -> float:
    """Return the share of tokens that hit while prompts come one after the other."""
    context = AllocatorContext(
        num_blocks=num_blocks,
        block_size=4,
        max_model_len=4096,
        enable_prefix_caching=True,
        eviction=order,
    )
    allocator = PagedAllocator(None, context)
    num_hits = num_all = 0
    for prompt in accesses:
        table = BlockTable.of()
        hits = allocator.match(table, prompt)
        assert allocator.allocate(table, len(prompt), num_hit_tokens=hits)
        allocator.commit(table, prompt, len(prompt))
        allocator.free(table)
        num_hits, num_all = num_hits + hits, num_all + len(prompt)
    return num_hits / num_all


def scans() -> list[list[int]]:
    """Return prompts of 8 users that come again and again, with long ones in between."""
    draw = random.Random(3)  # noqa: S311 - the same prompts every time
    accesses = []
    for number in range(400):
        accesses.append(made_up(f"user{draw.randrange(8)}", 33))
        if number % 10 == 9:
            accesses.append(made_up(f"scan{number}", 240))
    return accesses


def test_a_scan_pushes_out_what_is_hit_often_with_lru_only():
    shares = {order.__name__: play(order(), scans(), 90) for order in (Lru, Lfu, Arc)}
    assert shares["Lfu"] > 1.15 * shares["Lru"]
    assert shares["Arc"] > 1.15 * shares["Lru"]


def test_what_is_to_be_kept_stays_until_its_time_is_over():
    engine = make_engine(num_blocks=40, eviction="retention", max_num_seqs=1)
    system = made_up("system", 32)

    def hits_after_a_flood(name: str) -> int:
        before = engine.stats().prefix_hits_tokens
        for number in range(4):
            engine.add(request(f"{name}{number}", 60, 2))
            run(engine)
        engine.add(request(name, [*system, 1], 2))
        run(engine)
        return engine.stats().prefix_hits_tokens - before

    engine.add(request("first", system, 2))
    run(engine)
    assert hits_after_a_flood("unasked") == 0
    engine.add(request("again", [*system, 2], 2, extra={"retention_priority": 80}))
    run(engine)
    assert hits_after_a_flood("kept") == 32
    extra = {"retention_priority": 80, "retention_s": 0.01}
    engine.add(request("short", [*system, 3], 2, extra=extra))
    run(engine)
    assert hits_after_a_flood("expired") == 0


@pytest.mark.parametrize("name", ["lru", "lfu", "arc", "retention"])
def test_all_orders_serve_an_engine_that_is_short_of_blocks(name):
    engine = make_engine(num_blocks=24, eviction=name)
    stems = [made_up(f"stem{number}", 12) for number in range(5)]
    for number in range(30):
        engine.add(request(f"r{number}", [*stems[number % 5], number], 6))
    run(engine)
    assert engine.stats().finished == {"length": 30}
    assert engine.stats().prefix_hits_tokens > 0
    assert engine.core.allocator.counts().used == 0
    assert engine.reset_prefix_cache()
