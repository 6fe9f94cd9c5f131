"""A server with OpenAI's API as a source of text. Stdlib only, so that it starts at once.

Knows HTTP, server-sent events and the fields it needs. Does not know terminals or models.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from octavo.cli.text_sources import Piece, TextSource
from octavo.errors import ConfigError, EngineError, RequestError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from octavo.cli.text_sources import Message, Pieces

_CONNECT_TIMEOUT_S = 10.0
_FIRST_ERROR_STATUS = 400
_FIRST_SERVER_ERROR_STATUS = 500
_EVENT = b"data:"


class RemoteSource(TextSource):
    """A server. Without a model the first one that the server lists is asked.

    Raises EngineError when the server cannot be reached.
    """

    def __init__(self, url: str, *, api_key: str | None = None, model: str | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"invalid --url {url!r}", "write it as http://localhost:8000")
        self._is_tls = parts.scheme == "https"
        self._address = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._api_key = api_key
        self.model = model or self._first_model()

    def complete(self, prompt: str, sampling: Mapping[str, Any]) -> Pieces:
        """Continue a text through /v1/completions."""
        for event in self._events("/completions", {"prompt": prompt, **sampling}):
            yield _piece(event, lambda choice: choice.get("text"))

    def chat(self, messages: Sequence[Message], sampling: Mapping[str, Any]) -> Pieces:
        """Answer a conversation through /v1/chat/completions."""
        for event in self._events("/chat/completions", {"messages": list(messages), **sampling}):
            yield _piece(event, lambda choice: choice.get("delta", {}).get("content"))

    def close(self) -> None:
        """Nothing stays open between answers."""

    def _first_model(self) -> str:
        connection, response = self._request("GET", "/models")
        try:
            models = json.loads(response.read()).get("data") or []
        except (ValueError, AttributeError) as error:
            raise EngineError(f"{self._address} does not speak OpenAI's API", str(error)) from error
        finally:
            connection.close()
        if not models:
            raise EngineError(f"{self._address} serves no model")
        return str(models[0]["id"])

    def _events(
        self, path: str, fields: Mapping[str, Any]
    ) -> Generator[dict[str, Any], None, None]:
        """Yield the events of a streamed answer. Leaving early closes the connection."""
        body = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **fields,
        }
        connection, response = self._request("POST", path, body)
        try:
            for line in response:
                data = line.strip()
                if not data.startswith(_EVENT):
                    continue
                data = data.removeprefix(_EVENT).strip()
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise EngineError("the server ended the answer", _message(event))
                yield event
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"lost the connection to {self._address}", repr(error)) from error
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request. Raises RequestError or EngineError with the server's message."""
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._address, timeout=_CONNECT_TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            connection.connect()
            connection.sock.settimeout(None)  # a prompt may wait in a queue for long
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._prefix + path, data, headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise EngineError(
                f"cannot reach a server at {self._address}", str(error), "is it running?"
            ) from error
        if response.status < _FIRST_ERROR_STATUS:
            return connection, response
        text = response.read().decode("utf-8", "replace")
        connection.close()
        error_class = EngineError if response.status >= _FIRST_SERVER_ERROR_STATUS else RequestError
        raise error_class(f"the server answered {response.status}", _message(_parsed(text)))


def _piece(event: Mapping[str, Any], text_of: Any) -> Piece:
    choices = event.get("choices") or [{}]
    choice: Mapping[str, Any] = choices[0]
    usage = event.get("usage") or {}
    return Piece(
        text_of(choice) or "",
        choice.get("finish_reason"),
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
    )


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"error": text[:500]}


def _message(event: Mapping[str, Any]) -> str:
    error = event.get("error")
    return str(error.get("message") if isinstance(error, dict) else error)
