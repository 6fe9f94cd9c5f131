"""Asks the proposer beside the model for drafts; its mistakes cost drafts, and nobody a request.

Knows proposers and the log. Does not know rows, models or how drafts are verified.
"""

from __future__ import annotations

import logging
from operator import index
from typing import TYPE_CHECKING

from octavo.faults import FAULTS, Fault, FaultLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.proposer import ExecutorProposer

logger = logging.getLogger(__name__)


class DraftDesk:
    """Stands before a proposer. What it does wrong is told once for each method and error."""

    def __init__(self) -> None:
        self._log = FaultLog(logger)

    def ask(
        self, proposer: ExecutorProposer, wanted: Sequence[tuple[int, int]]
    ) -> list[tuple[int, ...]]:
        """Return drafts for each row that is wanted: none for all when it fails."""
        try:
            given = [tuple(map(index, drafts)) for drafts in proposer.propose(wanted)]
            if len(given) != len(wanted):
                _refuse(f"it returned drafts for {len(given)} rows, not for {len(wanted)}")
        except FAULTS as error:
            self._log.tell(Fault.of(proposer, "propose", error))
            return [()] * len(wanted)
        return given

    def forget(self, proposer: ExecutorProposer, row: int) -> None:
        """Tell it that a row has ended, or begins anew."""
        try:
            proposer.forget(row)
        except FAULTS as error:
            self._log.tell(Fault.of(proposer, "forget", error))


def _refuse(message: str) -> None:
    raise ValueError(message)
