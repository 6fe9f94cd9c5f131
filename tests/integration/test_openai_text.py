"""Text over HTTP: stop strings, ends, characters in pieces, and clients that leave the queue.

The engine is scripted and repeats the prompt (FORCE of the bug cases is to say the text), one
request at a time. Everything is asked whole and streamed, as a chat and as a completion.
"""

import json
import threading

import psutil
import pytest

from scripted import EOS, BytesTokenizer
from server_process import scripted_server_process

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
FORCED = "Zdravím ďábla 😀👨\u200d👩\u200d👧 漢字 ✓"


@pytest.fixture(scope="module")
def server():
    script = {"max_num_seqs": 1, "max_model_len": 4000, "max_num_queued_reqs": 9, "step_ms": 2.0}
    with scripted_server_process(script=script) as process:
        yield process
        assert process.stop() == 0


def body_of(path, text, **fields):
    start = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    return {"max_tokens": 200, **start, **fields}


def whole(server, path, text, **fields):
    """Return text, finish_reason, stop_reason and the number of tokens of a whole answer."""
    answer = server.post(path, body_of(path, text, **fields)).json()
    (choice,) = answer["choices"]
    said = choice["message"]["content"] if path == CHAT else choice["text"]
    num_tokens = answer["usage"]["completion_tokens"]
    return said, choice["finish_reason"], choice["stop_reason"], num_tokens


def streamed(server, path, text, **fields):
    """Return the deltas, then the same as `whole` of them joined."""
    events = server.events(
        path, **body_of(path, text, **fields), stream_options={"include_usage": True}
    )
    choices = [choice for event in events for choice in event["choices"]]
    if path == CHAT:
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        deltas = [choice["delta"].get("content") for choice in choices[1:]]
    else:
        deltas = [choice["text"] for choice in choices]
    assert all(deltas[:-1]), "an empty delta before the last"
    assert deltas[-1] or choices[-1]["finish_reason"]
    last = choices[-1]
    num_tokens = events[-1]["usage"]["completion_tokens"]
    joined = "".join(delta or "" for delta in deltas)
    return deltas, (joined, last["finish_reason"], last["stop_reason"], num_tokens)


both_paths = pytest.mark.parametrize("path", [CHAT, COMPLETIONS])


@both_paths
def test_B26_no_delta_holds_a_part_of_the_stop_string(server, path):
    text = "Numbers in order: one two three four five"
    for stop in ("one two", "two thr", [" in order: o", "never"]):
        sought = stop if isinstance(stop, str) else stop[0]
        before = text[: text.index(sought)]
        deltas, joined = streamed(server, path, text, stop=stop)
        assert joined == whole(server, path, text, stop=stop)
        assert joined[:3] == (before, "stop", sought)
        assert all(delta in before for delta in deltas if delta)
        kept = {"stop": stop, "include_stop_str_in_output": True}
        assert streamed(server, path, text, **kept)[1][0] == before + sought


@both_paths
def test_B28_the_end_token_as_stop_id_cuts_no_text(server, path):
    plain = streamed(server, path, "hello there")[1]
    named = streamed(server, path, "hello there", stop_token_ids=[EOS])[1]
    assert plain[:2] == named[:2] == ("hello there", "stop")
    assert (plain[2], named[2]) == (None, EOS)
    assert whole(server, path, "hello there", stop_token_ids=[EOS]) == named


@both_paths
def test_B30_a_stop_string_that_never_comes_delays_nothing(server, path):
    never = "".join(map(chr, range(1, 9)))
    text = "some words, 漢 and 😀"
    deltas, joined = streamed(server, path, text, stop=[never])
    assert joined == streamed(server, path, text)[1] == whole(server, path, text)
    assert len(deltas) > 4


@both_paths
def test_B33_a_stop_string_before_min_tokens_is_text(server, path):
    text = "ab" * 30
    limits = {"stop": ["ab"], "min_tokens": 20, "max_tokens": 40}
    joined = streamed(server, path, text, **limits)[1]
    assert joined == whole(server, path, text, **limits) == ("ab" * 9, "stop", "ab", 20)
    early = {**limits, "stop": ["xy"]}
    assert streamed(server, path, "xy" + "cd" * 30, **early)[1] == (
        "xy" + "cd" * 19, "length", None, 40,
    )  # fmt: skip


@both_paths
def test_B20_characters_come_whole_in_valid_events(server, path):
    body = {**body_of(path, FORCED), "stream": True}
    raw = server.http.post(path, json=body).content
    for line in raw.split(b"\n\n")[:-2]:
        json.loads(line.removeprefix(b"data: ").decode("utf-8"))
    deltas, joined = streamed(server, path, FORCED)
    assert joined[0] == whole(server, path, FORCED)[0] == FORCED
    assert not any("\ufffd" in delta for delta in deltas if delta)


@pytest.mark.parametrize("emitted", [[0xAD, 33], [33, 34], [0xE5, 0xAD, 0x97]], ids=str)
def test_B18_a_prompt_that_ends_inside_a_character(server, emitted):
    """The model completes the character, or leaves it, or begins another."""
    prompt = [*BytesTokenizer().encode("Good day "), *"字".encode()[:2]]
    fields = {"vllm_xargs": {"ids": emitted}, "max_tokens": 4, "echo": False}
    joined = streamed(server, COMPLETIONS, prompt, **fields)[1]
    assert joined == whole(server, COMPLETIONS, prompt, **fields)
    assert "Good day" not in joined[0]
    assert joined[0].count("\ufffd") <= 1
    assert joined[0].endswith(("!", '!"', "字"))


def test_B23_lone_surrogates_in_every_place_of_a_conversation(server):
    call = rb'{"id":"c\ud83d","type":"function","function":{"name":"f","arguments":"{}"}}'
    bodies = (
        rb'{"messages":[{"role":"user","content":"a"}],"stop":["\ud83d"],"user":"\udc00"}',
        rb'{"messages":[{"role":"user","content":"a"}],"metadata":{"k":"\ud83d"}}',
        rb'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"\ud83d",'
        rb'"tool_calls":[' + call + rb']},{"role":"tool","tool_call_id":"c\ud83d",'
        rb'"content":"result \ud83d"}],"max_tokens":20}',
    )
    for raw in bodies:
        response = server.post(CHAT, raw)
        assert response.status_code in {200, 400}, response.text
        response.content.decode("utf-8")
    assert whole(server, CHAT, "ok")[0] == "ok"


def test_B121_five_requests_that_wait_are_dropped_at_once(server):
    """While the running one goes on; none of the five is ever prefilled."""
    server.until(server.is_idle)
    before = server.metrics()["prompt_tokens_total"]
    long = {"prompt": "r" * 10, "max_tokens": 600, "ignore_eos": True}
    running = threading.Thread(target=server.post, args=(COMPLETIONS, long))
    running.start()
    server.until(lambda: server.metrics()["num_requests_running"] == 1)
    connections = []
    for number in range(5):
        body = json.dumps({"prompt": "w" * 20, "stream": number % 2 == 0}).encode()
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connections.append(server.connect())
        connections[-1].sendall(head.encode() + body)
    server.until(lambda: server.metrics()["num_requests_waiting"] == 5)
    for connection in connections:
        connection.close()
    assert server.until(lambda: server.metrics()["num_requests_waiting"] == 0) < 0.5
    assert server.metrics()["num_requests_running"] == 1
    running.join()
    server.until(server.is_idle)
    assert server.metrics()["prompt_tokens_total"] == before + 10


@both_paths
def test_B154_limits_hold_before_anything_is_allocated(server, path):
    """Whatever the prompt's length: refused by name, the servers' memory as before."""
    text = "x" * 3000
    before = rss_bytes(server)
    for name, value in (
        ("prompt_logprobs", -1), ("prompt_logprobs", 21), ("n", 100_000), ("best_of", 100_000),
        ("top_logprobs" if path == CHAT else "logprobs", 1_000_000),
    ):  # fmt: skip
        fields = {name: value} | ({"logprobs": True} if name == "top_logprobs" else {})
        for _ in range(3):
            response = server.post(path, body_of(path, text, **fields))
            assert response.status_code == 400
            assert response.json()["error"]["param"] == name
    assert rss_bytes(server) - before < 30e6
    assert whole(server, path, "still here")[0] == "still here"


def rss_bytes(server):
    own = psutil.Process(server.process.pid).memory_info().rss
    return own + server.engine.memory_info().rss
