"""The stock allocators and eviction orders keep their promises."""

from octavo.testing import AllocatorSuite, EvictionSuite


class TestPaged(AllocatorSuite):
    component = "paged"


class TestContiguous(AllocatorSuite):
    component = "contiguous"


class TestLru(EvictionSuite):
    component = "lru"
