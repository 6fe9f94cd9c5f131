"""OpenAI's API as clients use it: the real server and engine process, a scripted engine.

The engine repeats the prompt, so that FORCE(text) of a bug case is to send that text; `vllm_xargs`
tell it to fail, to emit other ids, or to take long.
"""

import json
import socket
import threading
import time

import openai
import psutil
import pytest

from scripted import END_THINK, EOS, THINK
from server_process import scripted_server_process

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = {"ignore_eos": True, "max_tokens": 100_000}


@pytest.fixture(scope="module")
def server():
    script = {"max_model_len": 200_000, "step_ms": 3.0}
    with scripted_server_process(
        script=script, enable_log_requests=True, max_log_len=30
    ) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def small():
    """A context of 64 tokens, one sequence at a time, and four that may wait."""
    script = {"max_model_len": 64, "max_num_seqs": 1, "max_num_queued_reqs": 4, "step_ms": 3.0}
    with scripted_server_process(script=script) as process:
        yield process


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def said(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def error_of(response, status=400):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def text_of(events, index=0):
    choices = [choice for event in events for choice in event["choices"]]
    parts = [
        choice["delta"].get("content", "") if "delta" in choice else choice["text"]
        for choice in choices
        if choice["index"] == index
    ]
    return "".join(parts)


# ---------------------------------------------------------------------- answers


def test_models_are_listed_and_shown(client):
    assert [model.id for model in client.models.list()] == ["scripted", "second-name"]
    assert client.models.retrieve("second-name").id == "second-name"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("none")


def test_chat_whole_and_streamed_say_the_same(client):
    asked = {"model": "scripted", **said("Good day \u6f22\u5b57 \U0001f600!")}
    whole = client.chat.completions.create(**asked)
    stream = client.chat.completions.create(**asked, stream=True)

    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert whole.choices[0].message.content == text == "Good day \u6f22\u5b57 \U0001f600!"
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "stop"


def test_an_unknown_model_is_404_and_lists_what_there_is(server):
    error = error_of(server.post(CHAT, said("hi", model="scriptd")), 404)

    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert "served here: scripted, second-name" in error["message"]


def test_stop_strings_end_the_answer_and_the_request(server):
    fields = {"prompt": "one STOP two", "max_tokens": 90, "stop": ["STOP", "never"]}
    whole = server.post(COMPLETIONS, fields).json()["choices"][0]

    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == ("one ", "stop", "STOP")
    assert text_of(server.events(COMPLETIONS, **fields)) == "one "
    server.until(server.is_idle)


def test_token_ids_are_returned_on_request(server):
    fields = {"prompt": [104, 105], "return_token_ids": True}
    choice = server.post(COMPLETIONS, fields).json()["choices"][0]
    chat = server.post(CHAT, said("hi", return_token_ids=True)).json()

    assert choice["token_ids"] == chat["choices"][0]["token_ids"] == [104, 105, EOS]
    assert choice["prompt_token_ids"] == chat["prompt_token_ids"] == [104, 105]


def test_request_ids_are_the_clients_own_or_new(server):
    given = server.http.post(COMPLETIONS, json={"prompt": "a"}, headers={"X-Request-Id": "mine"})
    odd = server.http.post(COMPLETIONS, json={"prompt": "a"}, headers={"X-Request-Id": "a b"})

    assert given.headers["X-Request-Id"] == "mine"
    assert given.json()["id"] == "cmpl-mine"
    assert odd.headers["X-Request-Id"] != "a b"
    assert odd.json()["id"] == f"cmpl-{odd.headers['X-Request-Id']}"
    assert " mine request method=POST path=/v1/completions status=200" in server.log


def test_the_same_request_id_may_be_used_twice_at_once(server):
    answers = []

    def ask():
        headers = {"X-Request-Id": "twin"}
        answers.append(
            server.http.post(
                COMPLETIONS, json={"prompt": "a" * 30, "max_tokens": 40}, headers=headers
            )
        )

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [answer.json()["choices"][0]["text"] for answer in answers] == ["a" * 30] * 3


def test_B24_markers_are_text_without_spaces_around(server):
    ids = [THINK, *b"hm", END_THINK, *b"7"]
    fields = said("x", vllm_xargs={"ids": ids}, skip_special_tokens=False)

    whole = server.post(CHAT, fields).json()["choices"][0]["message"]["content"]

    assert whole == "<think>hm</think>7<|end|>".removesuffix("<|end|>")
    assert text_of(server.events(CHAT, **fields)) == whole


# ---------------------------------------------------------------------- streams


@pytest.mark.parametrize("n", [1, 2])
def test_B13_streamed_usage_is_the_usage(server, n):
    fields = said("count me", n=n, temperature=0.5, seed=1)
    options = {"include_usage": True, "continuous_usage_stats": True}

    usage = server.post(CHAT, fields).json()["usage"]
    events = server.events(CHAT, **fields, stream_options=options)

    seen = [event["usage"]["completion_tokens"] for event in events]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == events[-2]["usage"] == usage
    assert seen == sorted(seen)
    assert usage["completion_tokens"] == n * (len("count me") + 1)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_usage_is_there_only_if_asked_for(server):
    plain = server.events(CHAT, **said("hi"))
    asked = server.events(CHAT, **said("hi"), stream_options={"include_usage": True})

    assert all("usage" not in event for event in plain)
    assert [event["usage"] for event in asked[:-1]] == [None] * (len(asked) - 1)


@pytest.mark.parametrize(("max_tokens", "reason"), [(50, "stop"), (3, "length")])
@pytest.mark.parametrize("n", [1, 3])
def test_B15_role_once_one_finish_reason_and_no_marker(server, max_tokens, reason, n):
    events = server.events(CHAT, **said("the end", max_tokens=max_tokens, n=n))
    for index in range(n):
        choices = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]

        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in choice["delta"] for choice in choices[1:])
        assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + [reason]
        assert choices[-1]["delta"] == {}
        assert text_of(events, index) == "the end"[:max_tokens]


def test_B17_a_failure_in_mid_stream_is_one_error_event(server, client):
    stop = threading.Event()
    other = []

    def stream_on():
        other.append(text_of(server.events(COMPLETIONS, prompt="o" * 300, max_tokens=200)))
        stop.set()

    thread = threading.Thread(target=stream_on)
    thread.start()
    fields = said("x" * 20, **LONG, vllm_xargs={"fail_at": 5})
    events = server.events(CHAT, **fields)
    with pytest.raises(openai.APIError, match="NaN"):
        list(
            client.chat.completions.create(
                model="scripted", **said("x" * 20), stream=True, extra_body={
                    "vllm_xargs": {"fail_at": 5}, **LONG,
                },
            )
        )  # fmt: skip
    thread.join()

    assert "NaN" in events[-1]["error"]["message"]
    assert events[-1]["error"]["type"] == "server_error"
    assert all(choice["finish_reason"] is None for e in events[:-1] for choice in e["choices"])
    assert other == ["o" * 200]
    assert server.post(CHAT, said("hi")).status_code == 200


def test_a_failure_of_a_whole_answer_is_500(server):
    error = error_of(server.post(CHAT, said("x", **LONG, vllm_xargs={"fail_at": 5})), 500)

    assert error["type"] == "server_error"
    assert "NaN" in error["message"]


# ---------------------------------------------------------------------- logprobs


def test_B34_echo_without_output_scores_the_prompt(server):
    fields = {"echo": True, "max_tokens": 0, "logprobs": 1, "temperature": 0}
    for prompt, texts in (
        ("Verdict: No", ["Verdict: No"]),
        ([*b"Verdict"], ["Verdict"]),
        (["one", "hello", "third"], ["one", "hello", "third"]),
    ):
        answer = server.post(COMPLETIONS, {"prompt": prompt, **fields}).json()
        choices = answer["choices"]
        assert [choice["text"] for choice in choices] == texts
        assert [choice["finish_reason"] for choice in choices] == ["length"] * len(texts)
        for choice in choices:
            logprobs = choice["logprobs"]
            assert "".join(logprobs["tokens"]) == choice["text"]
            assert logprobs["token_logprobs"][0] is None
            assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
        assert answer["usage"]["completion_tokens"] == 0
        tokens = sum(len(choice["logprobs"]["tokens"]) for choice in choices)
        assert answer["usage"]["prompt_tokens"] == tokens
    assert server.post(COMPLETIONS, prompt="ab", echo=True, max_tokens=0).json()["choices"][0][
        "text"
    ] == "ab"  # fmt: skip


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_echo_without_output_is_the_same_for_all_choices(server, is_streamed):
    fields = {"prompt": ["one", "two"], "n": 3, "echo": True, "max_tokens": 0, "logprobs": 1}
    if is_streamed:
        chunks = server.events(COMPLETIONS, **fields)
        choices = sorted(
            (c for chunk in chunks for c in chunk["choices"]), key=lambda c: c["index"]
        )
    else:
        choices = server.post(COMPLETIONS, **fields).json()["choices"]

    assert [choice["index"] for choice in choices] == list(range(6))
    assert [choice["text"] for choice in choices] == ["one"] * 3 + ["two"] * 3
    assert all(choice["finish_reason"] == "length" for choice in choices)
    assert all("".join(c["logprobs"]["tokens"]) == c["text"] for c in choices)


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"n": 2, "stream": True}])
def test_no_output_at_all_is_refused_for_that_reason(server, more):
    for path, fields in ((COMPLETIONS, {"prompt": "ab"}), (CHAT, said("ab"))):
        error = error_of(server.post(path, {"max_tokens": 0, **fields, **more}))
        assert error["param"] == "max_tokens"
        assert "at least 1" in error["message"]


@pytest.mark.parametrize("more", [{}, {"top_logprobs": 0}])
def test_B36_logprobs_without_alternatives(server, more):
    choice = server.post(CHAT, said("abc", logprobs=True, **more)).json()["choices"][0]
    entries = choice["logprobs"]["content"]

    assert [entry["token"] for entry in entries] == ["a", "b", "c", "<|end|>"]
    assert all(entry["top_logprobs"] == [] and entry["logprob"] < 0 for entry in entries)
    assert bytes(entries[0]["bytes"]) == b"a"


def test_logprobs_name_tokens_by_id_on_request(server):
    fields = said("ab", logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True)
    entries = server.post(CHAT, fields).json()["choices"][0]["logprobs"]["content"]

    assert [entry["token"] for entry in entries] == [
        "token_id:97",
        "token_id:98",
        f"token_id:{EOS}",
    ]
    assert [top["token"] for top in entries[0]["top_logprobs"]] == ["token_id:97"]


@pytest.fixture(scope="module")
def bursts():
    """An engine that emits four tokens a step."""
    with scripted_server_process(script={"tokens_per_step": 4, "step_ms": 3.0}) as process:
        yield process


def test_B38_streamed_logprobs_of_chunks_with_many_tokens(bursts):
    fields = said("hello \u6f22 \U0001f600 world", logprobs=True, top_logprobs=3)
    whole = bursts.post(CHAT, fields).json()["choices"][0]["logprobs"]["content"]
    events = bursts.events(CHAT, **fields)

    chunks = [e["choices"][0]["logprobs"] for e in events if e["choices"][0]["logprobs"]]

    assert [entry for chunk in chunks for entry in chunk["content"]] == whole
    assert max(len(chunk["content"]) for chunk in chunks) > 1
    assert len({entry["top_logprobs"][0]["token"] for entry in whole}) > 3


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("prompt", ["abc def", "\u6f22\U0001f600 hello"])
def test_B41_streamed_offsets_go_on_behind_the_echo(server, bursts, n, prompt):
    fields = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 8, "n": n}
    for process in (server, bursts):
        whole = process.post(COMPLETIONS, fields).json()["choices"]
        events = process.events(COMPLETIONS, **fields)
        for choice in whole:
            index = choice["index"]
            pieces = [c for e in events for c in e["choices"] if c["index"] == index]
            for name in ("text_offset", "tokens", "token_logprobs", "top_logprobs"):
                joined = [value for piece in pieces for value in piece["logprobs"][name]]
                assert joined == choice["logprobs"][name]
            text = "".join(piece["text"] for piece in pieces)
            assert text == choice["text"]
            logprobs = choice["logprobs"]
            for offset, token in zip(logprobs["text_offset"], logprobs["tokens"], strict=True):
                is_inside = "\ufffd" in token  # a part of a character
                is_hidden = token.startswith("<|end") and offset == len(text)
                assert is_inside or is_hidden or text[offset : offset + len(token)] == token


def test_prompt_logprobs_have_vllms_shape(server):
    chat = server.post(CHAT, said("abc", prompt_logprobs=1)).json()
    completion = server.post(COMPLETIONS, prompt="abc", prompt_logprobs=1).json()

    assert chat["prompt_logprobs"] == completion["choices"][0]["prompt_logprobs"]
    assert chat["prompt_logprobs"][0] is None
    assert chat["prompt_logprobs"][1]["98"]["rank"] == 1
    assert {"b"} == {chat["prompt_logprobs"][1]["98"]["decoded_token"]}


# ---------------------------------------------------------------------- bad requests


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_B01_the_context_is_named_with_its_true_numbers(small, path):
    def ask(num_tokens, **fields):
        text = "a" * num_tokens
        return small.post(
            path, said(text, **fields) if path == CHAT else {"prompt": text, **fields}
        )

    for num_tokens in (100, 64):
        fields = {} if path == CHAT else {"max_tokens": 1}
        error = error_of(ask(num_tokens, **fields))
        assert "maximum context length is 64 tokens" in error["message"]
        assert f"{num_tokens} in the prompt" in error["message"]
        assert error["code"] == "context_length_exceeded"
        assert error["param"] == ("messages" if path == CHAT else "prompt")
    error = error_of(ask(10, max_tokens=60))
    assert "10 in the prompt" in error["message"]
    assert "60 for the completion" in error["message"]
    assert error["param"] == "max_tokens"
    good = ask(63, **({} if path == CHAT else {"max_tokens": 1}))
    assert good.status_code == 200
    assert good.json()["usage"]["completion_tokens"] == 1
    assert good.json()["choices"][0]["finish_reason"] == "length"


def test_B03_unknown_fields_give_a_header_and_old_ones_400(server):
    unknown = server.post(CHAT, said("hi", max_token=5, response_fromat={}))
    old = server.post(CHAT, said("hi", guided_choice=["up", "down"]))
    unsupported = server.post(CHAT, said("hi", early_stopping=True))

    assert unknown.status_code == 200
    assert unknown.headers["X-Octavo-Ignored-Fields"] == "max_token, response_fromat"
    assert "X-Octavo-Ignored-Fields" not in old.headers  # it is obeyed
    assert error_of(unsupported)["param"] == "early_stopping"
    assert "did you mean 'max_tokens' for 'max_token'?" in server.log


# ---------------------------------------------------------------------- beam search

SEARCH = {"use_beam_search": True, "n": 2, "max_tokens": 3}


def test_the_texts_of_a_beam_search_are_the_choices(server):
    """The scripted engine says that the first token is the likeliest one, and then a, b, c."""
    fields = {"prompt": ["xy", "hello"], "logprobs": 1, "temperature": 0.5, "seed": 3}
    response = server.post(COMPLETIONS, **SEARCH, **fields)
    choices = response.json()["choices"]

    assert response.headers["X-Octavo-Ignored-Fields"] == "temperature"
    assert [choice["text"] for choice in choices] == ["xxx", "xxa", "hello" * 3, "hellohelloa"]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert choices[1]["logprobs"]["tokens"] == ["x", "x", "a"]
    assert choices[1]["logprobs"]["top_logprobs"][2].keys() == {"x", "a"}
    assert response.json()["usage"]["prompt_tokens"] == 3
    assert response.json()["usage"]["completion_tokens"] == 12
    stopped = server.post(COMPLETIONS, **SEARCH, prompt="xy", stop="xa", length_penalty=0).json()
    assert [choice["text"] for choice in stopped["choices"]] == ["xxx", ""]
    assert stopped["choices"][1]["stop_reason"] == "xa"


def test_a_chat_by_beam_search(client):
    answer = client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "xy"}], n=2, max_tokens=3,
        logprobs=True, top_logprobs=2, extra_body={"use_beam_search": True, "length_penalty": 0.5},
    )  # fmt: skip
    assert [choice.message.content for choice in answer.choices] == ["xxx", "xxa"]
    last = answer.choices[1].logprobs.content[-1]
    assert (last.token, [one.token for one in last.top_logprobs]) == ("a", ["x", "a"])
    assert answer.usage.completion_tokens == 6


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("stream", {"stream": True}),
        ("min_tokens", {"min_tokens": 1}),
        ("logit_bias", {"logit_bias": {"65": 1}}),
        ("repetition_penalty", {"repetition_penalty": 1.1}),
        ("vllm_xargs", {"vllm_xargs": {"ids": [1]}}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}],
                   "tool_choice": "required"}),
        ("n", {"n": 129}),
        ("length_penalty", {"length_penalty": 11}),
        ("length_penalty", {"length_penalty": 2, "use_beam_search": False}),
    ],
)  # fmt: skip
def test_what_a_beam_search_cannot_obey_is_refused(server, param, fields):
    error = error_of(server.post(CHAT, said("hi", **SEARCH | fields)))
    assert error["param"] == param


def test_a_search_whose_client_leaves_is_ended(server):
    fields = {"prompt": "x", **SEARCH, "max_tokens": 100_000, "ignore_eos": True}
    server.send_and_leave(COMPLETIONS, fields, after_s=0.1)
    server.until(server.is_idle)
    time.sleep(0.05)
    num_tokens = server.metrics()["generation_tokens_total"]
    time.sleep(0.05)
    assert server.metrics()["generation_tokens_total"] == num_tokens


def test_a_search_that_has_begun_waits_for_room_in_the_queue(small):
    assert error_of(small.post(COMPLETIONS, prompt="x", **SEARCH | {"n": 5}))["param"] == "n"
    fields = {"prompt": "a" * 10, "max_tokens": 40, "ignore_eos": True, "n": 2}
    background = threading.Thread(target=small.post, args=(COMPLETIONS, fields))
    background.start()
    small.until(lambda: small.metrics()["num_requests_waiting"] == 1)
    answer = small.post(COMPLETIONS, prompt="x", **SEARCH | {"n": 4})
    background.join()
    assert answer.status_code == 200
    assert len({choice["text"] for choice in answer.json()["choices"]}) == 4


def test_B23_lone_surrogates_never_give_500(server):
    for path, raw in (
        (COMPLETIONS, rb'{"prompt":"abc \ud83d def"}'),
        (COMPLETIONS, rb'{"prompt":"abc","stop":"\ud83d","user":"\udc00"}'),
        (CHAT, rb'{"messages":[{"role":"user","content":"a \ud83d"}]}'),
        (CHAT, rb'{"messages":[{"role":"user","content":[{"type":"text","text":"\udfff"}]}]}'),
    ):
        response = server.post(path, raw)
        assert response.status_code == 200, response.text
        response.content.decode("utf-8")
    assert "\ufffd" in server.post(COMPLETIONS, rb'{"prompt":"\ud83d"}').text


@pytest.mark.parametrize("ids", [[10_000], [-5]])
def test_B75_stop_ids_outside_the_vocabulary(server, ids):
    error = error_of(server.post(CHAT, said("hi", stop_token_ids=ids, min_tokens=1, max_tokens=8)))

    assert error["param"] == "stop_token_ids"
    assert server.http.get("/health").status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "-1", '"0.5"'])
def test_B77_numbers_that_are_none(server, path, value):
    start = said("hi") if path == CHAT else {"prompt": "hi"}
    names = ["temperature", "top_p", "min_p", "repetition_penalty"]
    if value != "-1":
        names += ["presence_penalty", "frequency_penalty"]
    for name in names:
        raw = json.dumps({**start, name: "VALUE"}).replace('"VALUE"', value).encode()
        error_of(server.post(path, raw))
    good = server.post(path, start).json()["choices"][0]
    assert (good["message"]["content"] if path == CHAT else good["text"]) == "hi"


BAD = [
    ("top_p", 0), ("top_p", 7), ("min_p", 2), ("top_k", -3), ("frequency_penalty", 100),
    ("presence_penalty", -9), ("repetition_penalty", 0), ("n", 0), ("max_tokens", -1),
    ("repetition_penalty", 1e-300),
    ("max_tokens", 0), ("best_of", 0), ("n", 100_000), ("best_of", 100_000),
    ("prompt_logprobs", -1), ("prompt_logprobs", 1_000_000), ("min_tokens", -1),
    ("logit_bias", {"999999": 1}), ("seed", 2**70), ("bad_words", [""]), ("stop", [""]),
]  # fmt: skip
GOOD = [
    ("temperature", 0), ("top_p", 1), ("top_k", -1), ("top_k", 0), ("top_k", 1),
    ("top_k", 10**6), ("seed", -1), ("best_of", 1), ("stop", []), ("logit_bias", {}),
]  # fmt: skip


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_B79_B154_one_verdict_on_both_endpoints(server, path):
    start = said("hi") if path == CHAT else {"prompt": "hi"}
    only_here = [("logprobs", -2), ("logprobs", 1_000_000)] if path == COMPLETIONS else []
    for name, value in BAD + only_here:
        response = server.post(path, {**start, name: value})
        assert error_of(response)["param"] == name, (name, value, response.text)
    response = server.post(path, {**start, "n": 2, "best_of": 1})
    assert error_of(response)["param"] == "best_of"
    for name, value in GOOD:
        response = server.post(path, {**start, name: value})
        assert response.status_code == 200, (name, value, response.text)


def test_B79_B154_alternatives_of_a_chat(server):
    for fields in ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21},
                   {"logprobs": True, "top_logprobs": -2}):  # fmt: skip
        assert error_of(server.post(CHAT, said("hi", **fields)))["param"] == "top_logprobs"


def test_B80_empty_prompts_are_refused_and_harm_nobody(server):
    for prompt in ("", [""], [], [[]], ["ok", ""]):
        assert error_of(server.post(COMPLETIONS, prompt=prompt))["param"] == "prompt"
    assert error_of(server.post(CHAT, messages=[]))["param"] == "messages"
    assert server.http.get("/health").status_code == 200
    assert server.post(COMPLETIONS, prompt="ok").json()["choices"][0]["text"] == "ok"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b'{"prompt": "a",}'])
def test_malformed_bodies_are_400(server, raw):
    error = error_of(server.post(COMPLETIONS, raw))

    assert error["type"] == "invalid_request_error"


def test_wrong_methods_and_paths_have_the_same_shape(server):
    assert error_of(server.http.get("/nowhere"), 404)["type"] == "invalid_request_error"
    assert error_of(server.http.get(CHAT), 405)["type"] == "invalid_request_error"


def test_a_full_queue_is_503_and_says_when_to_come_back(small):
    fields = {"prompt": "a" * 10, "max_tokens": 50, "ignore_eos": True, "n": 4}
    background = threading.Thread(target=small.post, args=(COMPLETIONS, fields))
    background.start()
    small.until(lambda: small.metrics()["num_requests_waiting"] == 3)
    response = small.post(COMPLETIONS, {"prompt": "b", "n": 3})
    error = error_of(response, 503)
    background.join()

    assert error["code"] == "queue_full"
    assert int(response.headers["Retry-After"]) >= 1
    assert small.post(COMPLETIONS, prompt="b").status_code == 200


def test_more_messages_than_the_context_has_tokens_are_not_even_rendered(small):
    messages = [{"role": "user", "content": ""}] * 65
    error = error_of(small.post(CHAT, {"messages": messages}))
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")
    assert "your messages are 65" in error["message"]


def test_more_sequences_than_could_ever_wait_are_refused_at_once(small):
    error = error_of(small.post(COMPLETIONS, {"prompt": ["a"] * 3, "n": 2}))
    assert error["param"] == "n"
    assert "6 sequences" in error["message"]
    assert "at most 4" in error["message"]


def test_a_client_that_leaves_in_mid_request_is_no_fault_of_the_server(server):
    num_before = len(server.log)
    with socket.create_connection(server.address) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
        )
        time.sleep(0.2)
    server.until(lambda: "status=" in server.log[num_before:])
    assert "status=499" in server.log[num_before:]
    assert "Traceback" not in server.log[num_before:]


def test_B22_logged_prompts_are_cut_between_characters(server):
    for prompt in (
        "x" * 29 + "\u4f60" * 50,
        "x" * 29 + "\U0001f468\u200d\U0001f469",
        "\ud83d" * 40,
    ):
        raw = json.dumps({"prompt": prompt}).encode()
        assert server.post(COMPLETIONS, raw).status_code == 200

    assert f"prompt={'x' * 29}\u4f60..." in server.log.replace('"', "")


# ---------------------------------------------------------------------- order and concurrency


def test_B114_choices_come_in_the_order_of_the_prompts(server):
    prompts = ["z" * length for length in (40, 3, 25, 1, 60, 2, 9, 5)]
    fields = {"prompt": prompts, "n": 2, "max_tokens": 90}
    for echo in (False, True):
        answer = server.post(COMPLETIONS, {**fields, "echo": echo}).json()
        assert [choice["index"] for choice in answer["choices"]] == list(range(16))
        times = 2 if echo else 1
        expected = [prompt * times for prompt in prompts for _ in range(2)]
        assert [choice["text"] for choice in answer["choices"]] == expected
    events = server.events(COMPLETIONS, **fields)
    assert [text_of(events, index) for index in range(16)] == [
        prompt for prompt in prompts for _ in range(2)
    ]


def test_B118_a_huge_body_holds_up_nobody(server):
    gaps, healths, stop = [], [], threading.Event()

    def stream():
        body = {"stream": True, "prompt": "s" * 50, **LONG}
        with server.http.stream("POST", COMPLETIONS, json=body) as response:
            last_s = time.monotonic()
            for _ in response.iter_raw():
                gaps.append(time.monotonic() - last_s)
                last_s = time.monotonic()
                if stop.is_set():
                    return

    def watch():
        while not stop.is_set():
            start_s = time.monotonic()
            assert server.http.get("/health").status_code == 200
            healths.append(time.monotonic() - start_s)
            time.sleep(0.1)

    threads = [threading.Thread(target=stream), threading.Thread(target=watch)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        error = error_of(server.post(CHAT, said("word " * 4_000_000)))
        assert "maximum context length" in error["message"]
        assert error["param"] == "messages"
    error = error_of(server.post(CHAT, said("word " * 8_000_000)), 413)
    stop.set()
    for thread in threads:
        thread.join()

    assert error["code"] == "request_too_large"
    assert max(gaps) < 2
    assert max(healths) < 1
    server.until(server.is_idle)


# ---------------------------------------------------------------------- clients that leave


def test_B119_a_client_that_leaves_ends_its_request(server):
    server.until(server.is_idle)
    for round_ in range(10):
        for path, fields in (
            (CHAT, said("go on", **LONG)),
            (CHAT, said("go on", **LONG, stream=True)),
            (COMPLETIONS, {"prompt": ["go", "on"], "n": 2, **LONG, "stream": round_ % 2 == 0}),
        ):
            server.send_and_leave(path, fields, after_s=0.03)
    assert server.until(server.is_idle) < 1
    before = server.metrics()["generation_tokens_total"]
    time.sleep(0.1)
    assert server.metrics()["generation_tokens_total"] == before


def test_B119_a_reader_that_stops_reading_and_leaves(server):
    """The answer is stuck in a full socket when the client goes."""
    fields = said("go on", **LONG, stream=True)
    server.send_and_leave(CHAT, fields, after_s=1.0)

    assert server.until(server.is_idle) < 1


def test_a_slow_reader_gets_an_error_and_disturbs_nobody():
    script = {"tokens_per_step": 50, "step_ms": 2.0, "max_model_len": 10**7}
    with scripted_server_process(script=script, max_stream_backlog_tokens=1000) as server:
        # with alternatives a token takes a kilobyte, which fills the sockets' buffers soon
        fields = {"stream": True, "prompt": "s" * 50, "logprobs": 20, **LONG}
        body = json.dumps({**fields, "max_tokens": 9 * 10**6}).encode()
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with server.connect(receive_bytes=4096) as slow:
            slow.sendall(head.encode() + body)
            server.until(lambda: "reads too slowly" in server.log, 30)
            server.until(server.is_idle)
            assert server.post(COMPLETIONS, prompt="other").json()["choices"][0]["text"] == "other"
            slow.settimeout(20)
            tail = b""
            while not tail.endswith(b"0\r\n\r\n"):
                tail = tail[-4000:] + slow.recv(1 << 16)
        assert b"reads too slowly" in tail
        assert b"data: [DONE]" in tail
        assert server.metrics()["request_success_total:error"] == 1


# ---------------------------------------------------------------------- metrics


def test_B151_every_end_is_counted_by_its_reason(server):
    server.until(server.is_idle)
    before = server.metrics()
    for stream in (True, True, True, False, False):
        server.send_and_leave(CHAT, said("go on", **LONG, stream=stream), after_s=0.05)
    for _ in range(2):
        server.post(CHAT, said("hi"))
    server.post(CHAT, said("hello there", max_tokens=2))
    server.post(CHAT, said("hi", top_p=7))
    server.until(server.is_idle)
    server.until(
        lambda: (
            server.metrics()["request_success_total:abort"]
            == before["request_success_total:abort"] + 5
        )
    )

    after = server.metrics()
    new = {name: after[name] - before[name] for name in after if name.startswith("request_success")}
    assert new == {
        "request_success_total:abort": 5, "request_success_total:stop": 2,
        "request_success_total:length": 1, "request_success_total:error": 0,
    }  # fmt: skip
    key = "e2e_request_latency_seconds_count"
    assert after[key] - before[key] == 8
    key = "request_generation_tokens"
    assert after[f"{key}_count"] - before[f"{key}_count"] == 3
    assert after[f"{key}_sum"] - before[f"{key}_sum"] == 3 + 3 + 2


def test_B153_scrapes_are_good_while_requests_come_and_go(small):
    stop, problems = threading.Event(), []

    def scrape():
        while not stop.is_set():
            metrics = small.metrics()
            problems.extend(name for name, value in metrics.items() if value < 0)
            time.sleep(0.02)

    thread = threading.Thread(target=scrape)
    thread.start()
    for _ in range(15):
        small.send_and_leave(COMPLETIONS, {"prompt": "w" * 20, "n": 3}, after_s=0.01)
        small.post(COMPLETIONS, prompt="b" * 10)
    stop.set()
    thread.join()

    assert problems == []
    assert small.http.get("/metrics").headers["content-type"].startswith("text/plain")


def test_the_server_process_imports_neither_torch_nor_transformers(server):
    """What is imported shows in the process's maps: both have native libraries or are pulled in
    by what does."""
    maps = [entry.path for entry in psutil.Process(server.process.pid).memory_maps()]

    assert any("uvloop" in path for path in maps)
    assert not [path for path in maps if "torch" in path or "transformers" in path]


def test_B03_unknown_fields_of_messages_tools_and_options_are_named(server):
    message = {"role": "user", "content": "hi", "frobnicate": 1}
    options = {"include_usage": True, "foo": 1}
    for body, path in (
        (said("hi", stream=True, stream_options=options), "stream_options.foo"),
        ({"messages": [message]}, "messages[].frobnicate"),
        (said("hi", tools=[{"function": {"name": "f", "strictt": True}}], tool_choice="none"),
         "tools[].function.strictt"),
    ):  # fmt: skip
        answer = server.post(CHAT, body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["X-Octavo-Ignored-Fields"] == path
