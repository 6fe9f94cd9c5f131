"""Misspells a hook."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulrs(self):
        return [Component(name="never", target="octavo_misspelt:Never")]


plugin = Plugin()
