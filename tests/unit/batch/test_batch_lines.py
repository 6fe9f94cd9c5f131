"""Lines of a batch: what is read, what is refused and why, what is written."""

import json

import pytest

from octavo.batch.lines import Answer, LineReader, RawLine, output_line, written_key

URLS = {"/v1/completions", "/v1/chat/completions"}
GOOD = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}


def read(*lines):
    reader = LineReader(URLS)
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return [reader.read(RawLine(i, text, len(text) + 1)) for i, text in enumerate(texts, start=1)]


def test_a_body_is_passed_on_byte_for_byte():
    text = (
        b'{"body": {"prompt":"\\ud83d\\ude00", "n":1e0, "n":2 }, '
        b'"url":"/v1/completions","method":"POST","custom_id":"a"}'
    )
    (request,) = read(text)

    assert request.fault is None
    assert request.body == b'{"prompt":"\\ud83d\\ude00", "n":1e0, "n":2 }'


@pytest.mark.parametrize(
    ("line", "code", "custom_id"),
    [
        (b"{", "invalid_json", None),
        (b'{"custom_id": "\xff"}', "invalid_json", None),
        (b"[1]", "invalid_json", None),
        (GOOD | {"custom_id": None}, "invalid_custom_id", None),
        (GOOD | {"custom_id": 7}, "invalid_custom_id", None),
        (GOOD | {"custom_id": ""}, "invalid_custom_id", None),
        (GOOD | {"method": "GET"}, "invalid_method", "a"),
        (GOOD | {"url": "/v1/nope"}, "invalid_url", "a"),
        (GOOD | {"url": ["/v1/completions"]}, "invalid_url", "a"),
        (GOOD | {"body": [1]}, "invalid_body", "a"),
        ({key: GOOD[key] for key in ("custom_id", "method", "url")}, "invalid_body", "a"),
        (GOOD | {"body": {"prompt": "x", "stream": True}}, "invalid_body", "a"),
    ],
)
def test_a_line_that_cannot_be_sent_says_why(line, code, custom_id):
    (request,) = read(line)
    written = json.loads(output_line(request, None))

    assert written["custom_id"] == custom_id
    assert written["response"] is None
    assert written["error"]["code"] == code
    assert written["error"]["line"] == 1


def line_of(body, custom_id=b'"a"'):
    head = b'{"custom_id":%b,"method":"POST","url":"/v1/completions","body":' % custom_id
    return head + body + b"}"


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("body", [b'{"prompt":%b}' % DEEP, DEEP, b"[" * 100_000])
def test_a_line_nested_too_deeply_is_one_line_of_output_and_others_go_on(body):
    bad, good = read(line_of(body), GOOD | {"custom_id": "b"})
    written = json.loads(output_line(bad, None))

    assert written["error"]["code"] == "invalid_json"
    assert written["custom_id"] == ("a" if body.endswith((b"]", b"}")) else None)
    assert good.fault is None


@pytest.mark.parametrize(
    "body",
    [
        rb'{"prompt":"x\ud83d"}',
        rb'{"prompt":"} \" \\", "stop":["\udc00"], "n" : NaN }',
        rb'{"prompt":"x","temperature":NaN,"stream":false}',
        rb'{"prompt":"x","top_p":-Infinity}',
        rb'{"prompt":nope}',
    ],
)
def test_what_is_no_json_in_a_body_is_left_to_whom_it_is_sent_to(body):
    (request,) = read(line_of(body))

    assert request.fault is None
    assert (request.custom_id, request.url, request.body) == ("a", "/v1/completions", body)


@pytest.mark.parametrize(
    ("line", "code", "custom_id"),
    [
        (line_of(rb'{"prompt":"x\ud83d","stream":true}'), "invalid_body", "a"),
        (line_of(rb'["\ud83d"]'), "invalid_body", "a"),
        (line_of(rb'{"prompt":"x"},"more":NaN'), "invalid_json", "a"),
        (line_of(rb'{"prompt":NaN}', rb'"x\ud83d"'), "invalid_custom_id", None),
        (line_of(rb'{"prompt":NaN}', rb"[7]"), "invalid_custom_id", None),
        (line_of(rb'{"prompt":NaN}') + b"x", "invalid_json", None),
        (line_of(rb'{"prompt":NaN},,"x":1'), "invalid_json", None),
        (line_of(rb'{"prompt":NaN},"x"'), "invalid_json", None),
    ],
)
def test_a_line_read_loosely_is_refused_as_any_other(line, code, custom_id):
    (request,) = read(line)

    assert (request.fault.code, request.custom_id) == (code, custom_id)


def test_B157_each_of_two_lines_with_one_custom_id_is_a_line_of_output():
    requests = read(GOOD, GOOD, GOOD | {"body": {"prompt": "y"}}, GOOD | {"custom_id": "b"})

    assert [one.fault and one.fault.code for one in requests] == [
        None,
        "duplicate_custom_id",
        "duplicate_custom_id",
        None,
    ]
    assert len({one.id for one in requests}) == 4


def test_a_line_has_the_same_id_wherever_it_stands_and_another_when_it_says_something_else():
    first, second = read(GOOD, GOOD | {"custom_id": "b"})
    again, other = read(GOOD | {"custom_id": "b"}, GOOD | {"body": {"prompt": "y"}})

    assert second.id == again.id
    assert first.id != other.id


def test_a_line_of_output_is_openais():
    (request,) = read(GOOD)
    written = output_line(request, Answer(200, "r-1", b'{"usage":null}'))

    assert written == (
        b'{"id":"%b","custom_id":"a","response":{"status_code":200,"request_id":"r-1",'
        b'"body":{"usage":null}},"error":null}\n' % request.id.encode()
    )
    assert written_key(written) == (request.key, False)


@pytest.mark.parametrize(
    ("answer", "error", "body"),
    [
        (
            Answer(400, "r", b'{"error":{"message":"too long","code":"c","type":"t"}}'),
            {"code": "c", "message": "too long", "line": 1},
            {"error": {"message": "too long", "code": "c", "type": "t"}},
        ),
        (
            Answer(404, "r", b'{"error":{"message":"no","code":null,"type":"t"}}'),
            {"code": "t", "message": "no", "line": 1},
            {"error": {"message": "no", "code": None, "type": "t"}},
        ),
        (
            Answer(500, "r", b"two\nlines", b"text/plain"),
            {"code": "http_500", "message": "two\nlines", "line": 1},
            "two\nlines",
        ),
        (
            Answer(502, "r", b'[\n"x"]'),
            {"code": "http_502", "message": '[\n"x"]', "line": 1},
            ["x"],
        ),
    ],
)
def test_an_answer_that_is_an_error_is_told_twice_on_one_line(answer, error, body):
    (request,) = read(GOOD)
    written = output_line(request, answer)

    assert written.count(b"\n") == 1
    assert json.loads(written)["error"] == error
    assert json.loads(written)["response"]["body"] == body
    assert written_key(written) == (request.key, True)


@pytest.mark.parametrize("line", [b"x", b"{}", b'{"id":"vllm-1"}', b'{"id":"batch_req_x"}'])
def test_a_line_of_somebody_else_is_known(line):
    with pytest.raises(ValueError):  # noqa: PT011 - the file's reader names the line
        written_key(line)
