"""A class that is derived from a stock one, and passed as it is, has the stock one's options."""

import pytest

from octavo.plugin.build import build, load, load_options
from octavo.plugin.catalogue import build_catalogue
from octavo.plugin.discovery import DiscoverySettings
from octavo.plugin.kinds import KINDS
from octavo.plugin.options import NoOptions

STOCK = [
    entry
    for kind in KINDS
    for entry in build_catalogue(DiscoverySettings(stock_only=True)).all(kind)
    if load_options(entry) is not NoOptions
]


@pytest.mark.parametrize("entry", STOCK, ids=lambda entry: f"{entry.kind}:{entry.name}")
def test_the_class_names_its_options(entry):
    if entry.name == "triton":
        pytest.importorskip("triton")

    assert load(entry).Options is load_options(entry)


def test_a_derived_class_is_built_with_them():
    fair = load(next(one for one in STOCK if one.name == "fair"))
    catalogue = build_catalogue().with_class("scheduler", type("Fairer", (fair,), {}))

    assert build(catalogue.get("scheduler", "fairer"), {"by": "session_id"}).options.by == (
        "session_id"
    )
