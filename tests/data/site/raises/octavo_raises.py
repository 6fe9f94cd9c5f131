"""A plugin that raises while it declares."""

from octavo.hookspecs import OctavoSpecs


class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        message = "no device"
        raise RuntimeError(message)


plugin = Plugin()
