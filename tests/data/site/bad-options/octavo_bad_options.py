"""Its options model lets unknown keys through."""

from pydantic import BaseModel

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [
            Component(
                name="loose",
                target="octavo_bad_options:Loose",
                options="octavo_bad_options:LooseOptions",
            )
        ]


plugin = Plugin()


class LooseOptions(BaseModel):
    speed: int = 1


class Loose:
    def __init__(self, options):
        self.options = options
