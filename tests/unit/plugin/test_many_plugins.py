"""With many plugins discovery imports each declaring module, and reads no file twice."""

import json
import os
import subprocess
import sys

import pytest

from many_plugins import discovery_ms, make_many_plugins

NUM = 50
_COUNTED = """
import collections, importlib.metadata, json, sys
import octavo.plugin.catalogue
from octavo.plugin.discovery import DiscoverySettings
octavo.plugin.catalogue.build_catalogue(DiscoverySettings(stock_only=True))
before, reads = set(sys.modules), collections.Counter()
read_text = importlib.metadata.PathDistribution.read_text
def counting(self, name):
    if "many" in str(self._path):
        reads[f"{self._path.name}/{name}"] += 1
    return read_text(self, name)
importlib.metadata.PathDistribution.read_text = counting
catalogue = octavo.plugin.catalogue.build_catalogue()
print(json.dumps({"imported": sorted(set(sys.modules) - before), "reads": reads,
                  "components": [one.name for one in catalogue.all("scheduler")]}))
"""


def test_each_declaring_module_is_imported_and_each_file_is_read_once(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(make_many_plugins(tmp_path, NUM))}

    done = subprocess.run(
        [sys.executable, "-c", _COUNTED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    found = json.loads(done.stdout)
    names = sorted(f"many_{n}" for n in range(NUM))
    assert found["imported"] == names
    assert {f"many-{n}" for n in range(NUM)} <= set(found["components"])
    assert found["reads"] == {
        f"octavo_{name}-1.0.dist-info/{file}": 1
        for name in names
        for file in ("METADATA", "entry_points.txt")
    }


@pytest.mark.full
def test_fifty_plugins_are_discovered_in_no_time():
    assert discovery_ms(NUM) < 100  # 30 ms on an idle core; below 50 is what is wanted
