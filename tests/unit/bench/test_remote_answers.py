"""Answers of servers, taken apart as their bytes come, however they are cut."""

import asyncio

import pytest

from octavo.bench.remote.address import Address
from octavo.bench.remote.connection import Connections
from octavo.bench.remote.http_body import AnswerParser, MalformedAnswerError
from octavo.errors import ConfigError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def event(text):
    return b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunks(*pieces):
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*pieces, b""))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "body", "stays"),
    [
        (CHUNKED + chunks(b"one", b"two\r\n3"), b"onetwo\r\n3", True),
        (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello", True),
        (HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", b"hi", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"content-length: 1\r\n\r\nx", b"x", True),
        (CHUNKED + b"3;a=b\r\nabc\r\n0\r\n\r\n", b"abc", True),
    ],
)
def test_an_answer_is_the_same_however_it_is_cut(answer, body, stays, size):
    parser = AnswerParser()
    got = b"".join(parser.feed(answer[at : at + size]) for at in range(0, len(answer), size))

    assert (parser.status, got) == (200, body)
    assert parser.is_complete
    assert parser.may_stay_open == stays


def test_an_answer_without_a_length_ends_with_its_connection():
    parser = AnswerParser()
    assert parser.feed(HEAD + b"\r\nhello") == b"hello"
    assert not parser.is_complete
    parser.end()
    assert parser.is_complete

    cut = AnswerParser()
    cut.feed(CHUNKED + b"5\r\nhel")
    cut.end()
    assert not cut.is_complete


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n\r\n", CHUNKED + b"zz\r\n", b"x" * 70_000])
def test_what_is_no_answer_is_refused(answer):
    with pytest.raises(MalformedAnswerError):
        AnswerParser().feed(answer)


def ask(*answers, num=1, timeout_s=5.0):
    """Send requests one after another; each connection gives the answers in turn, then closes."""
    seen, writers = [], []

    async def serve(reader, writer):
        writers.append(writer)
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head)
            for piece in answer if isinstance(answer, list) else [answer]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connections = Connections(Address.of(f"http://127.0.0.1:{port}/x/v1", "k"), timeout_s)
        try:
            sent = [await connections.send("GET", "/v1/models") for _ in range(num)]
            return [one.outcome for one in sent]
        finally:
            connections.close()
            server.close()
            for writer in writers:
                writer.transport.abort()
            await asyncio.sleep(0)

    return asyncio.run(run()), seen


def test_pieces_of_text_are_timed_and_tokens_are_the_servers():
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\r\n\r\n'
    body = chunks(role, event(b"a"))[:-5], chunks(event(b"b") + event(b"c"), USAGE + DONE)
    ([outcome], [head]) = ask([CHUNKED, *body])

    assert outcome.error is None
    assert (outcome.num_prompt_tokens, outcome.num_output_tokens) == (7, 5)
    assert len(outcome.chunk_times_s) == 3
    assert outcome.gaps_ms[0] > 5 > outcome.gaps_ms[1]
    assert outcome.tpot_ms == pytest.approx((outcome.e2e_ms - outcome.ttft_ms) / 4)
    assert head.startswith(b"GET /x/v1/models HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer k\r\n" in head


def test_reasoning_tool_calls_and_plain_texts_are_pieces_too():
    pieces = [
        b'data: {"choices":[{"delta":{"reasoning":"x"}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n',
        b'data: {"choices":[{"text":"x"}]}\n\n',
        b'data: {"choices":[{"text":""}]}\n\n: a comment\n\n',
    ]
    ([outcome], _) = ask(CHUNKED + chunks(*pieces, DONE))

    assert (outcome.error, len(outcome.chunk_times_s)) == (None, 3)
    assert outcome.num_output_tokens == 3  # the server gave no usage


@pytest.mark.parametrize(
    ("answer", "error", "detail"),
    [
        (
            b"HTTP/1.1 503 X\r\nContent-Length: 32\r\n\r\n" + b'{"error":{"message":"too many"}}',
            "HTTP 503",
            "too many",
        ),
        (b"HTTP/1.1 502 X\r\nContent-Length: 4\r\n\r\noops", "HTTP 502", "oops"),
        (CHUNKED + chunks(event(b"a")), "stream cut off", "it ended without [DONE]"),
        (
            CHUNKED + chunks(event(b"a"))[:-5],
            "connection lost",
            "it was closed before the answer ended",
        ),
        (CHUNKED + chunks(USAGE, DONE), "no text", "the answer holds no text"),
        (
            CHUNKED + chunks(event(b"a"), b'data: {"error":{"message":"died"}}\n\n', DONE),
            "error in the stream",
            "died",
        ),
        (CHUNKED + chunks(b"data: {\n\n", DONE), "malformed event", None),
        (b"hello\r\n\r\n", "malformed answer", "no HTTP answer: 'hello'"),
    ],
)
def test_what_goes_wrong_is_told_by_kind(answer, error, detail):
    ([outcome], _) = ask(answer)

    assert outcome.error == error
    assert detail is None or outcome.detail == detail


def test_connections_are_kept_and_a_closed_one_is_replaced():
    answer = CHUNKED + chunks(event(b"a"), DONE)
    outcomes, seen = ask(answer, answer, num=5)

    assert [one.error for one in outcomes] == [None] * 5
    assert len(seen) == 5


def test_a_request_that_does_not_end_is_a_timeout():
    ([outcome], _) = ask([CHUNKED, *[b""] * 40, b""], timeout_s=0.1)
    assert outcome.error == "timeout"


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix"),
    [
        ("http://localhost:8000", "localhost", 8000, ""),
        ("localhost:8000/v1/", "localhost", 8000, ""),
        ("https://api.example.com/llm/v1", "api.example.com", 443, "/llm"),
        ("http://[::1]:81", "::1", 81, ""),
    ],
)
def test_addresses(url, host, port, prefix):
    address = Address.of(url)
    assert (address.host, address.port, address.prefix) == (host, port, prefix)
    assert (address.tls is not None) == url.startswith("https")


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:y", "http://x:99999"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="invalid --base-url"):
        Address.of(url)


def test_a_key_is_not_shown():
    assert "secret" not in repr(Address.of("http://x", "secret"))
