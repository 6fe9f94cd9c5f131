"""What is deprecated is told to whoever uses it, by component and distribution."""

from dataclasses import replace

import pytest

from octavo.config.resolve import resolve
from octavo.plugin.discovery import _HOOKS
from octavo.plugin.kinds import KINDS

TORCH = {"ops": "torch", "attention": "torch"}


@pytest.mark.parametrize("key", ["num-blocks", "num_blocks"])
def test_a_deprecated_option_names_its_component_and_what_to_say(sites, key):
    flags = {"executor": "simulated", f"executor.{key}": "9", "executor.fixed-ms": "3"}

    config = resolve(flags={**TORCH, **flags})

    assert config.notes == (
        (
            "the option 'num-blocks' of executor 'simulated' (octavo 0.1.0) is deprecated: "
            "say num-gpu-blocks-override, as for every executor"
        ),
    )


def test_a_deprecated_option_that_nobody_sets_is_not_told(sites):
    config = resolve(flags={**TORCH, "executor": "simulated", "executor.fixed-ms": "3"})

    assert config.notes == ()


def test_an_older_api_is_told_of_only_where_it_is_in_use(sites, monkeypatch):
    sites.add("older-api")
    kind = replace(KINDS["scheduler"], oldest_api=0)
    table = {**KINDS, "scheduler": kind}
    monkeypatch.setitem(_HOOKS, kind.hook, kind)
    monkeypatch.setattr("octavo.plugin.discovery.KINDS", table)
    monkeypatch.setattr("octavo.config.ageing.KINDS", table)

    assert resolve(flags=TORCH).notes == ()
    assert resolve(flags={**TORCH, "scheduler": "earlier"}).notes == (
        (
            "octavo-older-api 1.0: scheduler 'earlier' is written for api 0 of its kind, "
            "which is deprecated: this is 1"
        ),
    )
