"""Exposes the class where an instance is meant."""

from octavo.hookspecs import OctavoSpecs


class Plugin(OctavoSpecs):
    """No hooks."""


plugin = Plugin
