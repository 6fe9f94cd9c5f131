"""`fair`: the bound of the paper on the real scheduling core, and what newcomers get."""

from __future__ import annotations

from itertools import combinations, count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo_plugins.schedulers.fair import OUTPUT_WEIGHT, Fair
from simulated_engines import SIZES, make_engine, request, run, started

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

SEATS = SIZES["max_num_seqs"]


class Shop:
    """Clients that always have requests waiting, from some step on; notes what each was served."""

    def __init__(self, engine: Engine, clients: dict[str, tuple[int, int, int]]) -> None:
        """Take for each client: prompt tokens, output tokens, the step in which it comes."""
        self.engine = engine
        self.clients = clients
        self.numbers = count()
        self.sizes: dict[str, int] = {}
        self.service = dict.fromkeys(clients, 0.0)
        self.history: list[dict[str, float]] = []  # after each step, of all who are there

    @property
    def bound(self) -> float:
        """2 U, with U = max(p L, q M): M is what the seats can hold of the longest requests."""
        longest = max(prompt for prompt, _, _ in self.clients.values())
        most = SEATS * max(prompt + output for prompt, output, _ in self.clients.values())
        return 2 * max(longest, OUTPUT_WEIGHT * most)

    def play(self, num_steps: int) -> None:
        for step in range(num_steps):
            waiting = [one.metadata["user"] for one in self.engine.core.waiting]
            for client, (prompt, output, since) in self.clients.items():
                for _ in range(6 - waiting.count(client) if step >= since else 0):
                    name = f"{client}-{next(self.numbers)}"
                    self.sizes[name] = prompt
                    self.engine.add(request(name, prompt, output, user=client))
            self.engine.step()
            self.note()
            here = [client for client in self.clients if step >= self.clients[client][2]]
            self.history.append({client: self.service[client] for client in here})

    def note(self) -> None:
        """Count what was computed since, by the positions of the tokens."""
        shares = self.engine.executor.shares
        for name, start, num_tokens in shares:
            num_output = max(0, start + num_tokens - max(start, self.sizes[name]))
            weighted = num_tokens - num_output + OUTPUT_WEIGHT * num_output
            self.service[name.split("-")[0]] += weighted
        shares.clear()

    def spread(self) -> float:
        """Return the largest difference of service of two clients over any time both are there."""
        worst = 0.0
        for one, other in combinations(self.clients, 2):
            leads = [had[one] - had[other] for had in self.history if {one, other} <= had.keys()]
            worst = max(worst, max(leads) - min(leads)) if leads else worst
        return worst


@pytest.mark.parametrize("depth", [0, 1])
@settings(max_examples=10, deadline=None)
@given(
    clients=st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(0, 60)),
        min_size=2,
        max_size=5,
    )
)
def test_backlogged_clients_are_served_alike_up_to_the_bound_of_the_paper(depth, clients):
    engine = make_engine("fair", depth=depth, num_blocks=600)
    (prompt, output, _), *others = clients
    sizes = [(prompt, output, 0), *others]
    shop = Shop(engine, {f"c{index}": one for index, one in enumerate(sizes)})
    shop.play(200)
    assert engine.stats().preemptions == 0
    assert shop.spread() <= shop.bound


def test_first_come_first_served_breaks_the_bound():
    """So that the test above can fail: one client's answers are thirty times as long."""
    clients = {"greedy": (4, 60, 0), "modest": (4, 2, 0)}
    spreads = {}
    for name in ("fcfs", "fair"):
        shop = Shop(make_engine(name, num_blocks=600), clients)
        shop.play(1500)
        spreads[name] = shop.spread() / shop.bound
    assert spreads["fcfs"] > 1.5
    assert spreads["fair"] < 0.5


def test_a_flood_does_not_keep_another_waiting():
    engine = make_engine("fair")
    for number in range(12):
        engine.add(request(f"flood-{number}", 8, 8, user="flood"))
    engine.add(request("one", 8, 8, user="other"))
    engine.step()
    assert started(engine)[:2] == ["flood-0", "one"]


def test_requests_of_one_client_start_in_the_order_in_which_they_came():
    engine = make_engine("fair", max_num_seqs=3)
    for number in range(9):
        engine.add(request(f"a{number}", 4, 8, user="a"))
    run(engine)
    assert started(engine) == [f"a{number}" for number in range(9)]


def test_within_one_step_clients_take_turns_by_what_their_prompts_take():
    engine = make_engine("fair", max_num_seqs=6)
    for number in range(3):
        engine.add(request(f"a{number}", 8, 8, user="a"))
    for number in range(3):
        engine.add(request(f"b{number}", 16, 8, user="b"))
    engine.step()
    assert started(engine) == ["a0", "b0", "a1", "a2", "b1", "b2"]


def test_who_comes_late_or_comes_back_saved_nothing_up():
    engine = make_engine("fair", max_num_seqs=1)
    for number in range(4):
        engine.add(request(f"old{number}", 8, 16, user="old"))
    while len(started(engine)) < 3:
        engine.step()
    for number in range(3):
        engine.add(request(f"new{number}", 8, 16, user="new"))
    run(engine)
    assert started(engine)[3:] == ["new0", "old3", "new1", "new2"]


def test_when_nobody_is_left_all_are_equal():
    engine = make_engine("fair", max_num_seqs=1)
    engine.add(request("a", 8, 100, user="a"))
    run(engine)
    engine.add(request("a1", 8, 8, user="a"))
    engine.add(request("b1", 8, 8, user="b"))
    engine.add(request("a2", 8, 8, user="a"))
    run(engine)
    assert started(engine) == ["a", "a1", "b1", "a2"]


def test_clients_may_be_sessions():
    engine = make_engine({"use": "fair", "by": "session_id"}, max_num_seqs=1)
    for number in range(3):
        engine.add(request(f"a{number}", 8, 8, user="u", session_id="a"))
    engine.add(request("b", 8, 8, user="u", session_id="b"))
    run(engine)
    assert started(engine) == ["a0", "b", "a1", "a2"]


def test_a_server_does_not_remember_clients_for_ever(monkeypatch):
    monkeypatch.setattr("octavo_plugins.schedulers.fair._MOST_CLIENTS", 20)
    engine = make_engine("fair", max_num_seqs=1)
    policy = engine.core.policy.policy
    assert isinstance(policy, Fair)
    for number in range(100):  # never idle: the next is there before one ends
        engine.add(request(f"r{number}", 2, 3, user=f"user{number}"))
        if number:
            engine.step()
    run(engine)
    assert len(policy._served) <= 122
