"""Random traces of what an allocator is asked, beside a model of the memory that it hands out.

Knows groups of layers and calls. Does not know what is seen on the way: `Memory` does.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from octavo.interfaces.allocator import AllocatorContext
from octavo.interfaces.eviction import Eviction
from octavo.interfaces.executor import CacheGroup
from octavo.testing.allocator_model import MAX_LEN, SIZE, Act, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.interfaces.allocator import Allocator
    from octavo.testing.searching import Story

FULL, WINDOW, WIDE, STATE = CacheGroup(), CacheGroup(4), CacheGroup(7), CacheGroup(1)
GROUPS: Mapping[str, tuple[CacheGroup, ...]] = MappingProxyType(
    {
        "one group": (FULL,),
        "a window": (WINDOW,),
        "a state": (STATE,),
        "full and window": (FULL, WINDOW),
        "state and full": (STATE, FULL),
        "two windows": (WINDOW, WIDE),
        "full, window and state": (FULL, WIDE, STATE),
    }
)
TIGHT, ROOMY = 26, 600


class Plan(NamedTuple):
    """Groups by name, how many blocks, whether prefixes are cached, and the calls."""

    groups: str
    num_blocks: int
    is_caching: bool
    acts: list[Act]


_ACTIONS = (
    "start", "start", "start", "commit", "commit", "commit", "grow", "grow", "roll_back", "free",
    "free", "reset",
)  # fmt: skip


def plans(groups: tuple[str, ...]) -> st.SearchStrategy[Plan]:
    """Return random traces for allocators that serve such groups."""
    act = st.builds(
        Act,
        st.sampled_from(_ACTIONS),
        st.integers(0, 5),
        st.integers(1, 16),
        st.integers(0, 40),
        st.sampled_from([None, None, "salt", "other"]),
    )
    acts = st.one_of(
        st.lists(act, min_size=1, max_size=12), st.lists(act, min_size=12, max_size=50)
    )
    return st.builds(
        Plan,
        st.sampled_from(groups),
        st.sampled_from([TIGHT, ROOMY]),
        st.sampled_from([True, True, True, False]),
        acts,
    )


class _Recorded(Eviction):
    """An eviction order whose choices are written down."""

    def __init__(self, eviction: Eviction) -> None:
        super().__init__()
        self.evicted: list[int] = []
        self._eviction = eviction

    def add(self, block_id: int) -> None:
        """Pass it on."""
        self._eviction.add(block_id)

    def remove(self, block_id: int) -> None:
        """Pass it on."""
        self._eviction.remove(block_id)

    def pop(self) -> int:
        """Write down which block goes."""
        self.evicted.append(self._eviction.pop())
        return self.evicted[-1]

    def __len__(self) -> int:
        return len(self._eviction)


def play(
    make: Callable[[AllocatorContext], tuple[Allocator, bool]],
    eviction: Eviction,
    plan: Plan,
    story: Story,
) -> None:
    """Play a trace on a fresh allocator, which `make` returns with whether it shares prefixes."""
    recorded = _Recorded(eviction)
    context = AllocatorContext(
        num_blocks=plan.num_blocks + 1,
        block_size=SIZE,
        max_model_len=MAX_LEN,
        enable_prefix_caching=plan.is_caching,
        eviction=recorded,
        groups=GROUPS[plan.groups],
    )
    caching = "on" if plan.is_caching else "off"
    story.tell(f"{plan.num_blocks} blocks of {SIZE} tokens, {plan.groups}, caching {caching}")
    allocator, is_sharing = make(context)
    memory = Memory(allocator, story, is_sharing and plan.is_caching, recorded.evicted)
    memory.look()
    for one in plan.acts:
        memory.act(one)
    memory.end()
