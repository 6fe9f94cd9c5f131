"""The dashboard in contrib/grafana asks only for what /metrics has."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.serving.metrics import ModelMetrics, ServerMetrics

DASHBOARD = Path(__file__).parents[3] / "contrib" / "grafana" / "octavo.json"
NAME = re.compile(r"(?:octavo|vllm):\w+")
SELECTOR = re.compile(r"\{([^{}]*)\}")


def dashboard():
    return json.loads(DASHBOARD.read_text())


def panels():
    return [one for one in dashboard()["panels"] if one["type"] != "row"]


def samples():
    """Return every series of a server, with its labels."""
    text = ServerMetrics([ModelMetrics("m")]).exposition().decode()
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("panel", panels(), ids=lambda one: one["title"])
def test_every_panel_asks_for_metrics_that_there_are(panel):
    there = samples()
    assert panel["description"]
    for target in panel["targets"]:
        names = NAME.findall(target["expr"])
        assert names
        assert [name for name in names if name not in there] == []
        for name in names:
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            grouped = re.findall(r"by \(([\w, ]+)\)", target["expr"])
            asked = {*shown, *(one.strip() for group in grouped for one in group.split(","))}
            assert asked - there[name] == set(), name


def test_every_panel_is_of_the_chosen_model_and_source():
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            selectors = SELECTOR.findall(target["expr"])
            assert set(selectors) == {'model_name=~"$model"'}
            assert len(selectors) == len(NAME.findall(target["expr"]))


def test_panels_do_not_overlap():
    cells = [
        (x, y)
        for panel in dashboard()["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_models_are_listed_by_a_metric_that_there_is():
    (variable,) = [one for one in dashboard()["templating"]["list"] if one["name"] == "model"]
    assert NAME.findall(variable["definition"])[0] in samples()


def test_every_metric_that_counts_is_shown():
    asked = {
        name for panel in panels() for t in panel["targets"] for name in NAME.findall(t["expr"])
    }
    shown = {re.sub(r"_(bucket|sum|count)$", "", name).partition(":")[2] for name in asked}
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in samples()}

    assert {name.partition(":")[2] for name in families} - shown == set()
