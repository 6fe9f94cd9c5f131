"""The stock executors keep their promises, on a model of made-up weights."""

import pytest

from octavo.testing import ExecutorSuite


class TestInline(ExecutorSuite):
    component = "inline"
    sample = {"threads": 1}


class TestSimulated(ExecutorSuite):
    component = "simulated"
    options = {"num-blocks": 40, "vocab-size": 258, "fixed-ms": 10, "per-token-ms": 1}


@pytest.mark.full
class TestRanks(ExecutorSuite):
    component = "ranks"
    sample = {"tensor_parallel_size": 2}
