"""Speculation on tiny models: the text is the same token for token, whoever guesses.

Drafts cost nothing here (the costs are set), so that as many as may be are made and verified.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byte_models import EOS, LLAMA, MINISTRAL, random_prompt, save_byte_model, values_of
from draft_proposers import all_right, all_wrong, by_turns, knowing
from fixed_costs import make_drafts_free
from octavo import LLM, SamplingParams

LETTERS = b"abcdefgh"
#: outputs of eight letters: they repeat themselves, and stop strings and bad words can be met
FAVOURED = dict.fromkeys(LETTERS, 12.0)
GREEDY = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, logit_bias=FAVOURED)
SEEDED = replace(GREEDY, temperature=1, seed=5)
NGRAM = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}
DRAFT = {"method": "draft_model", "model": "target", "num_speculative_tokens": 4}

PARAMS = (
    GREEDY,
    SEEDED,
    replace(GREEDY, logprobs=3),
    replace(SEEDED, logprobs=0, seed=6),
    replace(GREEDY, stop=["ab", "c"]),
    replace(SEEDED, stop="a", include_stop_str_in_output=True),
    replace(SEEDED, ignore_eos=False, stop_token_ids=[97, 98], logprobs=1),
    replace(SEEDED, ignore_eos=False, stop_token_ids=[97, 98], min_tokens=9),
    replace(SEEDED, ignore_eos=False, min_tokens=3, logit_bias={**FAVOURED, EOS: 12.0}),
    replace(GREEDY, presence_penalty=1.5, frequency_penalty=1.0, repetition_penalty=1.3),
    replace(SEEDED, presence_penalty=-1.0, frequency_penalty=0.5, seed=7),
    replace(SEEDED, bad_words=["a", "bc", "def", "hh"], seed=8),
    replace(GREEDY, bad_words=["a", "bc", "def", "hh"], allowed_token_ids=list(LETTERS)),
    replace(SEEDED, logit_bias=None, allowed_token_ids=list(LETTERS[:3])),
    replace(SEEDED, logit_bias=None, top_k=5, top_p=0.9, logprobs=2),
    replace(SEEDED, logit_bias=None, min_p=0.2, max_tokens=3),
    replace(SEEDED, max_tokens=1),
    replace(SEEDED, n=3, max_tokens=20, logprobs=1),
)
PROMPTS = [
    random_prompt(6 + 3 * i, seed=i) + list(LETTERS[:5] * 2 if i % 2 else b"")
    for i in range(len(PARAMS))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def _free_drafts(monkeypatch):
    make_drafts_free(monkeypatch)


def open_llm(folder, **settings):
    return LLM(folder, **{"max_num_seqs": 12, "threads": 1, "max_model_len": 256, **settings})


def run(llm, prompts=PROMPTS, params=PARAMS):
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert not any(one.finish_reason == "error" for output in outputs for one in output.outputs)
    return outputs


def assert_same(outputs, expected):
    for index, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        for one, other in zip(output.outputs, wanted.outputs, strict=True):
            assert list(one.token_ids) == list(other.token_ids), index
            assert one.text == other.text, index
            assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
            assert (one.logprobs is None) == (other.logprobs is None), index
            if one.logprobs is None:
                continue
            assert len(one.logprobs) == len(one.token_ids)
            for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
                assert list(mine) == list(theirs), index
                values = [entry.logprob for entry in mine.values()]
                assert values == pytest.approx(
                    [entry.logprob for entry in theirs.values()], abs=1e-3
                )
                assert [e.rank for e in mine.values()] == [e.rank for e in theirs.values()]


@pytest.fixture(scope="module")
def plain(folder):
    """What is generated without drafts, all together."""
    with open_llm(folder, enable_prefix_caching=False) as llm:
        outputs = run(llm)
    lengths = {len(one.token_ids) for output in outputs for one in output.outputs}
    assert len(lengths) > 4, "some should end early"
    return outputs


def texts_of(outputs):
    return [
        list(output.prompt_token_ids) + list(one.token_ids)
        for output in outputs
        for one in output.outputs
    ]


SPECULATING = {
    "ngram": lambda _: {"speculative_config": NGRAM},
    "first-layer": lambda _: {"speculative_config": {**DRAFT, "num_layers": 1}},
    "itself": lambda _: {"speculative_config": DRAFT},
    "all-right": lambda texts: {"proposer": all_right(texts)},
    "all-wrong": lambda texts: {"proposer": all_wrong(texts)},
    "by-turns": lambda texts: {"proposer": by_turns(texts)},
}


@pytest.mark.parametrize(
    ("who", "depth"), [*((who, 0) for who in SPECULATING), ("ngram", 1), ("itself", 1)]
)
def test_the_text_is_the_same_whoever_guesses(folder, plain, who, depth):
    with open_llm(folder, depth=depth, **SPECULATING[who](texts_of(plain))) as llm:
        first = run(llm)
        again = run(llm)  # now with prefix hits
        stats = llm.get_metrics()

    assert_same(first, plain)
    assert_same(again, plain)
    assert any(output.num_cached_tokens for output in again)
    assert stats.draft_tokens > 100
    assert (stats.accepted_tokens > 0) == (who != "all-wrong")


@pytest.mark.parametrize("who", ["ngram", "first-layer", "by-turns"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 16, "block_size": 4},
        {"num_gpu_blocks_override": 60, "block_size": 4, "max_model_len": 128},
        {
            "num_gpu_blocks_override": 60, "block_size": 4, "max_model_len": 128, "depth": 1,
            "max_num_batched_tokens": 24, "enable_prefix_caching": False,
        },
    ],
    ids=["chunks", "preempting", "preempting-chunks"],
)  # fmt: skip
def test_chunks_and_preemption_change_nothing(folder, plain, who, settings):
    with open_llm(folder, **settings, **SPECULATING[who](texts_of(plain))) as llm:
        outputs = run(llm)
        stats = llm.get_metrics()

    assert_same(outputs, plain)
    assert stats.draft_tokens > 0
    assert (stats.preemptions > 0) == ("num_gpu_blocks_override" in settings)


def test_drafts_that_are_all_right_save_steps_and_none_is_lost(folder):
    prompt, params = random_prompt(9), replace(SEEDED, max_tokens=61, logit_bias=None)
    with open_llm(folder) as llm:
        (expected,) = run(llm, [prompt], params)
        num_plain = llm.get_metrics().step
    with open_llm(folder, proposer=all_right(texts_of([expected]))) as llm:
        (output,) = run(llm, [prompt], params)
        stats = llm.get_metrics()

    assert_same([output], [expected])
    assert num_plain == 61
    assert stats.step == 1 + 60 // 6  # one for the prompt, then five drafts and one more each
    assert stats.draft_tokens == stats.accepted_tokens == 50


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_model_that_drafts_for_itself_is_always_right(folder, temperature):
    """Its drafts are drawn as the model draws, with the noise of their positions."""
    prompt = random_prompt(9)
    params = replace(SEEDED, max_tokens=61, logit_bias=None, temperature=temperature)
    with open_llm(folder) as llm:
        (expected,) = run(llm, [prompt], params)
    with open_llm(folder, speculative_config=DRAFT) as llm:
        (output,) = run(llm, [prompt], params)
        stats = llm.get_metrics()

    assert_same([output], [expected])
    # 4 of every 5 tokens, but for a first attempt that is short
    assert 45 <= stats.draft_tokens == stats.accepted_tokens <= 48
    assert 1 + 60 / 5 <= stats.step <= 2 + 60 / 5  # also where its drafts begin a block


def test_B112_a_first_draft_that_is_wrong_is_not_accepted(folder):
    prompt = [7, 7, 7]
    params = replace(GREEDY, logit_bias=None, max_tokens=1)
    with open_llm(folder) as llm:
        (expected,) = run(llm, [prompt], params)
    assert expected.outputs[0].token_ids[0] != 7
    for num_tokens in (1, 5):
        config = {**NGRAM, "num_speculative_tokens": num_tokens}
        with open_llm(folder, speculative_config=config) as llm:
            assert_same(run(llm, [prompt], params), [expected])
            longer = run(llm, [prompt], replace(params, max_tokens=9))
            assert longer[0].outputs[0].token_ids[0] == expected.outputs[0].token_ids[0]


# ---------------------------------------------------------------------- ends inside accepted runs


def ended(folder, params, **settings):
    with open_llm(folder, **settings) as llm:
        return run(llm, [random_prompt(9)], params)


@pytest.fixture(scope="module")
def letters(folder):
    """Return thirty letters that the model writes, by themselves."""
    (output,) = ended(folder, SEEDED)
    assert output.outputs[0].text.encode() == bytes(output.outputs[0].token_ids)
    return output


@pytest.mark.parametrize("end", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("is_token", [False, True])
def test_B105_a_stop_inside_an_accepted_run_that_crosses_the_limit(folder, letters, end, is_token):
    """The stop is at output token 3, the limit before, at, or after it, all in one run."""
    text = letters.outputs[0].text
    if is_token:
        params = replace(SEEDED, max_tokens=end, stop_token_ids=[ord(text[2])], ignore_eos=True)
    else:
        params = replace(SEEDED, max_tokens=end, stop=[text[1:3]])
    plain = ended(folder, params)
    drafted = ended(folder, params, proposer=all_right(texts_of([letters])))

    assert_same(drafted, plain)
    is_stopped = text.find(text[1:3]) + 2 <= end if not is_token else text.find(text[2]) < end
    assert drafted[0].outputs[0].finish_reason == ("stop" if is_stopped else "length")


def test_B107_a_stop_string_in_the_middle_of_a_run_ends_the_text_there(folder, letters):
    text = letters.outputs[0].text
    stop = text[6:9]  # the first run of drafts holds it, and more text
    plain = ended(folder, replace(SEEDED, stop=[stop]))
    drafted = ended(folder, replace(SEEDED, stop=[stop]), proposer=all_right(texts_of([letters])))

    assert_same(drafted, plain)
    assert drafted[0].outputs[0].text == text[: text.find(stop)]
    assert drafted[0].outputs[0].stop_reason == stop


@pytest.mark.parametrize("num_good", [0, 1, 3, 7])
def test_what_fails_behind_good_tokens_fails_after_them(folder, letters, num_good):
    def failing(output_ids, logits):
        if len(output_ids) == num_good:
            raise ValueError("no more")
        return logits

    params = replace(SEEDED, logits_processors=[failing])
    choices = []
    for settings_ in ({}, {"proposer": all_right(texts_of([letters]))}):
        with open_llm(folder, **settings_) as llm:
            (output,) = llm.generate([random_prompt(9)], params, use_tqdm=False)
        choices.append(output.outputs[0])
    plain, drafted = choices

    assert len(plain.token_ids) == num_good
    assert (drafted.token_ids, drafted.text) == (plain.token_ids, plain.text)
    assert drafted.finish_reason == plain.finish_reason == "error"
    assert drafted.error == plain.error == "ValueError: no more"


def test_B109_logprobs_beside_a_prompt_that_comes_in_chunks(folder):
    prompts = [list(LETTERS * 2), list(LETTERS[:3] * 5), random_prompt(100)]
    params = replace(GREEDY, max_tokens=24, logprobs=2)
    expected = []
    with open_llm(folder, enable_prefix_caching=False) as llm:
        for prompt in prompts:
            expected += run(llm, [prompt], params)
    with open_llm(folder, max_num_batched_tokens=32, speculative_config=NGRAM) as llm:
        outputs = run(llm, prompts, params)
        assert llm.get_metrics().accepted_tokens > 0

    assert_same(outputs, expected)
    for output in outputs:
        choice = output.outputs[0]
        assert len(values_of(choice.logprobs, choice.token_ids)) == 24


@pytest.mark.parametrize("config", [None, NGRAM, DRAFT], ids=["plain", "ngram", "draft-model"])
def test_B86_B88_seeded_texts_do_not_depend_on_company_or_order(folder, config):
    prompts = [random_prompt(8, seed) for seed in range(6)]
    seeded = [replace(SEEDED, seed=seed) for seed in range(6)]
    unseeded = replace(SEEDED, seed=None)
    with open_llm(folder, speculative_config=config, enable_prefix_caching=False) as llm:
        forth = run(llm, prompts, seeded)
        back = run(llm, prompts[::-1], seeded[::-1])[::-1]
        beside = run(llm, [*prompts[:2], prompts[2]], [*seeded[:2], unseeded])[:2]
    with open_llm(folder, enable_prefix_caching=False) as llm:
        alone = [run(llm, [p], s)[0] for p, s in zip(prompts, seeded, strict=True)]

    for outputs in (forth, back):
        assert_same(outputs, alone)
    assert_same(beside, alone[:2])


# ---------------------------------------------------------------------- random drafts


@pytest.fixture(scope="module")
def crowd(folder):
    """Four requests, greedy and seeded, without drafts."""
    with open_llm(folder) as llm:
        return run(llm, PROMPTS[:4], PARAMS[:4])


@given(data=st.data(), num_blocks=st.sampled_from([30, 200]), depth=st.integers(0, 1))
@settings(max_examples=12, deadline=None)
def test_any_drafts_of_any_length_change_nothing(folder, crowd, data, num_blocks, depth):
    plans = data.draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=7, max_size=7)
    )
    guesses = knowing(texts_of(crowd), lambda place: plans[place % 7], most=6)
    settings_ = {"num_gpu_blocks_override": num_blocks, "block_size": 4, "max_model_len": 100}
    with open_llm(folder, proposer=guesses, depth=depth, **settings_) as llm:
        assert_same(run(llm, PROMPTS[:4], PARAMS[:4]), crowd)


# ---------------------------------------------------------------------- other shapes of models


@pytest.mark.parametrize("config", [NGRAM, DRAFT], ids=["ngram", "draft-model"])
def test_windows_beside_full_attention(tmp_path, config):
    """Blocks of windows are freed as they leave, those that the draft model reads are not."""
    folder = save_byte_model(MINISTRAL, tmp_path)
    prompts, params = PROMPTS[:6], [replace(one, max_tokens=32) for one in PARAMS[:6]]
    shape = {"block_size": 4, "max_model_len": 64}
    with open_llm(folder, **shape) as llm:
        expected = run(llm, prompts, params)
    with open_llm(folder, **shape, speculative_config=config) as llm:
        first, again = run(llm, prompts, params), run(llm, prompts, params)
        assert llm.get_metrics().accepted_tokens > 0

    assert_same(first, expected)
    assert_same(again, expected)
