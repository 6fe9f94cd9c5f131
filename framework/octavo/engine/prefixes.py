"""Requests that wait for a prefix which another is about to compute.

Knows requests' tokens and marks. Does not know blocks, budgets or policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine.request import Request


def is_prefix_coming(
    request: Request, num_hits: int, running: Iterable[Request], block_size: int
) -> bool:
    """Return whether a running request is about to compute the next block that is needed.

    Then the request waits for it: N requests with one prompt prefill once. `num_hits` tokens of
    the request are cached already.
    """
    end = num_hits + block_size
    if end >= len(request.token_ids) or not request.may_reuse:
        return False
    wanted, extra = request.token_ids[:end], request.table.extra
    return any(
        other.num_computed < end <= other.num_prompt_tokens
        and other.table.extra == extra
        and other.token_ids[num_hits:end] == wanted[num_hits:]
        and other.token_ids[:num_hits] == wanted[:num_hits]
        for other in running
    )
