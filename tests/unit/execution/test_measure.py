"""What is measured at start is the machine, not who else was at work on it meanwhile."""

from types import SimpleNamespace

import pytest

from octavo.execution.measure import measure_costs


class Machine:
    """A runner and its clock: a step takes what `cost_ms` says, times what `load` says now."""

    def __init__(self, cost_ms, load=lambda now_s: 1.0, max_model_len=4096):
        self.shape = SimpleNamespace(max_num_tokens=2048, max_model_len=max_model_len)
        self.now_s = 0.0
        self.num_runs = 0
        self._cost_ms = cost_ms
        self._load = load

    def run_dummy(self, num_tokens, context=0):
        self.num_runs += 1
        self.now_s += self._cost_ms(num_tokens, context) * self._load(self.now_s) / 1000

    def measure(self):
        self.now_s, self.num_runs = 0.0, 0
        return measure_costs(self, lambda: self.now_s)


def cost_ms(num_tokens, context=0):
    return 5 + 0.5 * num_tokens + num_tokens * context * 1e-4


def test_a_quiet_machine_is_measured_as_it_is_and_quickly():
    machine = Machine(cost_ms)

    costs = machine.measure()

    assert [size for size, _ in costs.points] == [1, 16, 128]
    for num_tokens in (1, 16, 128, 1000):
        assert costs.predict_ms(num_tokens) == pytest.approx(cost_ms(num_tokens))
        assert costs.predict_ms(num_tokens, num_tokens * 900) == pytest.approx(
            cost_ms(num_tokens, 900)
        )
    assert machine.num_runs == 1 + 3 * 4
    assert machine.now_s < 0.6


@pytest.mark.parametrize(
    "load",
    [
        lambda now_s: 8.0 if now_s < 0.9 else 1.0,  # another start on the machine, just ending
        lambda now_s: 1.0 if now_s < 0.2 else 8.0,  # ... or just beginning
        lambda now_s: 8.0 if now_s % 0.4 < 0.25 else 1.0,  # bursts
    ],
)
def test_other_work_on_the_machine_does_not_make_steps_dear_for_good(load):
    costs = Machine(cost_ms, load).measure()

    for num_tokens in (1, 16, 128, 1000):
        assert cost_ms(num_tokens) == pytest.approx(costs.predict_ms(num_tokens), rel=0.05)


def test_a_size_that_was_always_disturbed_costs_no_more_than_a_longer_one():
    costs = Machine(lambda n, context: 500 if n == 16 else cost_ms(n, context)).measure()

    assert costs.predict_ms(16) <= costs.predict_ms(128) == pytest.approx(cost_ms(128), rel=1e-3)
    assert costs.predict_ms(1) == pytest.approx(cost_ms(1))


def test_costs_rise_where_no_time_passes_at_all():
    costs = Machine(lambda _, __: 0.0).measure()

    assert costs.predict_ms(1) < costs.predict_ms(16) < costs.predict_ms(128)
    assert costs.per_context_ms == 0


def test_a_large_model_is_not_measured_for_long():
    machine = Machine(lambda n, context: 50 * cost_ms(n, context))

    costs = machine.measure()

    assert machine.num_runs == 1 + 4
    assert costs.predict_ms(1000) == pytest.approx(50 * cost_ms(1000))


@pytest.mark.parametrize("slowness", [100, 300, 900, 1400])
@pytest.mark.parametrize("first_touch_ms", [0, 8000])
def test_what_would_take_long_is_not_measured_but_guessed(slowness, first_touch_ms):
    """As triton's kernels under their interpreter: a second for each token, and more."""

    def slow_ms(num_tokens, context=0):
        extra_ms = first_touch_ms if machine.num_runs == 1 else 0
        return extra_ms + slowness * cost_ms(num_tokens, context)

    machine = Machine(slow_ms)
    costs = machine.measure()

    assert machine.now_s < 20 + first_touch_ms / 1000
    assert costs.points[0][0] == 1
    # the guess is dearer than the truth, and rises
    assert costs.predict_ms(1000) > slowness * cost_ms(1000) * 0.999
    if slowness < 1000:
        measured, _ = costs.points[-1]
        assert measured >= 2
        assert costs.predict_ms(measured) == pytest.approx(slowness * cost_ms(measured))


def test_a_dear_context_is_measured_after_fewer_tokens():
    def dear_context(num_tokens, context=0):
        return 10 * num_tokens + num_tokens * (context + num_tokens / 2) * 0.2

    machine = Machine(dear_context)
    costs = machine.measure()

    assert machine.now_s < 20
    assert costs.per_context_ms == pytest.approx(0.2)


def test_what_is_compiled_for_a_size_does_not_count():
    """As triton's kernels, at the first step of each size."""
    seen = set()

    def compiling(num_tokens, context=0):
        is_new = (num_tokens, context) not in seen
        seen.add((num_tokens, context))
        return cost_ms(num_tokens, context) + (3000 if is_new else 0)

    costs = Machine(compiling).measure()

    assert costs.predict_ms(1000) == pytest.approx(cost_ms(1000))
    assert costs.per_context_ms == pytest.approx(1e-4)


def test_a_single_step_may_take_any_time():
    machine = Machine(lambda n, _: 60_000 * n)
    costs = machine.measure()

    assert machine.num_runs == 2
    assert costs.predict_ms(4) == pytest.approx(4 * 60_000)


def test_a_context_of_one_token():
    costs = Machine(cost_ms, max_model_len=1).measure()

    assert costs.predict_ms(1) == pytest.approx(cost_ms(1))
    assert costs.predict_ms(2) == pytest.approx(2 * cost_ms(1))


def test_with_drafts_their_own_steps_are_timed():
    def dear_second(num_tokens, context=0):
        return cost_ms(num_tokens, context) + (10 if num_tokens > 1 else 0)

    machine = Machine(dear_second)
    costs = measure_costs(machine, lambda: machine.now_s, max_drafts=5)

    assert [size for size, _ in costs.points] == [1, 2, 6, 16, 128]
    assert costs.predict_ms(2) == pytest.approx(16)
    assert costs.predict_ms(4) == pytest.approx(17)
