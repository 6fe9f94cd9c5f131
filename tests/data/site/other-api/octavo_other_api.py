"""Written for another version of the interface."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="later", target="octavo_other_api:Later", api=2)]


plugin = Plugin()
