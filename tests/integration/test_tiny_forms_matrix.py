"""Every form, by both back ends, with everything that may stand beside it: always the same texts.

Forms x (n, min_tokens, stop strings, reasoning with and without a budget) x (drafts, depth 1,
preemption). The weights are random: nothing but its form keeps a text in it.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, replace

import pytest

from byte_models import BOS, EOS, LLAMA, random_prompt, save_byte_model
from fixed_costs import make_drafts_free
from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.frontend.preprocess import Call
from octavo.interfaces.parser import ReasoningMarks

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["with butter", "with jam"]},
        "qty": {"type": "integer", "minimum": 1, "maximum": 500},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,4}$"},
                 "minItems": 1, "maxItems": 2},
    },
    "required": ["kind", "qty", "tags"],
    "additionalProperties": False,
}  # fmt: skip
TAGGED = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<call "],
        "tags": [
            {"begin": f"<call {name}>", "content": {"type": "json_schema", "json_schema": schema},
             "end": "</call>"}
            for name, schema in (("order", SCHEMA), ("stop", {"enum": ["now", "later"]}))
        ],
        "at_least_one": True,
        "stop_after_first": True,
    },
}  # fmt: skip


def is_order(text):
    data = json.loads(text)
    return (
        list(data) == ["kind", "qty", "tags"]
        and data["kind"] in SCHEMA["properties"]["kind"]["enum"]
        and 1 <= data["qty"] <= 500
        and 1 <= len(data["tags"]) <= 2
        and all(re.fullmatch("[a-z]{1,4}", tag) for tag in data["tags"])
    )


def is_tagged(text):
    found = re.fullmatch("<call (order|stop)>(.*)</call>", text, re.DOTALL)
    if found is None:
        return False
    return is_order(found[2]) if found[1] == "order" else found[2] in {'"now"', '"later"'}


FORMS = {
    "json_schema": (
        StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True),
        is_order,
    ),
    "regex": (
        StructuredOutputsParams(regex="[a-d]{3}(,[0-9]{2}){1,3}"),
        re.compile("[a-d]{3}(,[0-9]{2}){1,3}").fullmatch,
    ),
    "choice": (
        StructuredOutputsParams(choice=["A", "AB", "ABC", "a.b", "a longer choice"]),
        ["A", "AB", "ABC", "a.b", "a longer choice"].__contains__,
    ),
    "grammar": (
        StructuredOutputsParams(
            grammar='root ::= "(" root ")" | sum\nsum ::= [0-9]{1,3} ("+" [0-9]{1,3}){0,2}'
        ),
        lambda text: re.fullmatch(
            r"[0-9]{1,3}(\+[0-9]{1,3}){0,2}", text.lstrip("(").rstrip(")")
        ) and text.count("(") == text.count(")"),
    ),
    "structural_tag": (StructuredOutputsParams(structural_tag=TAGGED), is_tagged),
}  # fmt: skip
SEEDED = SamplingParams(temperature=1, max_tokens=220)
NGRAM = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}


@dataclass(frozen=True)
class Beside:
    """What stands beside a form. `can_be_cut`: a stop string may end the text early."""

    name: str
    params: dict
    reasoning: ReasoningMarks | None = None
    can_be_cut: bool = False


BESIDE = (
    Beside("n", {"n": 3}),
    Beside("min_tokens", {"min_tokens": 40}),
    Beside("stop strings", {"stop": ["0", "b"]}, can_be_cut=True),
    Beside("greedy", {"temperature": 0}),
    Beside("reasoning", {"logit_bias": {ord("e"): 4.0}}, ReasoningMarks("", "e", is_open=True)),
    Beside(
        "reasoning and n",
        {"n": 2, "logit_bias": {ord("e"): 4.0}},
        ReasoningMarks("\x02", "e", is_open=True),
    ),
    Beside("a budget", {"thinking_token_budget": 6}, ReasoningMarks("", "</t>", is_open=True)),
    Beside("no budget", {"thinking_token_budget": 0}, ReasoningMarks("", "</t>", is_open=True)),
    Beside("perhaps", {"thinking_token_budget": 3}, ReasoningMarks("*", "</t>", is_open=False)),
)
#: begun by a special token, and text around it
ARMED = StructuredOutputsParams(
    structural_tag={
        "structures": [
            {"begin": f"<s>{name}:", "schema": {"type": "integer", "minimum": 1, "maximum": 500},
             "end": end}
            for name, end in (("day", ";"), ("date", "<s>!"))
        ],
        "triggers": ["<s>"],
        "special_tokens": {"<s>": BOS},
    }
)  # fmt: skip
FREE = (
    (replace(SEEDED, max_tokens=90, structured_outputs=ARMED, logit_bias={BOS: 6.0}, n=2), None),
    (replace(SEEDED, max_tokens=30, thinking_token_budget=5),
     ReasoningMarks("", "</t>", is_open=True)),
    (replace(SEEDED, max_tokens=30, thinking_token_budget=2, n=2),
     ReasoningMarks("e", "</t>", is_open=False)),
    (replace(SEEDED, max_tokens=30), None),
)  # fmt: skip


def asked():
    """Return each request: its form, what is beside it, its parameters."""
    found = [
        (form, beside, replace(SEEDED, structured_outputs=FORMS[form][0], **beside.params))
        for form in FORMS
        for beside in BESIDE
    ]
    found += [("", Beside("free", {}, marks), params) for params, marks in FREE]
    return [
        (form, beside, replace(params, seed=number))
        for number, (form, beside, params) in enumerate(found)
    ]


ASKED = asked()


def prompt_of(number):
    """Whole characters, and for some a part of a text of the form, so that drafts are found."""
    prompt = [token_id % 128 for token_id in random_prompt(7 + number % 5, seed=number)]
    return prompt + list(b'"qty":12,"tags":["ab"]}</call>' if number % 2 else b"")


def run(llm, *numbers):
    calls = [
        Call(
            request_id=str(number), prompt=prompt_of(number), params=ASKED[number][2],
            arrival_s=time.monotonic(), reasoning=ASKED[number][1].reasoning,
        )
        for number in numbers or range(len(ASKED))
    ]  # fmt: skip
    return llm._run_calls(calls, use_tqdm=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def _free_drafts(monkeypatch):
    make_drafts_free(monkeypatch)


def open_llm(folder, back_end, **settings):
    settings = {"max_num_seqs": 16, "threads": 1, "max_model_len": 600, **settings}
    return LLM(folder, grammar=back_end, **settings)


@pytest.fixture(scope="module", params=["llguidance", "xgrammar"])
def back_end(request):
    return request.param


@pytest.fixture(scope="module")
def expected(folder, back_end):
    """Each request by itself, one token a step."""
    with open_llm(folder, back_end) as llm:
        return [run(llm, number)[0] for number in range(len(ASKED))]


def reasoned(beside, params, token_ids):
    """Return the tokens behind the reasoning; the budget was kept, and nothing ended in it."""
    marks = beside.reasoning
    if marks is None:
        return token_ids
    start, end = list(marks.start.encode()), list(marks.end.encode())
    begin = 0
    if not marks.is_open:
        if token_ids[: len(start)] != start:
            return token_ids
        begin = len(start)
    places = range(begin, len(token_ids))
    place = next(i for i in places if token_ids[i : i + len(end)] == end)
    if params.thinking_token_budget is not None:
        assert place - begin <= params.thinking_token_budget
    assert EOS not in token_ids[:place]
    return token_ids[place + len(end) :]


def test_every_text_has_its_form_behind_its_reasoning(expected):
    num_reasoned = 0
    for (form, beside, params), output in zip(ASKED, expected, strict=True):
        if not form:
            continue
        for one in output.outputs:
            where = (form, beside.name)
            assert one.error is None, (where, one.error)
            rest = reasoned(beside, params, list(one.token_ids))
            num_reasoned += len(rest) < len(one.token_ids)
            text = bytes(token_id for token_id in rest if token_id < EOS).decode()
            if beside.can_be_cut and one.stop_reason is not None:
                continue
            assert one.finish_reason == "stop", where
            assert FORMS[form][1](text), (where, text)
    assert num_reasoned >= 4 * len(FORMS)


def test_what_a_special_token_begins_has_its_form(expected):
    whole, num_whole = (
        re.compile(b"(day:[1-9][0-9]{0,2};|date:[1-9][0-9]{0,2}\x00!).*", re.DOTALL),
        0,
    )
    for one in expected[-4].outputs:
        ids = [0 if token_id == BOS else token_id for token_id in one.token_ids]
        text = bytes(token_id for token_id in ids if token_id < EOS).replace(b"\x00!", b"\x01!")
        # the last may be cut by the limit of tokens
        for piece in text.split(b"\x00")[1:-1]:
            num_whole += 1
            assert whole.match(piece.replace(b"\x01", b"\x00")), (piece, text)
    assert num_whole > 2


def test_a_budget_without_a_form_ends_the_reasoning_and_leaves_the_rest(expected):
    end = list(b"</t>")
    (whole,) = expected[-3].outputs

    assert list(whole.token_ids[5:9]) == end, "at once, as the mark does not come by chance"
    assert len(whole.token_ids) == 30
    for one in expected[-2].outputs:
        ids = list(one.token_ids)
        if ord("e") in ids[:20]:
            place = ids.index(ord("e"))
            assert ids[place + 3 : place + 7] == end


@pytest.mark.parametrize(
    "settings",
    [
        {"depth": 1},
        pytest.param({}, marks=pytest.mark.full),
        pytest.param({"speculative_config": NGRAM}, marks=pytest.mark.full),
        {"speculative_config": NGRAM, "depth": 1, "max_num_batched_tokens": 32},
        {"num_gpu_blocks_override": 44, "block_size": 16},
        {"num_gpu_blocks_override": 44, "block_size": 16, "depth": 1, "speculative_config": NGRAM},
    ],
    ids=str,
)
def test_B72_B110_every_text_is_the_same_in_any_schedule(folder, back_end, expected, settings):
    with open_llm(folder, back_end, **settings) as llm:
        outputs = run(llm)
        stats = llm.get_metrics()
    for (form, beside, _), output, wanted in zip(ASKED, outputs, expected, strict=True):
        for one, other in zip(output.outputs, wanted.outputs, strict=True):
            where = (form, beside.name)
            assert one.error is None, (where, one.error)
            assert list(one.token_ids) == list(other.token_ids), where
            assert (one.text, one.finish_reason) == (other.text, other.finish_reason), where
    if "num_gpu_blocks_override" in settings:
        assert stats.preemptions > 0
    if "speculative_config" in settings:
        assert stats.accepted_tokens > 0


def test_offline_the_marks_are_those_of_the_models_parser(folder):
    yes = StructuredOutputsParams(choice=["yes", "no"])
    params = replace(SEEDED, structured_outputs=yes, thinking_token_budget=3, seed=1)
    with open_llm(folder, "llguidance", reasoning_parser="think") as llm:
        (chat,) = llm.chat([{"role": "user", "content": "x<think>"}], params, use_tqdm=False)
        texts = llm.generate(
            ["x<think>", {"prompt_token_ids": list(b"x<think>")}, "x"],
            replace(SEEDED, thinking_token_budget=0, max_tokens=12, seed=1), use_tqdm=False,
        )  # fmt: skip
        (form,) = llm.generate(
            ["x<think>"], replace(params, thinking_token_budget=None), use_tqdm=False
        )

    assert re.search("</think>(yes|no)$", chat.outputs[0].text)
    assert len(chat.outputs[0].token_ids) <= 3 + len("</think>yes") + 1
    begins = [output.outputs[0].text.startswith("</think>") for output in texts]
    assert begins == [True, True, False]
    assert form.outputs[0].text in {"yes", "no"}, "a prompt that is no chat is gone on with at once"


def test_offline_a_budget_without_a_parser_is_refused(folder):
    params = replace(SEEDED, thinking_token_budget=3)
    with (
        open_llm(folder, "llguidance") as llm,
        pytest.raises(ValueError, match="prompt 0: thinking_token_budget: nothing tells where"),
    ):
        llm.generate(["x"], params, use_tqdm=False)
