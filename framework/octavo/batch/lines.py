"""One line of a batch's input, and one of its output, as OpenAI has them.

In: `{"custom_id": ..., "method": "POST", "url": "/v1/...", "body": {...}}`. Out: `{"id": ...,
"custom_id": ..., "response": {"status_code", "request_id", "body"}, "error": {"code", "message",
"line"}}`, where `error` is null for an answer with status 200, and `response` is null for a line
that was never sent.

Knows lines. Does not know files, or who answers. (https://platform.openai.com/docs/guides/batch)
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.batch.members import members, text_of

if TYPE_CHECKING:
    from collections.abc import Collection

_ID_PREFIX = "batch_req_"
_DIGEST_BYTES = 8
_OK = 200
#: what the reader raises for bytes that it cannot read
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_JSON = b"application/json"


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it stands in the file. `number` counts from 1. One that is cut was too long."""

    number: int
    text: bytes
    size_bytes: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a line is not sent, in OpenAI's words for errors of a batch."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A line that was read. One with a fault has no more than its number and its names.

    `key` tells it from all others of the file: in another run of the same line it is the same.
    """

    number: int
    key: int
    size_bytes: int
    custom_id: str | None
    url: str = ""
    body: bytes = b""
    fault: Fault | None = None

    @property
    def id(self) -> str:
        """Return the id of its line in the output."""
        return f"{_ID_PREFIX}{self.key:016x}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered with."""

    status: int
    request_id: str
    body: bytes
    content_type: bytes = _JSON


class _Given(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    stream: Any = None


class _Written(msgspec.Struct):
    id: str
    error: Any = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Measured(msgspec.Struct):
    usage: _Usage | None = None


_read_line = msgspec.json.Decoder(_Given).decode
_read_body = msgspec.json.Decoder(_Body).decode
_read_written = msgspec.json.Decoder(_Written).decode
_read_measured = msgspec.json.Decoder(_Measured).decode


class LineReader:
    """Turns lines into requests. Remembers 8 bytes of each `custom_id`, and no more.

    `urls` are those that can be asked.
    """

    def __init__(self, urls: Collection[str]) -> None:
        self._urls = sorted(urls)
        self._custom_ids: set[int] = set()

    def read(self, line: RawLine) -> BatchRequest:
        """Return the request of a line; never raises for what the line holds."""
        if line.is_cut:
            headline = f"the line is longer than the {len(line.text)} bytes that are read of one"
            return self._faulty(line, None, Fault("line_too_long", headline))
        unreadable = None
        try:
            given = _read_line(line.text)
        except _UNREADABLE as error:
            unreadable = Fault("invalid_json", f"the line is no request: {error}")
            found = _read_loosely(line.text)
            if found is None:
                return self._faulty(line, None, unreadable)
            given = found
            if not isinstance(error, RecursionError) and _is_unreadable(given.body):
                unreadable = None  # whom it is sent to tells what the body is
        name = given.custom_id
        if not _is_name(name):
            fault = Fault("invalid_custom_id", "`custom_id` must be a text that is not empty")
            return self._faulty(line, None, unreadable or fault)
        if not self._is_first(name):
            fault = Fault("duplicate_custom_id", "an earlier line has the same `custom_id`")
            return self._faulty(line, name, fault)
        if unreadable is not None:
            return self._faulty(line, name, unreadable)
        body = bytes(given.body)
        fault_or_none = self._fault_of(given, body)
        key, url = _digest(line.text), str(given.url)
        return BatchRequest(line.number, key, line.size_bytes, name, url, body, fault_or_none)

    def _is_first(self, custom_id: str) -> bool:
        mark = _digest(custom_id.encode("utf-8", "surrogatepass"))
        is_first = mark not in self._custom_ids
        self._custom_ids.add(mark)
        return is_first

    def _fault_of(self, given: _Given, body: bytes) -> Fault | None:
        if given.method != "POST":
            return Fault("invalid_method", "`method` must be POST")
        if given.url not in self._urls:
            return Fault("invalid_url", f"`url` must be one of: {', '.join(self._urls)}")
        try:
            is_stream = _read_body(body).stream
        except _UNREADABLE as error:
            fields = members(body)
            if fields is None or isinstance(error, msgspec.ValidationError):
                return Fault("invalid_body", f"`body` is no request: {error}")
            is_stream = fields.get("stream", b"null") not in {b"null", b"false"}
        if is_stream:
            return Fault("invalid_body", "answers of a batch are not streamed: leave out `stream`")
        return None

    def _faulty(self, line: RawLine, custom_id: str | None, fault: Fault) -> BatchRequest:
        """Return a line that nothing but its place tells from another with the same text."""
        key = _digest(b"%d:%b" % (line.number, line.text))
        return BatchRequest(line.number, key, line.size_bytes, custom_id, fault=fault)


def _read_loosely(text: bytes) -> _Given | None:
    """Return a line that is an object with a value, somewhere, that cannot be read."""
    fields = members(text)
    if fields is None:
        return None
    names = {name: text_of(fields.get(name)) for name in ("custom_id", "method", "url")}
    return _Given(**names, body=msgspec.Raw(fields.get("body", b"null")))


def _is_unreadable(body: msgspec.Raw) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except _UNREADABLE:
        return True
    return False


def _is_name(custom_id: Any) -> bool:
    """Return whether it is a text that can be written again: half a surrogate pair cannot."""
    if not isinstance(custom_id, str) or not custom_id:
        return False
    return not any("\ud800" <= char <= "\udfff" for char in custom_id)


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), "big")


def written_key(line: bytes) -> tuple[int, bool]:
    """Return which request a line of output is of, and whether it failed.

    Raises ValueError for a line that no batch has written.
    """
    try:
        written = _read_written(line)
    except _UNREADABLE as error:
        raise ValueError(str(error)) from error
    if not written.id.startswith(_ID_PREFIX):
        raise ValueError(f"its id is {written.id!r}")
    return int(written.id.removeprefix(_ID_PREFIX), 16), written.error is not None


def output_line(request: BatchRequest, answer: Answer | None) -> bytes:
    """Return the line of output, with its end. Without an answer it tells the request's fault."""
    entry = {
        "id": request.id,
        "custom_id": request.custom_id,
        "response": None if answer is None else _response_of(answer),
        "error": _error_of(request, answer),
    }
    return msgspec.json.encode(entry) + b"\n"


def _response_of(answer: Answer) -> dict[str, Any]:
    body: Any = answer.body.decode("utf-8", "replace")
    if answer.content_type.startswith(_JSON):
        # as it is, unless it would not stay one line
        is_one_line = b"\n" not in answer.body
        body = msgspec.Raw(answer.body) if is_one_line else msgspec.json.decode(answer.body)
    return {"status_code": answer.status, "request_id": answer.request_id, "body": body}


def _error_of(request: BatchRequest, answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        assert request.fault is not None  # noqa: S101 - nothing else is written without an answer
        code, message = request.fault.code, request.fault.message
    elif answer.status == _OK:
        return None
    else:
        code, message = _told(answer)
    return {"code": code, "message": message, "line": request.number}


def _told(answer: Answer) -> tuple[str, str]:
    """Return code and message of an answer that is an error, whatever its dialect's shape."""
    try:
        body = msgspec.json.decode(answer.body)
    except _UNREADABLE:
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return f"http_{answer.status}", answer.body.decode("utf-8", "replace")
    code = error.get("code") or error.get("type") or f"http_{answer.status}"
    return str(code), str(error.get("message"))


def tokens_of(answer: Answer) -> tuple[int, int]:
    """Return the tokens that an answer's usage counts: of prompts, and generated."""
    try:
        usage = _read_measured(answer.body).usage or _Usage()
    except _UNREADABLE:
        return 0, 0
    return usage.prompt_tokens, usage.completion_tokens
