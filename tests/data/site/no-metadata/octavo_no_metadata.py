"""A plugin that works, of a distribution that was half removed: it has no METADATA."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="nameless", target="octavo_no_metadata:Nameless")]


plugin = Plugin()


class Nameless:
    def __init__(self, options):
        self.options = options
