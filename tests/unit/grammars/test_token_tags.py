"""Strict tools of families whose marks are special tokens: held from the token on, by both."""

from __future__ import annotations

import json
import random
import re
import time

import numpy as np
import pytest

from grammars import allowed
from octavo.errors import GrammarError, RequestError
from octavo.frontend.required_calls import strict_form
from octavo.interfaces.grammar import GrammarContext, GrammarSpec
from octavo.interfaces.parser import (
    CallArguments,
    CallBegin,
    CallEnd,
    CallTag,
    ToolSpec,
    TurnContext,
)
from octavo.structural_tags import plain_tags
from octavo.testing.grammar_samples import holds
from octavo_plugins.grammars.llguidance_grammar import LLGuidance
from octavo_plugins.grammars.options import LLGuidanceOptions, XGrammarOptions
from octavo_plugins.grammars.xgrammar_grammar import XGrammar
from octavo_plugins.parsers.deepseek import DeepSeekV3, DeepSeekV31
from octavo_plugins.parsers.gpt_oss import GptOss
from octavo_plugins.parsers.granite import Granite
from octavo_plugins.parsers.hermes import Hermes
from octavo_plugins.parsers.kimi_k2 import KimiK2
from octavo_plugins.parsers.mistral import Mistral
from octavo_plugins.parsers.phi4_mini_json import Phi4MiniJson
from scripted import EOS, VOCAB_SIZE, BytesTokenizer

OPTIONS = {LLGuidance: LLGuidanceOptions, XGrammar: XGrammarOptions}
FAMILIES = (Hermes, DeepSeekV3, DeepSeekV31, KimiK2, Mistral, Granite, Phi4MiniJson)
WEATHER = ToolSpec(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    is_strict=True,
)
#: its name begins like the other's
WEEK = ToolSpec("get_week", {"type": "object"})
TOOLS = (WEATHER, WEEK)
#: all marks of all families are tokens of one vocabulary
MARKS = {
    mark: VOCAB_SIZE + i
    for i, mark in enumerate(sorted({mark for one in FAMILIES for mark in one.visible_markers}))
}
SIZE = VOCAB_SIZE + len(MARKS)
_MARK = re.compile("|".join(map(re.escape, MARKS)))


class MarkedTokenizer(BytesTokenizer):
    """Bytes, words, and a special token for each mark."""

    def __init__(self):
        super().__init__()
        self._bytes |= {i: mark.encode() for mark, i in MARKS.items()}

    def encode(self, text, add_special_tokens=True):
        at, ids = 0, []
        for mark in _MARK.finditer(text):
            ids += [*text[at : mark.start()].encode(), MARKS[mark.group()]]
            at = mark.end()
        return [*ids, *text[at:].encode()]

    @property
    def vocab_size(self):
        return SIZE

    @property
    def special_ids(self):
        return super().special_ids | frozenset(MARKS.values())


TOKENIZER = MarkedTokenizer()


@pytest.fixture(scope="module", params=[LLGuidance, XGrammar], ids=["llguidance", "xgrammar"])
def backend(request):
    backend = request.param(None, GrammarContext(TOKENIZER, SIZE))
    yield backend
    backend.close()


@pytest.fixture(params=FAMILIES, ids=lambda one: one.__name__)
def family(request):
    return request.param()


def tag_of(family, tool):
    """Return how a call is written; where calls are a list, one of a single call."""
    if (whole := family.list_tag()) is None:
        return family.call_tag(tool)
    begin = f'{whole.begin}[{{"name": "{tool.name}", "{whole.arguments_key}": '
    return CallTag(whole.begin, begin, f"}}]{whole.end}")


def held(backend, family):
    return backend.compile(strict_form(family, TOOLS, MARKS).to_grammar())


def mask_of(state):
    mask = np.full(-(-SIZE // 32), 0xDEADBEEF, dtype=np.uint32)
    state.fill_mask(mask)
    return allowed(mask, SIZE)


def followed(compiled, text):
    """Return how much of a text is followed, and whether it may end there."""
    state, done = compiled.start(), []
    for token_id in TOKENIZER.encode(text):
        if not state.advance(token_id):
            break
        done.append(token_id)
    return TOKENIZER.decode(done, skip_special_tokens=False), state.is_complete


def test_calls_are_held_to_and_all_around_them_is_free(backend, family):
    compiled = held(backend, family)
    weather, week = (tag_of(family, tool) for tool in TOOLS)
    around = f"So: {{[ {weather.end} "
    good = f'{weather.begin}{{"city": "Ærø", "days": 2}}{weather.end}'
    other = f'{week.begin}{{"x": [1]}}{week.end}'

    assert followed(compiled, around) == (around, True)
    assert followed(compiled, text := f"{around}{good}\n{other}{good} more") == (text, True)
    for bad, cut in (
        (f'{weather.begin}{{"city": 3}}', f'{weather.begin}{{"city": '),
        (f'{weather.begin}{{"town": ""}}', f'{weather.begin}{{"'),
        (weather.begin.replace("get_weather", "get_wish"), None),
        (good[: len(weather.begin) + 8], good[: len(weather.begin) + 8]),
    ):
        got, is_complete = followed(compiled, around + bad)
        assert cut is None or got == around + cut
        assert not is_complete


def _weight(token_id):
    is_closing = token_id > 255 or token_id in b'"}]'
    return 20 if is_closing else 0.1 if token_id in b" \n" else 1


def test_whatever_follows_the_mark_is_a_call_of_a_tool(backend, family):
    compiled = held(backend, family)
    seen = set()
    for seed in range(12):
        rng, state = random.Random(seed), compiled.start()  # noqa: S311 - nothing is secret
        ids = [MARKS[tag_of(family, WEATHER).trigger]]
        assert state.advance(ids[0])
        while not state.is_complete:
            found = np.flatnonzero(mask_of(state)).tolist()
            weights = [_weight(one) for one in found]
            ids.append(rng.choices(found, weights)[0])
            assert state.advance(ids[-1])
        reader = family.open(TurnContext("", TOOLS))
        text = TOKENIZER.decode(ids, skip_special_tokens=False)
        events = [*reader.push(text), *reader.finish()]
        kinds = (CallBegin, CallArguments, CallEnd)
        assert events, text
        assert all(isinstance(one, kinds) for one in events), text
        for begin in (one for one in events if isinstance(one, CallBegin)):
            arguments = "".join(
                one.text
                for one in events
                if isinstance(one, CallArguments) and one.index == begin.index
            )
            tool = next(tool for tool in TOOLS if tool.name == begin.name)
            assert holds(dict(tool.parameters), json.loads(arguments)), text
            assert CallEnd(begin.index) in events, text
            seen.add(begin.name)
    assert seen == {"get_weather", "get_week"}


def test_masks_steps_and_rollback_agree(backend, family):
    compiled = held(backend, family)
    tag = tag_of(family, WEATHER)
    state, fresh = compiled.start(), compiled.start()
    ids = TOKENIZER.encode(f'a{tag.begin}{{"city": "x"}}{tag.end}b')
    sights = []
    for token_id in ids:
        mask = mask_of(state)
        sights.append((mask, state.is_complete, state.forced()))
        for one in (*range(40, 130, 7), *range(250, SIZE), -1, SIZE):
            is_next = state.advance(one)
            assert is_next == (0 <= one < SIZE and bool(mask[one])), one
            state.rollback(int(is_next))
        forced = state.forced()
        assert not forced or np.flatnonzero(mask).tolist() == [forced[0]] or forced[0] < 256
        assert state.advance(token_id)
    assert state.is_complete
    assert not mask_of(state)[SIZE:].any()
    for token_id, (mask, is_complete, forced) in zip(ids[::-1], sights[::-1], strict=True):
        state.rollback(1)
        assert (mask_of(state) == mask).all(), token_id
        assert (state.is_complete, state.forced()) == (is_complete, forced)
    assert (mask_of(fresh) == mask_of(state)).all()


def test_calls_of_a_list_are_held_to_one_after_the_other(backend):
    compiled = held(backend, Granite())
    one = '{"name": "get_weather", "arguments": {"city": "x"}}'
    text = f'So: <|tool_call|>[{one}, {{"name": "get_week", "arguments": {{}}}}, {one}'

    assert followed(compiled, f"{text}]") == (f"{text}]", True)
    assert followed(compiled, text) == (text, False)
    assert followed(compiled, text.replace('"x"', "1", 1))[0].endswith('"city": ')


def test_later_calls_have_their_number(backend):
    compiled = held(backend, KimiK2())
    tag = KimiK2().call_tag(WEATHER)
    calls = [f'{begin}{{"city": "x"}}{tag.end}' for begin in (tag.begin, *tag.others)]

    assert followed(compiled, "".join(calls)) == ("".join(calls), True)
    assert followed(compiled, calls[12].replace(":12", ":99"))[0].endswith(":9")


def test_an_end_of_the_text_is_in_no_tag(backend):
    compiled = held(backend, DeepSeekV31())
    state = compiled.start()
    for token_id in TOKENIZER.encode(DeepSeekV31().call_tag(WEATHER).begin):
        assert state.advance(token_id)
        assert not mask_of(state)[EOS]
        assert not state.is_complete


def test_families_whose_marks_cannot_arm_anything_are_not_held():
    harmony = {mark: i for i, mark in enumerate(sorted(GptOss.visible_markers))}

    assert strict_form(GptOss(), TOOLS, harmony) is None, "its mark begins messages of all kinds"
    assert strict_form(Mistral(), TOOLS, {"[TOOL_CALLS]": 5}) is None, "the older ones write lists"
    assert strict_form(Hermes(), TOOLS, {"<s>": 1}).to_grammar().text.count("special") == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"special_tokens": {"<a>": SIZE}}, "none of the vocabulary"),
        ({"special_tokens": {"</a>": 5}}, "the trigger '<a>' is no special token"),
        ({"at_least_one": True}, "neither required nor the last"),
        ({"tags": [{"begin": "<a>", "schema": {"not": {}}, "end": "</a>"}]}, "not"),
    ],
)
def test_g2_what_cannot_be_held_to_is_refused(backend, change, reason):
    plain = {
        "triggers": ["<a>"], "tags": [{"begin": "<a>", "schema": {}, "end": "</a>"}],
        "at_least_one": False, "stop_after_first": False, "special_tokens": {"<a>": 3, "</a>": 4},
    }  # fmt: skip
    with pytest.raises(GrammarError, match=reason):
        backend.compile(GrammarSpec("structural_tag", json.dumps(plain | change)))


@pytest.mark.parametrize("back_end", [LLGuidance, XGrammar])
def test_g4_many_tags_have_the_time_of_one(back_end):
    backend = back_end(OPTIONS[back_end](max_compile_s=0.5), GrammarContext(TOKENIZER, SIZE))
    tools = [
        ToolSpec(f"t{i}", {"type": "object", "properties": {f"p{i}": {}}}, is_strict=True)
        for i in range(3000)
    ]
    form = strict_form(DeepSeekV31(), tools, MARKS)
    started_s = time.monotonic()
    with pytest.raises(GrammarError, match="compiling takes too long"):
        backend.compile(form.to_grammar())

    assert time.monotonic() - started_s < 10
    backend.close()


@pytest.mark.parametrize("given", [[1], {"<a>": "1"}, {"<a>": True}, {"": 1}])
def test_what_are_no_special_tokens_is_refused(given):
    tags = {"structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<a>"]}
    with pytest.raises(RequestError, match="special_tokens must be an object of token ids"):
        plain_tags(tags | {"special_tokens": given})
