"""Windows and states in blocks: tokens do not change by chunks, blocks, hits, preemption or depth.

Tiny models with several groups of layers, whose greedy tokens are compared with transformers' (a
tiny Gemma 3, a tiny Mistral) or with those of a twin that computes everything anew (a hybrid with
linear attention).
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tiny_models
from byte_models import (
    GEMMA3,
    MISTRAL,
    expected_logprobs,
    random_prompt,
    save_byte_model,
    save_tokenizer,
    values_of,
)
from hybrid_twin import FULL, LINEAR, SLIDING, Hybrid
from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.config.resolve import resolve
from octavo.engine.build import build_engine
from octavo.errors import UnsupportedError
from octavo.testing.engines import request
from tiny_models import Variant

if TYPE_CHECKING:
    from octavo.engine.engine import Engine

HYBRID = Hybrid((LINEAR, SLIDING, LINEAR, FULL), vocab_size=258, window=16)
STATES = Hybrid((LINEAR, SLIDING), vocab_size=258, window=16)
WINDOWS = Variant(
    "Mistral-long", "Mistral", options={**MISTRAL.options, "max_position_embeddings": 1024}
)
MODELS = {"gemma3": GEMMA3, "hybrid": HYBRID, "states": STATES, "windows": WINDOWS}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
SCORED = replace(GREEDY, max_tokens=1, prompt_logprobs=1)
PROMPTS = [random_prompt(n, seed) for seed, n in enumerate((5, 47, 100, 32))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    paths = {}
    for name, model in MODELS.items():
        folder = tmp_path_factory.mktemp(name)
        if isinstance(model, Hybrid):
            model.save(folder)
            save_tokenizer(folder)
        else:
            save_byte_model(model, folder)
        paths[name] = str(folder)
    return paths


def open_llm(folder: str, **settings: Any) -> LLM:
    return LLM(folder, **{"max_num_seqs": 8, "threads": 1, **settings})


def run(llm: LLM, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


@functools.cache
def _logits(name: str, token_ids: tuple[int, ...]) -> torch.Tensor:
    model = MODELS[name]
    if isinstance(model, Hybrid):
        return model.logits(list(token_ids))
    return tiny_models.reference_logits(model, list(token_ids))


def assert_greedy(name: str, output) -> None:
    """Each token is the likeliest after those before it."""
    prompt, choice = output.prompt_token_ids, output.outputs[0]
    logits = _logits(name, (*prompt, *choice.token_ids))
    expected = logits[len(prompt) - 1 : -1].argmax(-1).tolist()
    assert list(choice.token_ids) == expected


# ---------------------------------------------------------------------- chunks, blocks and hits


@pytest.mark.parametrize(
    ("num_batched", "block_size", "depth"), [(512, 16, 0), (20, 4, 1), (33, 16, 1), (16, 1, 0)]
)
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_the_models_in_any_chunks_and_blocks(
    folders, name, num_batched, block_size, depth
):
    settings = {"max_num_batched_tokens": num_batched, "block_size": block_size, "depth": depth}
    with open_llm(folders[name], **settings) as llm:
        first = run(llm, PROMPTS, GREEDY)
        again = run(llm, PROMPTS, GREEDY)
    for output, second, prompt in zip(first, again, PROMPTS, strict=True):
        assert_greedy(name, output)
        assert_greedy(name, second)
        assert output.num_cached_tokens == 0
        assert second.num_cached_tokens == (len(prompt) - 1) // block_size * block_size


@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_the_models_without_prefix_caching(folders, name):
    with open_llm(folders[name], enable_prefix_caching=False, max_num_batched_tokens=40) as llm:
        for _ in range(2):
            for output in run(llm, PROMPTS, GREEDY):
                assert output.num_cached_tokens == 0
                assert_greedy(name, output)


@pytest.mark.parametrize("name", MODELS)
def test_a_hit_ends_where_two_prompts_part(folders, name):
    stem = random_prompt(50, 7)
    prompts = [[*stem[:length], *random_prompt(30, length)] for length in (50, 49, 37, 20, 3)]
    with open_llm(folders[name], block_size=4) as llm:
        for prompt in prompts:
            (output,) = run(llm, [prompt], GREEDY)
            assert_greedy(name, output)
        # the longer the common beginning, the longer the hit: also where windows have moved on
        for length in (50, 49, 37, 20, 3):
            (output,) = run(llm, [[*stem[:length], *random_prompt(9, 99 + length)]], GREEDY)
            assert output.num_cached_tokens == length // 4 * 4
            assert_greedy(name, output)


@pytest.mark.parametrize("name", MODELS)
def test_a_conversation_goes_on_from_its_own_answer(folders, name):
    with open_llm(folders[name], block_size=4, max_num_batched_tokens=32) as llm:
        prompt, known = random_prompt(30), 1
        for turn in range(3):
            (output,) = run(llm, [prompt], GREEDY)
            assert_greedy(name, output)
            # all that the turn before computed: its last token was only sampled
            assert output.num_cached_tokens == (known - 1) // 4 * 4
            known = len(prompt) + len(output.outputs[0].token_ids)
            prompt = [*prompt, *output.outputs[0].token_ids, *random_prompt(10, turn)]


# ---------------------------------------------------------------------- preemption and choices

CROWD = [random_prompt(20, seed) for seed in range(6)]
LONG = replace(GREEDY, max_tokens=50)


@pytest.mark.parametrize("settings", [{}, {"depth": 1}, {"enable_prefix_caching": False}], ids=str)
@pytest.mark.parametrize(("name", "num_blocks"), [("gemma3", 60), ("hybrid", 90)])
def test_B101_preempted_requests_have_the_models_tokens(folders, name, num_blocks, settings):
    tight = {"num_gpu_blocks_override": num_blocks, "block_size": 4, "max_model_len": 80}
    with open_llm(folders[name], max_num_batched_tokens=32, **tight, **settings) as llm:
        outputs = run(llm, CROWD, LONG)
        assert llm.get_metrics().preemptions > 0
    for output in outputs:
        assert_greedy(name, output)


@pytest.mark.parametrize("name", ["gemma3", "hybrid"])
def test_choices_of_one_prompt_share_it_and_are_those_of_a_run_without_sharing(folders, name):
    params = SamplingParams(temperature=1, seed=5, n=3, max_tokens=30, ignore_eos=True)
    prompts = [random_prompt(41), random_prompt(18, 1)]
    with open_llm(folders[name], block_size=4, max_num_batched_tokens=24) as llm:
        shared = run(llm, prompts, params)
        assert llm.get_metrics().prefix_hits_tokens > 0
    with open_llm(folders[name], enable_prefix_caching=False) as llm:
        plain = run(llm, prompts, params)
    for one, other in zip(shared, plain, strict=True):
        ours = [choice.token_ids for choice in one.outputs]
        assert ours == [choice.token_ids for choice in other.outputs]
        assert len(set(map(tuple, ours))) == 3


# ---------------------------------------------------------------------- blocks are given back


def engine_of(folder: str, **settings: Any) -> Engine:
    overrides = {"model": folder, "threads": 1, "block_size": 4, "max_num_seqs": 2, **settings}
    return build_engine(resolve(overrides=overrides))


def follow(engine: Engine, prompt: list[int], num_tokens: int, name: str = "one"):
    """Run a request to its end. Return its tokens, and the blocks of each group at each step."""
    engine.add(request(name, prompt, num_tokens, temperature=0, ignore_eos=True))
    tokens: list[int] = []
    held: list[list[int]] = []
    while engine.has_work:
        for output in engine.step():
            tokens += output.token_ids
            hits = output.num_cached_tokens
        held += [
            [sum(map(bool, ids)) for ids in running.table.groups] for running in engine.core.running
        ]
    return tokens, held, hits


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_blocks_out_of_reach_are_given_back_while_a_text_grows(folders, name, depth):
    engine = engine_of(folders[name], depth=depth, max_num_batched_tokens=8)
    prompt = random_prompt(30)
    tokens, held, _ = follow(engine, prompt, 150)
    reaches = [group.reach for group in engine.core.allocator.context.groups]
    for group, reach in enumerate(reaches):
        most = max(row[group] for row in held)
        if reach is None:
            assert most == -(-(30 + 150) // 4)
        else:  # what is within reach, the block being written, and steps in flight
            assert most <= -(-reach // 4) + 2 + (depth + 1) * 2
    ids = (*prompt, *tokens)
    assert tokens == _logits(name, ids)[29:-1].argmax(-1).tolist()
    counts = engine.core.allocator.counts()
    assert counts.used == 0
    # a text that goes on from the middle of this one, whose window has long left it
    for length in (180, 100, 45):
        start = list(ids[:length])
        new = [*start, *random_prompt(3, length)]
        tokens, _, hits = follow(engine, new, 12, f"from {length}")
        assert tokens == _logits(name, (*new, *tokens))[len(new) - 1 : -1].argmax(-1).tolist()
        assert hits == min(length, 179) // 4 * 4
    engine.close()


@pytest.mark.parametrize("name", ["windows", "states"])
def test_a_long_text_takes_no_more_blocks_than_a_window(folders, name):
    """Without a layer that sees all, the blocks in use do not grow with the text."""
    engine = engine_of(folders[name], enable_prefix_caching=False)
    _, held, _ = follow(engine, random_prompt(10), 300)
    first, second = (max(map(sum, part)) for part in (held[20:100], held[100:]))
    assert first == second <= 8
    engine.close()


def test_when_what_a_window_needs_is_evicted_the_hit_is_shorter(folders):
    """The full group still has all blocks of the prompt; a hit needs the window's too."""
    engine = engine_of(folders["gemma3"], num_gpu_blocks_override=80)
    prompt = random_prompt(41)
    tokens, _, _ = follow(engine, prompt, 4)
    allocator = engine.core.allocator
    reaches = [group.reach for group in allocator.context.groups]
    window = reaches.index(15)
    # evict the window's last block before position 40
    names = [(block, name) for block, name in enumerate(allocator._name_of) if name]
    wanted = tuple(prompt[36:40])
    (victim,) = [b for b, (key, group) in names if group == window and key.tokens == wanted]
    allocator._eviction.remove(victim)
    allocator._forget(victim)
    allocator._free.append(victim)
    again, _, hits = follow(engine, prompt, 4, "again")
    assert hits == 36
    assert again == tokens
    third, _, hits = follow(engine, prompt, 4, "third")
    assert (hits, third) == (40, tokens)
    engine.close()


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["hybrid", "states"])
def test_drafts_are_refused_at_start_where_states_cannot_take_them_back(folders, name):
    with pytest.raises(UnsupportedError) as caught:
        open_llm(folders[name], speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    assert str(caught.value).splitlines() == [
        "the proposer 'ngram' cannot be used with this model",
        "  some of its layers keep one state, which cannot take back tokens that were guessed",
        "  use --proposer none",
    ]


def test_drafts_change_no_token_where_windows_move(folders):
    drafting = {"method": "ngram", "num_speculative_tokens": 4}
    prompts = [[*random_prompt(9, seed)] * 5 for seed in range(3)]
    settings = {"block_size": 4, "max_num_batched_tokens": 32}
    with open_llm(folders["gemma3"], speculative_config=drafting, **settings) as llm:
        for output in run(llm, prompts, replace(GREEDY, max_tokens=60)):
            assert_greedy("gemma3", output)
        assert llm.get_metrics().draft_tokens > 0


@pytest.mark.parametrize("name", ["gemma3", "hybrid", "states"])
def test_what_a_grammar_forces_is_never_taken_back_from_a_state(folders, name):
    """Forced tokens are verified as drafts: several positions of a state in one step."""
    form = StructuredOutputsParams(regex="abcdefghijk[m-p]{6}(qrstuvw|QRSTUVW)xyz[m-p]{9}")
    params = replace(GREEDY, ignore_eos=False, max_tokens=60, structured_outputs=form)
    prompts = [[token % 128 for token in random_prompt(n, n)] for n in (9, 30)]
    with open_llm(folders[name], block_size=4, max_num_batched_tokens=24) as llm:
        outputs = run(llm, prompts, params)
        again = run(llm, prompts, params)
        assert llm.get_metrics().draft_tokens > 0
    letters = list(b"mnop")
    for output, second in zip(outputs, again, strict=True):
        prompt, text = output.prompt_token_ids, output.outputs[0].text
        assert second.outputs[0].text == text
        ids = [*prompt, *text.encode()]
        logits = _logits(name, tuple(ids))
        for place, token in enumerate(text.encode()):
            if token in letters:  # free to choose: the likeliest of those that are allowed
                row = logits[len(prompt) + place - 1]
                assert token == letters[int(row[letters].argmax())]


@pytest.mark.parametrize("name", ["gemma3", "hybrid"])
def test_an_allocator_without_groups_refuses_the_model(folders, name):
    with pytest.raises(UnsupportedError, match="the allocator 'contiguous' serves models whose"):
        open_llm(folders[name], allocator="contiguous")


# ---------------------------------------------------------------------- cases


def assert_scored(name: str, output) -> None:
    ids = output.prompt_token_ids
    values = values_of(output.prompt_logprobs, ids)
    if name == "gemma3":
        expected = expected_logprobs(GEMMA3, ids)
    else:
        logprobs = _logits(name, tuple(ids)).log_softmax(-1)[:-1]
        expected = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
    assert len(values) == len(ids) - 1
    assert values == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("num_batched", [512, 20])
@pytest.mark.parametrize("name", ["gemma3", "hybrid"])
def test_B100_a_prompt_longer_than_the_window_in_one_pass(folders, name, num_batched):
    with open_llm(folders[name], max_num_batched_tokens=num_batched) as llm:
        (output,) = run(llm, [random_prompt(50)], SCORED)
    assert_scored(name, output)


@pytest.mark.parametrize("name", ["gemma3", "hybrid"])
def test_B43_B91_scores_are_the_models_whatever_is_cached(folders, name):
    prompts = [random_prompt(48) + random_prompt(20, seed) for seed in (1, 2)]
    with open_llm(folders[name], block_size=16) as llm:
        run(llm, prompts[:1], GREEDY)
        for order in (prompts, prompts[::-1], prompts[:1]):
            for output in run(llm, order, SCORED):
                assert_scored(name, output)


@pytest.mark.parametrize("num_tokens", [32, 33])
@pytest.mark.parametrize("name", ["gemma3", "hybrid"])
def test_B93_a_prompt_that_is_all_in_the_cache(folders, name, num_tokens):
    prompt = random_prompt(num_tokens)
    with open_llm(folders[name], block_size=16) as llm:
        outputs = [run(llm, [prompt], GREEDY)[0] for _ in range(3)]
        outputs += run(llm, [prompt] * 3, GREEDY)
    hits = [output.num_cached_tokens for output in outputs]
    assert hits == [0] + [(num_tokens - 1) // 16 * 16] * 5
    for output in outputs:
        assert_greedy(name, output)


@pytest.mark.parametrize("name", ["gemma3", "hybrid"])
def test_B95_a_system_prompt_shared_by_questions(folders, name):
    system = random_prompt(80, 3)
    questions = [random_prompt(12, seed) for seed in (4, 5)]
    with open_llm(folders[name]) as llm:
        for turn, question in enumerate((questions[0], questions[1], questions[0])):
            (output,) = run(llm, [[*system, *question]], GREEDY)
            assert_greedy(name, output)
            assert output.num_cached_tokens == 80 * (turn > 0)
