"""Declares a name that is taken, and says that it replaces it."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="fcfs", target="octavo_replaces:Fcfs", replaces="fcfs")]


plugin = Plugin()


class Fcfs:
    def __init__(self, options):
        self.options = options
