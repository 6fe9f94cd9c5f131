"""What Litestar itself finds wrong with a body is told by field, and is the client's fault."""

from __future__ import annotations

import logging

import pytest
from litestar import Litestar, post
from litestar.testing import TestClient
from pydantic import BaseModel, ConfigDict

from octavo.serving.http_errors import ErrorShapes


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str


@post("/say")
async def say(data: Body) -> dict[str, str]:
    if data.text == "deeper":
        return await say.fn(data)
    return {}


@pytest.fixture(scope="module")
def client():
    app = Litestar([say], exception_handlers={Exception: ErrorShapes().respond})
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b'{"text": 1}', "text: Input should be a valid string", "text"),
        (b'{"text": "a", "txt": 1}', "txt: Extra inputs are not permitted", "txt"),
        (b"[" * 100_000, "the request's body is nested too deeply", None),
    ],
)
def test_a_body_that_will_not_do(client, body, message, param):
    answer = client.post("/say", content=body, headers={"content-type": "application/json"})

    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["message"].endswith(message)
    assert error["param"] == param


def test_a_handler_without_end_is_no_fault_of_the_body(client, caplog):
    with caplog.at_level(logging.CRITICAL, "octavo"):
        answer = client.post("/say", json={"text": "deeper"})

    assert answer.status_code == 500
