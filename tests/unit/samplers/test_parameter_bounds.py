"""Every number that a request may set for a stage has bounds, and within them stays finite."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from octavo.interfaces.sampler import SamplingRow
from octavo.plugin.files import import_target
from octavo.sampling_params import MIN_TEMPERATURE, SamplingParams
from octavo_plugins.samplers import plugin

COMPONENTS = {one.name: one for one in plugin.octavo_sampler_stages()}
#: what makes each stage do something, for the parameters that do not by themselves
ACTIVE = {
    "dry": {"dry_multiplier": 0.5},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "dynatemp": {"dynatemp_range": 0.6},
    "mirostat": {"mirostat": 2},
}
INF = -math.inf


def bounds_of(field):
    """Return the least and the largest value of a field; None where there is no such bound."""
    low = high = None
    for limit in field.metadata:
        if (least := getattr(limit, "ge", None)) is not None:
            low = least
        if (above := getattr(limit, "gt", None)) is not None:
            low = math.nextafter(above, math.inf)
        high = getattr(limit, "le", high)
    return low, high


NUMBERS = [
    pytest.param(component.name, name, bounds_of(field), id=name)
    for component in COMPONENTS.values()
    if component.params is not None
    for name, field in import_target(component.params).model_fields.items()
    if field.annotation in {int, float}
]


@pytest.mark.parametrize(("stage", "name", "bounds"), NUMBERS)
def test_every_number_has_two_finite_bounds(stage, name, bounds):
    del stage, name
    assert None not in bounds
    assert all(map(math.isfinite, bounds))


def rows_of_logits():
    torch.manual_seed(0)
    x = torch.randn(64) * 8
    masked, wide = x.clone(), x.clone()
    masked[::2] = INF
    wide[3], wide[5] = -1e9, 1e9
    return x, masked, wide, torch.zeros(64)


@pytest.mark.parametrize("temperature", [MIN_TEMPERATURE, 1.0, 2.0])
@pytest.mark.parametrize(("stage", "name", "bounds"), NUMBERS)
def test_no_bound_leads_to_infinity_or_to_a_warning(stage, name, bounds, temperature):
    """Warnings are errors here: numpy warns where numbers become too large."""
    for value, x in itertools.product(bounds, rows_of_logits()):
        args = {"mirostat": 1} | ACTIVE.get(stage, {}) | {name: value}
        params = SamplingParams(temperature=temperature, extra_args=args)
        pipeline = sorted(
            (import_target(COMPONENTS[one].target)() for one in (stage, "temperature")),
            key=lambda one: one.position,
        )
        output = [1, 2, 3, 1, 2]
        states = [one.new_state(SamplingRow(params, (1, 2, 3), output)) for one in pipeline]
        for _ in range(12):
            logits, row = x.clone(), SamplingRow(params, (1, 2, 3), output, uniform=lambda _: 0.0)
            for one, row.state in zip(pipeline, states, strict=True):
                one.apply(logits, row)
            assert not logits.isnan().any()
            assert math.isfinite(float(logits.max()))
            token_id = int(logits.argmax())
            for i, row.state in enumerate(list(states)):
                states[i] = pipeline[i].advance(row, logits, token_id)
            output = [*output, token_id]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-46, 1e-40, 9e-21])
def test_a_temperature_that_no_device_can_divide_by_is_greedy(temperature):
    assert SamplingParams(temperature=temperature).temperature == 0
    assert SamplingParams(temperature=MIN_TEMPERATURE).temperature == MIN_TEMPERATURE
