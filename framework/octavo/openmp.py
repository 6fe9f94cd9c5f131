"""How threads of torch's OpenMP runtime wait for each other.

Knows the runtime's environment variables, which it reads once, when torch loads it. Does not
know torch.
"""

from __future__ import annotations

import os
import sys

_NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
#: About a millisecond on current x86. A twentieth of it lets a thread sleep in the gaps between the
#: parallel parts of a step, and waking it costs a quarter of the speed; half of it still costs 6 %.
#: The runtime's own default, fifteen times as long, is no faster alone, and beside a busy process
#: four times slower.
_SPINS = "20000"


def let_threads_sleep() -> None:
    """Make waiting threads spin briefly, then sleep. To be called before torch is imported.

    Threads that go on spinning take the cores from the very threads they wait for as soon as
    anything else runs: with four busy processes on two cores, loading SmolLM2 and 16 tokens took
    61 s, and 10 s this way. Nothing is changed if the user has set either variable, or if torch
    is there already.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _NAMES):
        os.environ["GOMP_SPINCOUNT"] = _SPINS
