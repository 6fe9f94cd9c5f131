"""The stock components of Octavo, one subpackage for each kind.

Each subpackage's `__init__` only declares (it imports nothing heavy); the modules beside it
implement. They reach the framework through the same entry points as anyone else's plugins.
"""
