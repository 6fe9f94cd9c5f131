"""The stock op sets and attention back ends keep their promises, those that can run here."""

import pytest

from octavo.testing import AttentionSuite, OpsSuite
from one_thread import one_thread_fixture

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread_fixture)


class TestTorchOps(OpsSuite):
    component = "torch"


class TestCpuOps(OpsSuite):
    component = "cpu"


class TestTritonOps(OpsSuite):
    component = "triton"


class TestTorchAttention(AttentionSuite):
    component = "torch"


class TestCpuAttention(AttentionSuite):
    component = "cpu"


class TestTritonAttention(AttentionSuite):
    component = "triton"
    sample = {"device": "cuda"}
