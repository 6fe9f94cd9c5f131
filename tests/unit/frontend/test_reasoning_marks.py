"""Marks of reasoning on their way to the engine, and the budget that callers give."""

from __future__ import annotations

import pytest

from octavo import SamplingParams, StructuredOutputsParams
from octavo.engine.messages import EngineInfo
from octavo.errors import RequestError
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.interfaces.grammar import ReasoningSpec
from octavo.interfaces.parser import ReasoningMarks
from scripted import END_THINK, THINK, VOCAB_SIZE, BytesTokenizer

MARKS = ReasoningMarks("<think>", "</think>", is_open=True)
FORM = StructuredOutputsParams(regex="a")


def reasoning_of(marks, vocab_size=VOCAB_SIZE, **params):
    info = EngineInfo(vocab_size, max_model_len=100, capacity_tokens=100)
    call = Call(
        request_id="r", prompt="a", params=SamplingParams(n=2, **params), arrival_s=0.0,
        reasoning=marks,
    )  # fmt: skip
    first, second = Preprocessor(BytesTokenizer(), info).prepare(call).requests
    assert first.reasoning is second.reasoning
    return first.reasoning


def test_marks_become_tokens_of_each_choice():
    spec = ReasoningSpec((END_THINK,), True, 7, (THINK,))

    assert reasoning_of(MARKS, thinking_token_budget=7) == spec
    assert reasoning_of(MARKS, structured_outputs=FORM).budget is None
    long = ReasoningMarks("<|x|>", "answer:", is_open=False)
    assert reasoning_of(long, thinking_token_budget=0) == ReasoningSpec(
        tuple(b"answer:"), False, 0, tuple(b"<|x|>")
    )


def test_marks_that_change_nothing_are_not_sent():
    assert reasoning_of(MARKS) is None
    assert reasoning_of(MARKS, thinking_token_budget=-1) is None
    assert reasoning_of(None, structured_outputs=FORM) is None


@pytest.mark.parametrize(
    ("marks", "params", "param"),
    [
        (None, {"thinking_token_budget": 4}, "thinking_token_budget"),
        (ReasoningMarks("", "", is_open=True), {"structured_outputs": FORM}, "structured_outputs"),
    ],
)
def test_without_marks_a_budget_is_refused_and_not_ignored(marks, params, param):
    with pytest.raises(RequestError, match="nothing tells where the reasoning") as caught:
        reasoning_of(marks, **params)
    assert caught.value.param == param


def test_marks_outside_of_the_models_vocabulary_are_no_marks():
    with pytest.raises(RequestError, match="nothing tells where the reasoning"):
        reasoning_of(MARKS, vocab_size=258, thinking_token_budget=4)


@pytest.mark.parametrize("value", [-2, 1.5, "4", True, 2**63])
def test_a_budget_is_a_number_of_tokens(value):
    with pytest.raises(RequestError) as caught:
        SamplingParams(thinking_token_budget=value)
    assert caught.value.param == "thinking_token_budget"
