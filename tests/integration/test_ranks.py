"""A tiny model between two processes, SmolLM2 between three: as in one, and never a rank left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

import tiny_models
from byte_models import LLAMA, random_prompt, save_byte_model
from octavo import LLM, LoRARequest, SamplingParams, StructuredOutputsParams
from octavo.config.resolve import resolve
from octavo.errors import ConfigError, EngineDeadError, ModelLoadError
from octavo_plugins.executors.ranks import RanksExecutor
from peft_folders import Lora, write_adapter
from server_process import octavo_serve

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
SIZES = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256, "max_logprobs": -1}
SMALL = {**SIZES, "num_gpu_blocks_override": 40, "threads": 1}
VOCAB = 258
RANK = "octavo_plugins.executors.rank_process"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def whole(path):
    with LLM(path, **SMALL) as llm:
        yield llm


@pytest.fixture(scope="module")
def split(path):
    with LLM(path, tensor_parallel_size=2, **SMALL) as llm:
        yield llm


def ranks_of(pid: int | None = None) -> list[psutil.Process]:
    """Return the processes of ranks that a process has started, this one without `pid`."""
    children = psutil.Process(pid).children(recursive=True)
    return [one for one in children if RANK in _command_of(one)]


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ends just now
        return []


@pytest.fixture
def new_ranks():
    """Return a function that returns the ranks that this test has started."""
    before = set(ranks_of())
    return lambda: [one for one in ranks_of() if one not in before]


def run(llm, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


def assert_same_scores(ours, theirs):
    """Compare the log-probabilities of the whole vocabulary, at every position."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.keys() == other.keys()
            for token_id, entry in one.items():
                assert entry.logprob == pytest.approx(other[token_id].logprob, abs=1e-4)


def test_scores_of_the_whole_vocabulary_and_greedy_tokens_are_those_of_one_rank(whole, split):
    prompts = [random_prompt(num, num) for num in (5, 70, 19)]
    params = replace(GREEDY, logprobs=VOCAB, prompt_logprobs=VOCAB)
    for one, other in zip(run(split, prompts, params), run(whole, prompts, params), strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert_same_scores(one.outputs[0].logprobs, other.outputs[0].logprobs)
        assert_same_scores(one.prompt_logprobs, other.prompt_logprobs)


def test_seeded_requests_penalties_and_preemption_are_those_of_one_rank(whole, split):
    prompts = [random_prompt(40 + num, num) for num in range(4)]
    params = SamplingParams(
        temperature=0.8, top_p=0.9, seed=3, max_tokens=200, ignore_eos=True,
        repetition_penalty=1.1, bad_words=["e"], logit_bias={70: 2.0},
    )  # fmt: skip
    before = split.get_metrics().preemptions
    ours = run(split, prompts, params)
    assert split.get_metrics().preemptions > before
    for one, other in zip(ours, run(whole, prompts, params), strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids


def test_a_prompt_of_several_steps_is_that_of_one_rank(whole, split):
    prompts = [random_prompt(3 * SMALL["max_num_batched_tokens"] + 5, 9)]  # steps without a draw
    ours, theirs = (run(llm, prompts, GREEDY)[0].outputs[0] for llm in (split, whole))
    assert ours.error is None
    assert ours.token_ids == theirs.token_ids


def test_processors_fail_their_own_request_and_no_other(whole, split):
    prompts = [random_prompt(5, 1), random_prompt(6, 2)]
    with_processor = replace(GREEDY, logits_processors=[lambda ids, logits: logits])
    refused, good = run(split, prompts, [with_processor, GREEDY])
    assert refused.outputs[0].finish_reason == "error"
    assert refused.outputs[0].token_ids == []
    assert refused.outputs[0].error == (
        "logits_processors are callables, which cannot be sent to the ranks of a split model; "
        "use tensor_parallel_size=1"
    )
    (expected,) = run(whole, prompts[1:], GREEDY)
    assert good.outputs[0].token_ids == expected.outputs[0].token_ids
    # the row that was refused is used again
    (again,) = run(split, prompts[:1], GREEDY)
    (expected,) = run(whole, prompts[:1], GREEDY)
    assert again.outputs[0].token_ids == expected.outputs[0].token_ids


def test_tokens_depend_neither_on_planning_ahead_nor_on_drafts(path, whole):
    prompts, params = (
        [random_prompt(7, 1), random_prompt(9, 2) * 3],
        replace(GREEDY, max_tokens=180),
    )
    drafting = {"method": "ngram", "num_speculative_tokens": 3}
    with LLM(path, tensor_parallel_size=2, depth=1, speculative_config=drafting, **SMALL) as llm:
        ours = run(llm, prompts, params)
        assert llm.get_metrics().draft_tokens > 0
    for one, other in zip(ours, run(whole, prompts, params), strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids


def test_adapters_are_shared_out_and_give_the_text_of_one_rank(whole, split, tmp_path):
    weights = tiny_models.reference_model(LLAMA).state_dict()
    adapter = LoRARequest("a", 1, str(write_adapter(tmp_path / "a", weights, Lora(seed=1))))
    prompts, params = [random_prompt(9, 1), random_prompt(9, 1)], replace(GREEDY, logprobs=5)
    wanted = [adapter, None]
    ours = split.generate(prompts, params, use_tqdm=False, lora_request=wanted)
    theirs = whole.generate(prompts, params, use_tqdm=False, lora_request=wanted)
    for one, other in zip(ours, theirs, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert_same_scores(one.outputs[0].logprobs, other.outputs[0].logprobs)
    assert ours[0].outputs[0].token_ids != ours[1].outputs[0].token_ids


def test_what_no_rank_can_load_is_the_error_of_its_request(split, tmp_path):
    absent = LoRARequest("b", 2, str(tmp_path / "nothing"))
    prompts, wanted = [random_prompt(4, 1)] * 2, [absent, None]
    refused, good = split.generate(prompts, GREEDY, use_tqdm=False, lora_request=wanted)
    assert refused.outputs[0].finish_reason == "error"
    assert str(tmp_path / "nothing") in refused.outputs[0].error
    assert len(good.outputs[0].token_ids) == 24


def test_grammars_are_followed_by_all_ranks(whole, split):
    form = StructuredOutputsParams(choice=["split between ranks", "all in one"])
    params = replace(GREEDY, structured_outputs=form, max_tokens=40)
    prompts = [random_prompt(5, 1), random_prompt(6, 2)]
    ours, theirs = run(split, prompts, [params, GREEDY]), run(whole, prompts, [params, GREEDY])
    assert ours[0].outputs[0].text in form.choice
    for one, other in zip(ours, theirs, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids


# ---------------------------------------------------------------------- how it is chosen


def test_auto_chooses_ranks_for_more_than_one(path):
    assert resolve(overrides={"model": path}).chosen["executor"].name == "inline"
    chosen = resolve(flags={"model": path, "tensor-parallel-size": "2"}).chosen["executor"]
    assert chosen.name == "ranks"
    assert "not inline: it is one process, and tensor-parallel-size is 2" in chosen.why


def test_inline_is_one_process(path):
    with pytest.raises(ConfigError) as error:
        LLM(path, executor="inline", tensor_parallel_size=2)
    assert str(error.value).splitlines() == [
        "the executor 'inline' is one process, and tensor-parallel-size is 2",
        "  use --executor ranks, or leave the choice to 'auto'",
    ]


def test_a_size_that_does_not_divide_the_heads_is_refused_at_once(path, new_ranks):
    start_s = time.monotonic()
    with pytest.raises(ConfigError) as error:
        LLM(path, tensor_parallel_size=3)
    assert time.monotonic() - start_s < 5
    assert str(error.value).splitlines() == [
        (
            "a model with 4 heads and 2 of keys and values cannot be split between 3 ranks "
            "(tensor-parallel-size)"
        ),
        "  the inner width of its MLP is 96",
        "  valid sizes: 1, 2",
    ]
    assert new_ranks() == []


def test_what_a_rank_finds_wrong_is_raised_as_its_error(tmp_path, new_ranks):
    folder = save_byte_model(LLAMA, tmp_path)
    reference = tiny_models.reference_model(LLAMA)
    tensors = dict(reference.state_dict())
    del tensors["model.layers.1.mlp.down_proj.weight"]
    reference.save_pretrained(folder, state_dict=tensors)
    with pytest.raises(ModelLoadError, match=r"missing: model\.layers\.1\.mlp\.down_proj\.weight"):
        LLM(folder, tensor_parallel_size=2, **SMALL)
    assert new_ranks() == []


# ---------------------------------------------------------------------- how it ends


def test_a_rank_that_is_killed_in_mid_step_ends_the_engine(path, new_ranks):
    llm = LLM(path, tensor_parallel_size=2, **SMALL)
    ranks = new_ranks()
    assert len(ranks) == 2
    victim = max(ranks, key=lambda one: one.pid)  # the last to be started: rank 1
    timer = threading.Timer(1.0, victim.send_signal, [signal.SIGKILL])
    timer.start()
    params = replace(GREEDY, max_tokens=240)
    prompts = [random_prompt(8, 1)] * 1000
    with pytest.raises(EngineDeadError) as error:
        run(llm, prompts, params)
    assert "rank 1 of 2: it was ended by signal 9 (SIGKILL)" in str(error.value)
    assert psutil.wait_procs(ranks, timeout=2)[1] == []
    start_s = time.monotonic()
    with pytest.raises(EngineDeadError, match="rank 1 of 2"):
        run(llm, [random_prompt(8, 1)], params)
    assert time.monotonic() - start_s < 1
    llm.close()
    llm.close()
    timer.join()


def test_closing_ends_all_ranks_and_twice_is_fine(path, new_ranks):
    executor = RanksExecutor()
    config = resolve(overrides={"model": path, "tensor_parallel_size": 2, **SMALL})
    facts = executor.start(config)
    assert (facts.num_blocks, facts.vocab_size, facts.max_model_len) == (41, 258, 256)
    assert facts.costs.predict_ms(1) < facts.costs.predict_ms(64)
    ranks = new_ranks()
    assert len(ranks) == 2
    executor.close()
    assert psutil.wait_procs(ranks, timeout=2)[1] == []
    executor.close()


def test_no_rank_outlives_its_parent(path):
    script = f"""
import sys
from octavo import LLM
llm = LLM({path!r}, tensor_parallel_size=2, num_gpu_blocks_override=80)
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout.readline() == b"ready\n"
        ranks = ranks_of(parent.pid)
        assert len(ranks) == 2
        os.kill(parent.pid, signal.SIGKILL)
        assert psutil.wait_procs(ranks, timeout=5)[1] == []


def served_text(server, body):
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 200, f"{answer.text}\n{server.log}"
    return answer.json()["choices"][0]["text"]


@pytest.mark.full
def test_a_server_starts_another_engine_when_a_rank_is_killed(path):
    flags = ["--tensor-parallel-size", "2", "--num-gpu-blocks-override", "80", "--threads", "1"]
    body = {"prompt": random_prompt(6, 1), "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    with octavo_serve(path, *flags) as server:
        expected = served_text(server, body)
        killed = ranks_of(server.process.pid)
        assert len(killed) == 2
        answers = []
        call = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body)))
        call.start()
        server.until(lambda: server.metrics()["num_requests_running"] == 1)
        killed[0].kill()
        call.join()
        assert answers[0].status_code == 503
        assert psutil.wait_procs(killed, timeout=5)[1] == []
        server.until(lambda: server.http.get("/health").status_code == 200, 60)
        assert len(ranks_of(server.process.pid)) == 2
        assert served_text(server, body) == expected
        assert "it was ended by signal 9 (SIGKILL)" in server.log
        before = ranks_of(server.process.pid)
        before[1].kill()  # nobody asks anything: there is a new engine all the same
        assert psutil.wait_procs(before, timeout=10)[1] == []
        server.until(lambda: len(ranks_of(server.process.pid)) == 2, 60)
        server.until(lambda: server.http.get("/health").status_code == 200, 60)
        assert served_text(server, body) == expected


# ---------------------------------------------------------------------- a real model


PROMPTS = ["The sea is", "def fibonacci(n):", "Once upon a time, there was a"]


@pytest.mark.full
@pytest.mark.parametrize(
    "components",
    [{"ops": "torch", "attention": "torch"}, {"ops": {"use": "cpu", "mode": "exact"}}],
    ids=["torch", "exact"],
)
def test_smollm2_between_three_ranks(components):
    """Where activations stay floats: rounded ones may fall to the other side of a tie."""
    settings = {
        "max_model_len": 256, "num_gpu_blocks_override": 64, "max_logprobs": -1, **components
    }  # fmt: skip
    vocab_size = 49152
    greedy = SamplingParams(temperature=0, max_tokens=24)
    scored = SamplingParams(temperature=0, max_tokens=2, logprobs=vocab_size, prompt_logprobs=5)
    with LLM("smollm2", **settings) as llm:
        expected, (expected_scores,) = run(llm, PROMPTS, greedy), run(llm, PROMPTS[:1], scored)
    with LLM("smollm2", tensor_parallel_size=3, **settings) as llm:
        outputs, (scores,) = run(llm, PROMPTS, greedy), run(llm, PROMPTS[:1], scored)
    for one, other in zip(outputs, expected, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
    assert len(scores.outputs[0].logprobs[0]) == vocab_size
    assert_same_scores(scores.outputs[0].logprobs, expected_scores.outputs[0].logprobs)
    assert_same_scores(scores.prompt_logprobs, expected_scores.prompt_logprobs)
