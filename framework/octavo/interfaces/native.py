"""Operations that a library of kernels runs itself, many in one call.

An op set or an attention whose operations are calls of such a library says so for each of them;
where a recorded step has several in a row, they are joined, and nothing of Python runs between.
Knows that calls can be joined. Does not know any library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """What a call cannot do without, by the counts and lengths that its buffers hold now.

    `read_bytes`: packed weights, or pages of keys and values; activations, which caches hold, are
    not counted. `num_products`: multiplications with an addition. `format`: of what is read.
    """

    read_bytes: int
    num_products: int
    format: str


class NativeCall(ABC):
    """One operation, bound to its buffers.

    N1  making it has the bits of the operation that it stands for, joined or not.
    N2  counts, tables and what else changes between steps are read when it is made.
    """

    @abstractmethod
    def can_join(self, other: NativeCall) -> bool:
        """Return whether both may be made by one function."""

    @abstractmethod
    def join(self, others: Sequence[Self]) -> Callable[[], None]:
        """Return a function that makes this call and then the others, all of which can join."""

    def work(self) -> Work | None:
        """Return what it has to do now, for benchmarks; None where nobody has counted it."""
        return None
