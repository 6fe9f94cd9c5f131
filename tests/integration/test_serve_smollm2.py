"""`octavo serve smollm2` and OpenAI's own client, as on the first page of the README."""

import asyncio
import signal
import threading
import time

import openai
import psutil
import pytest

from server_process import octavo_serve

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
QUESTION = [{"role": "user", "content": "Name the capital of France."}]
GREEDY = {"model": "smollm2", "temperature": 0}


@pytest.fixture(scope="module")
def server():
    with octavo_serve("smollm2", "--max-model-len", "2048", "--enable-log-requests") as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_it_answers_a_question(client):
    answer = client.chat.completions.create(**GREEDY, messages=QUESTION, max_tokens=24)
    text = answer.choices[0].message.content

    assert "Paris" in text
    assert "<|im_end|>" not in text
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_streamed_answer_is_the_whole_answer(client):
    asked = {**GREEDY, "messages": QUESTION, "max_tokens": 24, "logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(**asked).choices[0]
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )

    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    logprobs = [entry for one in choices if one.logprobs for entry in one.logprobs.content]
    assert "".join(one.delta.content or "" for one in choices) == whole.message.content
    assert [entry.token for entry in logprobs] == [entry.token for entry in whole.logprobs.content]
    assert choices[0].delta.role == "assistant"
    assert choices[-1].finish_reason == whole.finish_reason
    assert chunks[-1].usage.completion_tokens == len(logprobs)


def test_a_chat_that_its_template_cannot_even_hold_is_too_long_for_the_context(server):
    messages = [{"role": "user", "content": "word " * 2_400_000}]
    answer = server.post(CHAT, messages=messages, max_tokens=1)
    error = answer.json()["error"]

    assert answer.status_code == 400
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "maximum context length is 2048 tokens" in error["message"]
    assert "template" not in error["message"]


def test_a_priority_under_fcfs_is_named_among_the_ignored_fields(server):
    answer = server.post(COMPLETIONS, prompt="Hello", max_tokens=1, priority=5)

    assert answer.status_code == 200
    assert answer.headers["x-octavo-ignored-fields"] == "priority"
    assert "the scheduler 'fcfs' does not read it" in server.log


def test_the_log_says_which_form_was_asked_for(server):
    form = {"regex": r"\d{4}"}
    answer = server.post(COMPLETIONS, prompt="In the year ", structured_outputs=form, priority=3)
    (line,) = (line for line in server.log.splitlines() if " structured_outputs=" in line)

    assert answer.json()["choices"][0]["text"].isascii()
    assert answer.json()["choices"][0]["text"].isdigit()
    assert "generate call=" in line
    assert "{'regex': " in line
    assert " priority=3 " in line


def test_a_stop_string_a_text_and_ids_as_prompts(client, server):
    text = client.completions.create(
        **GREEDY, prompt="1, 2, 3, 4,", max_tokens=24, stop=[" 7"]
    ).choices[0]
    ids = server.post(
        COMPLETIONS, **GREEDY, prompt="1, 2, 3, 4,", max_tokens=1, return_token_ids=True
    ).json()["choices"][0]["prompt_token_ids"]
    same = client.completions.create(**GREEDY, prompt=[ids, ids], max_tokens=24, stop=" 7")

    assert text.text == " 5, 6,"
    assert text.finish_reason == "stop"
    assert [choice.text for choice in same.choices] == [text.text] * 2


def test_64_streams_at_once_are_each_whole(server):
    """Every stream's text is that of the same request alone."""
    prompts = [f"Count from {number}: {number}," for number in range(4)]
    asked = {**GREEDY, "max_tokens": 4}
    expected = [
        server.post(COMPLETIONS, **asked, prompt=prompt).json()["choices"][0]["text"]
        for prompt in prompts
    ]

    async def one(client, index):
        stream = await client.completions.create(**asked, prompt=prompts[index % 4], stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def all_of_them():
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, index) for index in range(64)))

    texts = asyncio.run(all_of_them())

    assert texts == [expected[index % 4] for index in range(64)]
    server.until(server.is_idle)


def test_bad_requests_are_400_and_the_next_one_is_answered(client):
    with pytest.raises(
        openai.BadRequestError, match="maximum context length is 2048 tokens"
    ) as bad:
        client.completions.create(**GREEDY, prompt=[5] * 2048)
    assert bad.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="smollm2", prompt="a", temperature=3)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="smollm3", prompt="a")
    assert client.completions.create(**GREEDY, prompt="a", max_tokens=1).choices[0].text


def test_the_server_process_imports_neither_torch_nor_transformers(server):
    """The engine's process has torch's libraries mapped; the server's has not."""
    mapped = {
        process.pid: [entry.path for entry in process.memory_maps()]
        for process in (psutil.Process(server.process.pid), server.engine)
    }

    assert not [path for path in mapped[server.process.pid] if "torch" in path]
    assert [path for path in mapped[server.engine.pid] if "libtorch" in path]


def test_B119_a_client_that_leaves_frees_its_blocks(server):
    for stream in (False, True):
        fields = {**GREEDY, "messages": QUESTION, "max_tokens": 1500, "ignore_eos": True}
        server.send_and_leave(CHAT, {**fields, "stream": stream}, after_s=0.5)
    server.until(server.is_idle, timeout_s=30)


def test_B148_kill_9_in_mid_stream(server, client):
    """The last test: the engine that follows takes its time to load."""
    errors = []

    def read_on():
        try:
            for _ in client.completions.create(
                **GREEDY,
                prompt="Once",
                max_tokens=1500,
                stream=True,
                extra_body={"ignore_eos": True},
            ):
                pass
        except openai.APIError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=read_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.until(lambda: server.metrics()["num_requests_running"] == 4, timeout_s=30)
    server.engine.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    for thread in threads:
        thread.join(10)

    assert time.monotonic() - killed_s < 2
    assert len(errors) == 4
    assert all("the engine process ended" in error for error in errors)
    assert server.http.get("/health").status_code == 503
    with pytest.raises(openai.InternalServerError, match="restarting"):
        client.completions.create(**GREEDY, prompt="a")
    server.until(lambda: server.http.get("/health").status_code == 200, timeout_s=120)
    answer = client.chat.completions.create(**GREEDY, messages=QUESTION, max_tokens=24)
    assert "Paris" in answer.choices[0].message.content
