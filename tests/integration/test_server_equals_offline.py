"""A server and `LLM` with the same small model say the same, token for token, for every field."""

import json
import threading

import openai
import pytest

from byte_models import save_dummy_model
from octavo import LLM, SamplingParams
from server_process import octavo_serve

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPTS = ["The sea is", "x", "once upon a time, far away, there was", "1 2 3 4"]
#: what the model's files advise: requests are served by it where they say nothing themselves
ADVICE = {"temperature": 0.9, "top_k": 50, "max_new_tokens": 8, "eos_token_id": [257, 7]}
NUM_BLOCKS = 40  # of 16 tokens: less than the context


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of bytes; its weights are made up at load, the same each time."""
    path = tmp_path_factory.mktemp("bytes")
    save_dummy_model(path)
    (path / "generation_config.json").write_text(json.dumps(ADVICE))
    return path


@pytest.fixture(scope="module")
def server(folder):
    flags = ("--load-format", "dummy", "--max-model-len", "2048", "--enable-log-requests")
    with octavo_serve(str(folder), *flags, "--num-gpu-blocks-override", str(NUM_BLOCKS)) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def llm(folder):
    with LLM(str(folder), load_format="dummy") as model:
        yield model


def ids_from(server, prompt, **fields):
    answer = server.post(
        COMPLETIONS, prompt=prompt, max_tokens=24, return_token_ids=True, **fields
    ).json()
    return [choice["token_ids"] for choice in answer["choices"]]


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 0, "top_k": 0},
        {"seed": 1},
        {"seed": 2, "temperature": 0.3},
        {"seed": 1, "top_p": 0.4},
        {"seed": 1, "top_k": 3},
        {"seed": 1, "min_p": 0.6},
        {"seed": 1, "presence_penalty": 2.0},
        {"seed": 1, "frequency_penalty": 2.0},
        {"temperature": 0, "repetition_penalty": 1.9},
        {"temperature": 0, "bad_words": ["a", "e", " "]},
        {"temperature": 0, "logit_bias": {"65": 100, "66": 99}},
        {"temperature": 0, "allowed_token_ids": [70, 71, 72]},
        {"seed": 1, "n": 2},
        {"seed": 1, "min_tokens": 20},
        {"temperature": 0, "stop_token_ids": [200, 13, 99]},
        {"seed": 1, "ignore_eos": True},
        {"seed": 1, "truncate_prompt_tokens": 4},
        {"seed": 1, "truncate_prompt_tokens": 4, "truncation_side": "right"},
    ],
)
def test_B83_every_field_reaches_the_sampler(server, llm, fields):
    given = dict(fields)
    if "logit_bias" in given:
        given["logit_bias"] = {int(i): bias for i, bias in given["logit_bias"].items()}
    advised = {name: ADVICE[name] for name in ("temperature", "top_k")}
    params = SamplingParams(**{**advised, "max_tokens": 24, **given})
    (output,) = llm.generate(PROMPTS[0], params, use_tqdm=False)

    assert ids_from(server, PROMPTS[0], **fields) == [one.token_ids for one in output.outputs]


def test_logprobs_of_tokens_that_are_named(server, llm):
    """They are those that all tokens' logprobs hold, with their ranks, and no others."""
    base = {"seed": 1, "temperature": 0.9, "top_k": 50, "max_tokens": 12}
    every = llm.generate(PROMPTS[0], SamplingParams(**base, logprobs=20), use_tqdm=False)
    entries = every[0].outputs[0].logprobs
    named = [*list(entries[0])[1:4], *list(entries[1])[1:3], 5, 6]
    params = SamplingParams(**base, logprob_token_ids=named)
    (output,) = llm.generate(PROMPTS[0], params, use_tqdm=False)
    told, token_ids = output.outputs[0].logprobs, output.outputs[0].token_ids

    assert token_ids == every[0].outputs[0].token_ids
    for token_id, entry, other in zip(token_ids, told, entries, strict=True):
        assert next(iter(entry)) == token_id
        assert set(entry) == {token_id, *named}
        for one in set(entry) & set(other):
            assert entry[one] == other[one]
        ranked = sorted(entry.values(), key=lambda one: one.rank)
        assert [one.logprob for one in ranked] == sorted(one.logprob for one in ranked)[::-1]
    fields = {"prompt": PROMPTS[0], **base, "logprobs": 3, "return_tokens_as_token_ids": True}
    whole = server.post(COMPLETIONS, **fields, logprob_token_ids=named).json()
    chunks = server.events(COMPLETIONS, **fields, logprob_token_ids=named)
    expected = [{f"token_id:{i}": one.logprob for i, one in entry.items()} for entry in told]
    assert whole["choices"][0]["logprobs"]["top_logprobs"] == expected
    streamed = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [one for part in streamed for one in part["logprobs"]["top_logprobs"]] == expected


@pytest.mark.parametrize(("path", "start"), [
    (COMPLETIONS, {"prompt": "x"}), (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
])  # fmt: skip
def test_fields_that_shape_answers_hold_for_streams_and_wholes(server, path, start):
    """A circle ends the text, chunks have so many tokens, and the prompt's text is told."""
    circles = {"max_pattern_size": 2, "min_count": 3}
    fields = {
        **start, "temperature": 0, "max_tokens": 40, "allowed_token_ids": [70],
        "ignore_eos": True, "return_prompt_text": True, "return_token_ids": True,
    }  # fmt: skip
    whole = server.post(path, **fields, repetition_detection=circles).json()
    chunks = server.events(path, **fields, repetition_detection=circles, stream_interval=2)
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    (choice,) = whole["choices"]

    assert choice["token_ids"] == [70] * 3
    assert [i for part in parts for i in part.get("token_ids", [])] == [70] * 3
    assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    assert (parts[-1]["finish_reason"], parts[-1]["stop_reason"]) == (
        "repetition", "repetition_detected",
    )  # fmt: skip
    told, streamed = (choice, parts) if path == COMPLETIONS else (whole, chunks)
    assert "x" in told["prompt_text"]
    assert [one["prompt_text"] for one in streamed if "prompt_text" in one] == [told["prompt_text"]]
    chunks = server.events(path, **fields, stream_interval=13)
    sizes = [
        len(part["token_ids"]) for chunk in chunks for part in chunk["choices"]
        if part.get("token_ids")
    ]  # fmt: skip
    assert sum(sizes) == 40
    assert all(size >= 13 for size in sizes[1:-1])
    assert len(sizes) <= 5


def test_B83_extra_body_of_the_client_is_the_same_as_top_level(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    extra = {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.2, "bad_words": ["a"]}
    answer = client.completions.create(
        model=client.models.list().data[0].id, prompt=PROMPTS[0], max_tokens=24, seed=5,
        extra_body={**extra, "return_token_ids": True},
    )  # fmt: skip

    assert [answer.choices[0].token_ids] == ids_from(server, PROMPTS[0], seed=5, **extra)


@pytest.mark.parametrize(("path", "start"), [
    (COMPLETIONS, {"prompt": "x"}), (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
])  # fmt: skip
def test_B144_the_models_own_limit_is_a_default_and_no_ceiling(server, path, start):
    def count(**fields):
        answer = server.post(path, {**start, "ignore_eos": True, **fields}).json()
        return answer["usage"]["completion_tokens"]

    assert (count(max_tokens=20), count(), count(max_tokens=4)) == (20, 8, 4)


def test_fields_change_the_tokens_at_all(server):
    """Or the comparisons above would be empty."""
    plain = ids_from(server, PROMPTS[0], seed=1)
    for fields in ({"seed": 2}, {"seed": 1, "top_k": 3}, {"seed": 1, "temperature": 0.1}):
        assert ids_from(server, PROMPTS[0], **fields) != plain


def test_B39_answers_of_a_mixed_batch_are_those_of_each_alone(server):
    asked = [
        {"prompt": PROMPTS[0], "logprobs": 5, "seed": 1},
        {"prompt": PROMPTS[1], "prompt_logprobs": 2, "temperature": 0},
        {"prompt": PROMPTS[2], "seed": 3},
        {"prompt": PROMPTS[3], "logprobs": 1, "stream": True, "seed": 4},
    ]

    def ask(fields):
        fields = {"max_tokens": 40, **fields}
        if fields.get("stream"):
            events = server.events(COMPLETIONS, **fields)
            choices = [choice for event in events for choice in event["choices"]]
            logprobs = [value for c in choices for value in c["logprobs"]["token_logprobs"]]
            top = [entry for c in choices for entry in c["logprobs"]["top_logprobs"]]
            text = "".join(c["text"] for c in choices)
            return {"text": text, "logprobs": logprobs, "top": top}
        choice = server.post(COMPLETIONS, fields).json()["choices"][0]
        return {
            "text": choice["text"],
            "logprobs": (choice["logprobs"] or {}).get("token_logprobs", []),
            "top": (choice["logprobs"] or {}).get("top_logprobs", []),
            "prompt": [
                value["logprob"]
                for entry in choice.get("prompt_logprobs", [])[1:]
                for value in entry.values()
            ],
        }

    alone = [ask(fields) for fields in asked]
    together = [None] * len(asked)

    def ask_and_keep(index):
        together[index] = ask(asked[index])

    for _ in range(3):
        threads = [threading.Thread(target=ask_and_keep, args=(i,)) for i in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one, other in zip(alone, together, strict=True):
            assert one["text"] == other["text"]
            for name in ("logprobs", "prompt"):
                assert one.get(name) == pytest.approx(other.get(name), abs=1e-3)
            for entry, same in zip(one["top"], other["top"], strict=True):
                assert entry == pytest.approx(same, abs=1e-3)


def test_B86_a_seeded_request_in_unseeded_traffic(server):
    fields = {"temperature": 0.9, "ignore_eos": True}
    (alone,) = ids_from(server, PROMPTS[0], seed=11, **fields)
    seeded, unseeded = [], []

    def ask(into, prompt, **more):
        into += ids_from(server, prompt, **fields, **more)

    for _ in range(4):
        threads = [threading.Thread(target=ask, args=(unseeded, PROMPTS[1])) for _ in range(3)]
        threads.append(threading.Thread(target=ask, args=(seeded, PROMPTS[0]), kwargs={"seed": 11}))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seeded == [alone] * 4
    assert len({tuple(ids) for ids in unseeded}) == 12  # B90: unseeded requests differ


def test_B103_a_request_that_never_fits_is_refused_and_the_others_are_served(server):
    answers = []

    def ask(prompt, **fields):
        answers.append(server.post(COMPLETIONS, prompt=prompt, **fields))

    threads = [
        threading.Thread(
            target=ask, args=([65 + i] * 8,), kwargs={"max_tokens": 90, "ignore_eos": True}
        )
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    refused = [server.post(COMPLETIONS, prompt=[65] * 900) for _ in range(3)]
    behind = server.post(COMPLETIONS, prompt="short", max_tokens=2, ignore_eos=True)
    for thread in threads:
        thread.join()
    for response in refused:
        assert response.status_code == 400
        message = response.json()["error"]["message"]
        assert "this request needs KV cache for" in message
        assert f"only {16 * NUM_BLOCKS} tokens are available" in message
    assert behind.json()["usage"]["completion_tokens"] == 2
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [90] * 6


def test_B119_clients_that_leave_free_rows_and_blocks(server):
    server.until(server.is_idle)
    for round_ in range(20):
        fields = {"prompt": "go on", "max_tokens": 600, "ignore_eos": True}
        server.send_and_leave(COMPLETIONS, {**fields, "stream": round_ % 2 == 0}, after_s=0.03)
        assert server.until(server.is_idle) < 1
    before = server.metrics()["generation_tokens_total"]
    assert ids_from(server, "x", seed=1, ignore_eos=True)
    assert server.metrics()["generation_tokens_total"] == before + 24


def test_streamed_text_is_the_whole_text(server):
    for prompt in PROMPTS:
        for fields in ({"temperature": 0}, {"seed": 9}, {"seed": 9, "stop": ["e", "q"]}):
            whole = server.post(COMPLETIONS, prompt=prompt, max_tokens=60, **fields).json()
            events = server.events(COMPLETIONS, prompt=prompt, max_tokens=60, **fields)
            text = "".join(choice["text"] for event in events for choice in event["choices"])
            assert text == whole["choices"][0]["text"]


@pytest.mark.parametrize("value", [2**31, 2**40, 2**63, 2**64, 10**30])
def test_numbers_beyond_any_machine_word_harm_nobody(server, value):
    """Each is obeyed or refused; neither the server nor the engine fails on it."""
    before = server.engine.pid
    names = ("top_k", "priority", "min_tokens", "truncate_prompt_tokens", "seed", "max_tokens", "n")
    for name in names:
        for signed in (value, -value):
            response = server.post(COMPLETIONS, {"prompt": "hi", "max_tokens": 2, name: signed})
            assert response.status_code in {200, 400}, (name, signed, response.text)
            if response.status_code == 400:
                assert response.json()["error"]["param"] == name, response.text
    response = server.post(COMPLETIONS, prompt="hi", vllm_xargs={"x": value})
    assert response.status_code in {200, 400}, response.text
    assert server.engine.pid == before


def test_B75_bad_ids_beside_good_requests(server):
    before = ids_from(server, PROMPTS[0], seed=1)
    results = []
    thread = threading.Thread(target=lambda: results.append(ids_from(server, PROMPTS[0], seed=1)))
    thread.start()
    for ids in ([280], [-5]):
        response = server.post(
            COMPLETIONS, prompt="hi", stop_token_ids=ids, min_tokens=1, max_tokens=8
        )
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "stop_token_ids"
    thread.join()

    assert results == [before]


def test_prefix_hits_are_in_the_usage(server):
    prompt = "a prompt that is used again, and is longer than some blocks of the cache " * 2
    server.post(COMPLETIONS, prompt=prompt, max_tokens=1)
    usage = server.post(COMPLETIONS, prompt=prompt, max_tokens=1).json()["usage"]

    assert usage["prompt_tokens_details"]["cached_tokens"] >= 64
    assert server.metrics()["prefix_cache_hits_total"] >= 64


def test_counters_count_tokens(server):
    server.until(server.is_idle)
    before = server.metrics()
    server.post(COMPLETIONS, prompt=[65] * 11, max_tokens=7, ignore_eos=True)
    after = server.metrics()

    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == 11
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 7
