"""Declares a name that is taken, without saying that it replaces it."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="fcfs", target="octavo_duplicate:Fcfs")]


plugin = Plugin()
