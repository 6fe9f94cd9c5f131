"""Texts of a given form from the demo model: they hold it, and nobody else's text changes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from octavo import LLM, SamplingParams, StructuredOutputsParams

ORDER = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 16},
        "qty": {"type": "integer", "minimum": 1, "maximum": 99},
        "express": {"type": "boolean"},
    },
    "required": ["title", "qty", "express"],
    "additionalProperties": False,
}
GREEDY = SamplingParams(temperature=0, max_tokens=80)
FORMED = replace(GREEDY, structured_outputs=StructuredOutputsParams(json=ORDER))
FREE = replace(GREEDY, max_tokens=12, ignore_eos=True)
NEARLY = 'Orders: {"title": "Bread", "qty": 3, "express": maybe, "note": "x"}\nOrders: '
PROMPTS = [
    NEARLY,
    "An order of three loaves of bread, express, as JSON: ",
    "Une commande de café à Orléans, en JSON : ",
    "1, 2, 3, 4,",
    NEARLY,
    "Give a year: ",
]
PARAMS = [
    FORMED,
    replace(FORMED, temperature=1, seed=5, n=2),
    replace(FORMED, min_tokens=70),
    FREE,
    FREE,
    replace(GREEDY, structured_outputs=StructuredOutputsParams(regex="(19|20)[0-9]{2}")),
]
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}


def run(llm, prompts=PROMPTS, params=PARAMS):
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [[(one.text, one.finish_reason) for one in output.outputs] for output in outputs]


@pytest.fixture(scope="module")
def expected():
    """Each by itself."""
    with LLM("smollm2", ops="torch", max_model_len=512) as llm:
        return [run(llm, [one], [two])[0] for one, two in zip(PROMPTS, PARAMS, strict=True)]


def test_every_text_has_its_form(expected):
    for text, reason in (one for choices in expected[:3] for one in choices):
        data = json.loads(text)
        assert reason == "stop"
        assert list(data) == ["title", "qty", "express"]
        assert len(data["title"]) <= 16
        assert 1 <= data["qty"] <= 99
        assert isinstance(data["express"], bool)
    assert re.fullmatch("(19|20)[0-9]{2}", expected[5][0][0])


@pytest.mark.full  # by default on a tiny model
@pytest.mark.parametrize(
    "settings",
    [
        {"depth": 1, "speculative_config": NGRAM},
        {"num_gpu_blocks_override": 32, "block_size": 4, "speculative_config": NGRAM},
    ],
    ids=["ahead", "preempted"],
)
def test_B110_texts_are_the_same_together_with_drafts_and_preemption(expected, settings):
    with LLM("smollm2", ops="torch", max_model_len=512, **settings) as llm:
        assert run(llm) == expected
        metrics = llm.get_metrics()
    assert metrics.accepted_tokens > 0
    assert ("num_gpu_blocks_override" in settings) == (metrics.preemptions > 0)
