"""How long idle compute threads spin, before torch and its OpenMP runtime are loaded.

GNU OpenMP reads the environment once, when it is loaded. Its default is to spin for hundreds of
thousands of rounds at the end of each parallel region, some ten milliseconds on current
processors, so that a machine which has anything else to do stands still: beside other processes a
step was measured to take five to ten times as long as with a short spin.

Knows one environment variable. Does not know torch.
"""

from __future__ import annotations

import os

#: rounds of a pause instruction: tens of microseconds, then the thread yields
SPIN_ROUNDS = 1000
VARIABLE = "GOMP_SPINCOUNT"
_OTHERS = ("OMP_WAIT_POLICY",)


def shorten_spinning() -> None:
    """Set the spin count for this process, unless somebody has said how threads wait.

    Of no effect once torch is imported.
    """
    if not any(name in os.environ for name in (VARIABLE, *_OTHERS)):
        os.environ[VARIABLE] = str(SPIN_ROUNDS)
