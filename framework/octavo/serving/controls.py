"""What operators ask of an engine process, beside requests: two messages of the protocol.

Knows messages. Does not know who asks or how an engine does it.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Action(Enum):
    """What an engine is to do at once."""

    FREEZE = "freeze"  # no step until it thaws; what runs stays where it is
    THAW = "thaw"
    RESET_CACHE = "reset-cache"  # forget prefixes; done only if no block is in use


class Control(msgspec.Struct, tag="control"):
    """Do this between two steps; answered by `Controlled`."""

    number: int
    action: Action


class Controlled(msgspec.Struct, tag="controlled"):
    """Whether it could be done as it was asked for."""

    number: int
    is_done: bool
