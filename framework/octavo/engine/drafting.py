"""Asks the executor for drafts behind the tokens of a step, and makes room for them.

A draft model reads its own drafts before anybody has verified them, so that they need blocks one
step earlier than the model does.

Knows plans, blocks and how many drafts are worth it. Does not know budgets or policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.plan import RowAdvance
    from octavo.engine.request import Request
    from octavo.engine.scheduled_step import ScheduledStep
    from octavo.engine.speculation import Speculator
    from octavo.interfaces.allocator import Allocator


def ask_for_drafts(
    step: ScheduledStep, speculator: Speculator, allocator: Allocator, num_running: int
) -> None:
    """Say in the plan how many drafts the executor may make behind each token it samples."""
    is_executors = speculator.is_executors
    for request, advance in zip(step.requests, step.plan.advances, strict=True):
        if not advance.is_sampling or not (is_executors or request.source.grammar):
            continue
        wanted = speculator.num_wanted(request, num_running)
        # this step may give a token and all of its own drafts, and one more token comes of the
        # step that verifies those asked for here
        most = request.max_tokens - request.num_output_tokens - len(advance.drafts) - 2
        advance.num_drafts_wanted = max(0, min(wanted, most))
        if advance.num_drafts_wanted and is_executors:
            _make_room(request, advance, allocator)


def _make_room(request: Request, advance: RowAdvance, allocator: Allocator) -> None:
    """Add blocks for the drafts, if there are any left; else fewer are made."""
    table, num_sent = request.table, request.num_sent_blocks
    target = request.num_scheduled + advance.num_drafts_wanted
    if not allocator.allocate(table, target) or table.num_blocks == num_sent:
        return
    more = [ids[num_sent:] for ids in table.groups]
    sent = advance.new_block_ids or [()] * len(more)
    advance.new_block_ids = [[*a, *b] for a, b in zip(sent, more, strict=True)]
    request.num_sent_blocks = table.num_blocks
