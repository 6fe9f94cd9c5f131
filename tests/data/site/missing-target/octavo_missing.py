"""Declares what cannot be imported."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [
            Component(name="gone", target="not_there_at_all:Gone", requires=("not-there>=1",)),
            Component(name="renamed", target="octavo_missing:Renamed"),
        ]


plugin = Plugin()
