"""Texts of a given form from tiny models, whose own texts have none: in any company and schedule.

The weights are random, so that nothing but the grammar keeps a text in its form.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from byte_models import EOS, LLAMA, MINISTRAL, random_prompt, save_byte_model
from fixed_costs import make_drafts_free
from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.interfaces.sampler import SamplerStage

ORDER = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 8},
        "kind": {"enum": ["plain", "with butter", "with jam"]},
        "qty": {"type": "integer", "minimum": 1, "maximum": 500},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,4}$"},
                 "minItems": 1, "maxItems": 3},
    },
    "required": ["title", "kind", "qty", "tags"],
    "additionalProperties": False,
}  # fmt: skip
JSON = StructuredOutputsParams(json=ORDER, whitespace_pattern=" ?")
DIGITS = StructuredOutputsParams(regex="[0-9]{4}")
CHOICE = StructuredOutputsParams(choice=["A", "AB", "ABC", "a.b", "x|y", "(z)"])
SEEDED = SamplingParams(temperature=1, seed=3, max_tokens=400)
FREE = replace(SEEDED, max_tokens=24)
NGRAM = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}

FORMED = (
    replace(SEEDED, structured_outputs=JSON),
    replace(SEEDED, structured_outputs=JSON, temperature=0),
    replace(SEEDED, structured_outputs=JSON, seed=4, n=3),
    replace(SEEDED, structured_outputs=JSON, seed=5, min_tokens=300),
    replace(SEEDED, structured_outputs=JSON, seed=6, ignore_eos=True),
    replace(SEEDED, structured_outputs=JSON, seed=7, presence_penalty=1.0, logprobs=1),
    replace(SEEDED, structured_outputs=JSON, seed=8, top_k=5, top_p=0.9, min_p=0.01),
    replace(SEEDED, structured_outputs=DIGITS, seed=9),
    replace(SEEDED, structured_outputs=CHOICE, seed=10, n=2),
)
PARAMS = (*FORMED, FREE, replace(FREE, temperature=0), replace(FREE, seed=11, n=2))
#: whole characters: half of one would be completed by the output
PROMPTS = [
    [token_id % 128 for token_id in random_prompt(9 + 4 * i, seed=i)]
    + list(b'{"title":"abc","kind":"with jam","qty":12,"tags":["ab"]}' if i % 3 == 0 else b"")
    for i in range(len(PARAMS))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def _free_drafts(monkeypatch):
    make_drafts_free(monkeypatch)


def open_llm(folder, **settings):
    return LLM(folder, **{"max_num_seqs": 16, "threads": 1, "max_model_len": 900, **settings})


def run(llm, prompts=PROMPTS, params=PARAMS):
    return llm.generate(prompts, params, use_tqdm=False)


@pytest.fixture(scope="module")
def expected(folder):
    """Each request by itself, one token a step."""
    with open_llm(folder) as llm:
        return [run(llm, [one], [params])[0] for one, params in zip(PROMPTS, PARAMS, strict=True)]


def assert_same(outputs, expected):
    for index, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        for one, other in zip(output.outputs, wanted.outputs, strict=True):
            assert one.error is None, (index, one.error)
            assert one.text == other.text, index
            assert list(one.token_ids) == list(other.token_ids), index
            assert one.finish_reason == other.finish_reason, index


def is_order(text: str) -> bool:
    data: dict[str, Any] = json.loads(text)
    return (
        list(data) == ["title", "kind", "qty", "tags"]
        and len(data["title"]) <= 8
        and data["kind"] in ORDER["properties"]["kind"]["enum"]
        and isinstance(data["qty"], int)
        and 1 <= data["qty"] <= 500
        and 1 <= len(data["tags"]) <= 3
        and all(re.fullmatch("[a-z]{1,4}", tag) for tag in data["tags"])
    )


IS_FORMED = {
    id(JSON): is_order,
    id(DIGITS): re.compile("[0-9]{4}").fullmatch,
    id(CHOICE): CHOICE.choice.__contains__,
}


def test_every_text_has_its_form(expected):
    for output, params in zip(expected, FORMED, strict=False):
        for one in output.outputs:
            assert one.finish_reason == "stop"
            assert IS_FORMED[id(params.structured_outputs)](one.text), one.text
    texts = [one.text for output in expected[2:7] for one in output.outputs]
    assert len(set(texts)) == len(texts), "they differ by their seeds"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"depth": 1},
        {"speculative_config": NGRAM},
        {"speculative_config": NGRAM, "depth": 1},
        {"max_num_batched_tokens": 16, "max_num_seqs": 5},
        {"max_num_batched_tokens": 32, "depth": 1, "speculative_config": NGRAM},
        {"num_gpu_blocks_override": 36, "block_size": 16},
        {"num_gpu_blocks_override": 36, "block_size": 16, "depth": 1, "speculative_config": NGRAM},
        {"enable_prefix_caching": False, "speculative_config": NGRAM},
    ],
    ids=lambda settings: "-".join(settings) or "together",
)
def test_B72_B110_texts_are_the_same_in_any_company_and_schedule(folder, expected, settings):
    with open_llm(folder, **settings) as llm:
        assert_same(run(llm), expected)
        stats = llm.get_metrics()
    if "num_gpu_blocks_override" in settings:
        assert stats.preemptions > 0
    if "speculative_config" in settings:
        assert stats.accepted_tokens > 0


def test_sliding_windows_and_forms(tmp_path):
    options = {**MINISTRAL.options, "max_position_embeddings": 1024}
    folder = save_byte_model(replace(MINISTRAL, options=options), tmp_path)
    prompts, params = [*PROMPTS[:4], PROMPTS[-1]], [*PARAMS[:4], FREE]
    with open_llm(folder) as llm:
        wanted = [run(llm, [one], [two])[0] for one, two in zip(prompts, params, strict=True)]
    with open_llm(folder, speculative_config=NGRAM, max_num_batched_tokens=40) as llm:
        assert_same(run(llm, prompts, params), wanted)

    assert all(is_order(one.text) for output in wanted[:4] for one in output.outputs)


def test_forced_tokens_are_offered_as_drafts(folder):
    params = replace(SEEDED, structured_outputs=JSON, temperature=0)
    with open_llm(folder) as llm:
        (output,) = run(llm, PROMPTS[:1], params)
        stats = llm.get_metrics()

    assert is_order(output.outputs[0].text)
    assert stats.accepted_tokens > 20, "without any proposer"
    assert stats.step < len(output.outputs[0].token_ids)


def test_B74_choices_that_begin_alike_are_all_open_and_a_match_is_no_end(folder):
    params = [replace(SEEDED, structured_outputs=CHOICE, seed=seed) for seed in range(60)]
    rest = StructuredOutputsParams(regex="cat.*")
    with open_llm(folder) as llm:
        texts = {output.outputs[0].text for output in run(llm, [PROMPTS[0]] * 60, params)}
        go_on = replace(SEEDED, structured_outputs=rest, max_tokens=20)
        (longer,) = run(llm, PROMPTS[:1], [go_on])

    assert texts <= set(CHOICE.choice)
    assert {"A", "ABC"} <= texts
    assert longer.outputs[0].text.startswith("cat")
    assert len(longer.outputs[0].token_ids) > 3


@pytest.mark.parametrize("settings", [{}, {"speculative_config": NGRAM, "depth": 1}])
def test_B71_the_end_of_the_form_wins_over_min_tokens(folder, settings):
    yes = StructuredOutputsParams(choice=["yes", "yes please"])
    late = replace(SEEDED, temperature=0, min_tokens=50, max_tokens=80)
    with open_llm(folder, **settings) as llm:
        outputs = run(
            llm, PROMPTS[:2], [replace(late, structured_outputs=one) for one in (yes, DIGITS)]
        )
    texts = [(output.outputs[0].text, output.outputs[0].finish_reason) for output in outputs]

    assert texts[0] == ("yes please", "stop"), "what else there was to say came first"
    assert re.fullmatch("[0-9]{4}", texts[1][0])
    assert texts[1][1] == "stop"


def test_B67_lengths_beside_patterns_and_formats_are_kept(folder):
    schemas = (
        {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 6},
         "minItems": 2, "maxItems": 2},
        {"type": "string", "format": "email", "maxLength": 10},
        {"type": "string", "pattern": "^b+$", "minLength": 5},
    )  # fmt: skip

    def is_valid(index, data):
        if index == 0:
            return len(data) == 2 and all(re.fullmatch("[a-z]{1,6}", one) for one in data)
        if index == 1:
            return len(data) <= 10 and re.fullmatch(r"[^@]+@[^@]+", data)
        return re.fullmatch("b{5,}", data)

    with open_llm(folder) as llm:
        for index, schema in enumerate(schemas):
            form = StructuredOutputsParams(json=schema)
            params = [replace(SEEDED, structured_outputs=form, seed=seed) for seed in range(20)]
            for output in run(llm, [PROMPTS[0]] * 20, params):
                one = output.outputs[0]
                assert one.error is None
                if one.finish_reason == "stop":
                    assert is_valid(index, json.loads(one.text)), one.text


@pytest.mark.parametrize("depth", [0, 1])
def test_B69_a_form_that_does_not_compile_fails_alone(folder, expected, depth):
    bad = (
        StructuredOutputsParams(json={"type": "notatype"}),
        StructuredOutputsParams(json={"$ref": "#/nope"}),
        StructuredOutputsParams(regex="(a+)+$(?=b)"),
        StructuredOutputsParams(grammar="root ::= <[7]>"),
    )
    params = [*PARAMS, *(replace(FREE, structured_outputs=form) for form in bad)]
    with open_llm(folder, depth=depth) as llm:
        outputs = run(llm, [*PROMPTS, *PROMPTS[: len(bad)]], params)

    assert_same(outputs[: len(PARAMS)], expected)
    errors = [output.outputs[0].error for output in outputs[len(PARAMS) :]]
    reasons = ("Invalid type: notatype", "'/nope' does not exist", "look-around", "is no GBNF")
    for error, reason in zip(errors, reasons, strict=True):
        assert reason in error


def test_what_leaves_a_form_no_token_fails_alone(folder, expected):
    no_digit = replace(SEEDED, structured_outputs=DIGITS, allowed_token_ids=list(b"abc"))
    with open_llm(folder) as llm:
        outputs = run(llm, [PROMPTS[0], *PROMPTS], [no_digit, *PARAMS])

    assert "no token may be drawn" in outputs[0].outputs[0].error
    assert_same(outputs[1:], expected)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "the logits hold NaN or infinity"),
        (math.inf, "the logits hold NaN or infinity"),
        (-math.inf, "none is left by structured_outputs with logits_processors"),
    ],
)
def test_numbers_that_are_none_are_told_from_a_choice_of_nothing(folder, value, reason):
    def fill(output_ids, logits):
        del output_ids
        return logits.fill_(value)

    params = replace(SEEDED, structured_outputs=DIGITS, logits_processors=[fill])
    with open_llm(folder) as llm:
        (output,) = run(llm, PROMPTS[:1], params)

    assert reason in output.outputs[0].error


def test_stop_strings_and_stop_tokens_may_cut_a_form_short(folder):
    letters = StructuredOutputsParams(regex="[a-d]{40}")
    base = replace(SEEDED, structured_outputs=letters)
    with open_llm(folder) as llm:
        whole, at_text, at_id, late = (
            one.outputs[0]
            for one in run(
                llm,
                [PROMPTS[0]] * 4,
                [base, replace(base, stop="b"), replace(base, stop_token_ids=[98]),
                 replace(base, stop_token_ids=[98], min_tokens=30)],
            )
        )  # fmt: skip

    assert (len(whole.text), whole.finish_reason) == (40, "stop")
    before = whole.text[: whole.text.index("b")]
    assert (at_text.text, at_id.text.removesuffix("b")) == (before, before)
    assert at_id.stop_reason == 98
    assert "b" not in late.text[:30]


#: the temperature of requests that are sampled row by row
SHARP = 0.75


class Sharper(SamplerStage):
    """Halves the temperature, in Python."""

    position = 120

    def is_active(self, params):
        return params.temperature == SHARP

    def apply(self, logits, row):
        logits *= 2.0


def test_a_stage_in_python_sees_what_the_form_allows(folder, expected):
    base = [replace(one, temperature=SHARP, n=1) for one in FORMED]
    with open_llm(folder, sampler_stage=Sharper) as llm:
        alone = [run(llm, [one], [two])[0] for one, two in zip(PROMPTS, base, strict=False)]
        together = run(llm, [*PROMPTS[: len(base)], *PROMPTS], [*base, *PARAMS])

    assert_same(together, [*alone, *expected])
    for output, params in zip(alone, base, strict=True):
        assert IS_FORMED[id(params.structured_outputs)](output.outputs[0].text)


def test_a_logits_processor_cannot_leave_the_form(folder):
    def wants_letters(output_ids, logits):
        logits[ord("a") : ord("z")] += 100.0
        return logits

    params = replace(SEEDED, structured_outputs=DIGITS, logits_processors=[wants_letters])
    with open_llm(folder) as llm:
        (output,) = run(llm, PROMPTS[:1], [params])

    assert re.fullmatch("[0-9]{4}", output.outputs[0].text)


def test_a_form_cut_by_max_tokens_is_a_beginning_of_it(folder):
    params = [replace(SEEDED, structured_outputs=JSON, max_tokens=n) for n in (1, 7, 23)]
    with open_llm(folder, speculative_config=NGRAM) as llm:
        outputs = run(llm, PROMPTS[:1] * 3, params)

    assert [len(one.outputs[0].token_ids) for one in outputs] == [1, 7, 23]
    assert {one.outputs[0].finish_reason for one in outputs} == {"length"}
    assert outputs[2].outputs[0].text.startswith('{"title')
    assert EOS not in outputs[2].outputs[0].token_ids
