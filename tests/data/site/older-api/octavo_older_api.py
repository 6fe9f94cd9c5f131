"""Written for a version of the interface that came before."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="earlier", target="octavo_older_api:Earlier", api=0)]


plugin = Plugin()


class Earlier:
    def __init__(self, options):
        self.options = options
