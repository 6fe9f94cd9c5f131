"""A sound third-party plugin."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [
            Component(
                name="steady",
                target="octavo_good_impl:Steady",
                options="octavo_good_impl:SteadyOptions",
                summary="for tests",
            )
        ]


plugin = Plugin()
