"""Octavo beside other engines: the same work on the same machine, by turns, in one go.

`work`, `worker` and `engines` run under the Python of whichever engine is measured, and so need
nothing but that engine and the standard library. The rest needs octavo.
"""
