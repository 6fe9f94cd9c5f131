"""Its options and its parameters are no pydantic models."""

from dataclasses import dataclass

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        target = "octavo_no_model:Plain"
        return [
            Component(name="plain", target=target, options="octavo_no_model:PlainOptions"),
            Component(name="function", target=target, options="octavo_no_model:make_options"),
            Component(name="asking", target=target, params="octavo_no_model:PlainOptions"),
        ]


plugin = Plugin()


@dataclass
class PlainOptions:
    speed: int = 1


def make_options():
    return PlainOptions()


class Plain:
    def __init__(self, options):
        self.options = options
