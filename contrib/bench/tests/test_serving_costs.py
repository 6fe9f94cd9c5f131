"""What measures a server's costs sees what there is, at the scripted server."""

import asyncio
import contextlib
import json
import socket
import threading
import time

import pytest

from octavo_serving_costs.mixed_load import hold_idle, send_mixed
from octavo_serving_costs.raw_reader import read_all
from octavo_serving_costs.waits import token_times, waits_ms
from server_process import SCRIPTED, ServerProcess


@pytest.fixture(scope="module")
def server():
    options = {"access_log": False, "script": {"max_model_len": 2000}}
    with ServerProcess(*SCRIPTED, json.dumps(options)) as running:
        yield running


def test_the_raw_reader_counts_events_however_they_are_cut():
    answer = b"HTTP/1.1 200 OK\r\n\r\n" + b"data: {}\n\n" * 5 + b"data: [DONE]\n\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for size in (1, 7, 1000):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(ConnectionError):  # it leaves when it knows
                    connection.recv(1000)
                    for at in range(0, len(answer), size):
                        connection.sendall(answer[at : at + size])
                        time.sleep(0.001)

        thread = threading.Thread(target=serve)
        thread.start()
        seen = [read_all(listener.getsockname()[1], [b"{}"]) for _ in range(3)]
        thread.join()

    assert [(one["events"], one["failed"]) for one in seen] == [(5, 0)] * 3


def test_the_raw_reader_counts_failures(server):
    good = json.dumps({"prompt": "abc", "max_tokens": 9, "stream": True}).encode()
    wrong = json.dumps({"prompt": "abc", "n": -1, "stream": True}).encode()
    seen = read_all(server.address[1], [good, wrong, good])

    assert seen["failed"] == 1
    assert seen["events"] >= 2
    assert seen["cpu_s"] > 0


def test_a_token_has_arrived_with_the_last_byte_of_its_event():
    events = ({"choices": [{"token_ids": ids}]} for ids in ([1], [2, 3]))
    one, two = (f"data: {json.dumps(event)}\n\n" for event in events)
    arrivals = [(1.0, "HTTP/1.1 200 OK\r\n\r\n" + one[:9]), (1.5, one[9:] + two[:20])]
    arrivals += [(2.0, two[20:] + "data: [DONE]\n\n")]

    assert token_times(arrivals) == [1.5, 2.0, 2.0]
    steps = [(1.25, {"call.7.0": 1}), (1.75, {"call.7.0": 2, "other.8.0": 1})]
    assert waits_ms({"call": arrivals}, steps) == [250.0, 250.0, 250.0]
    with pytest.raises(ValueError, match="3 tokens came, 2 were made"):
        waits_ms({"call": arrivals}, steps[1:])


def test_times_are_kept_where_they_are_asked_for(server):
    body = {"prompt": "abc", "max_tokens": 5, "stream": True, "return_token_ids": True}
    body |= {"ignore_eos": True}
    (stream,) = read_all(server.address[1], [json.dumps(body).encode()], keeps_times=True)[
        "arrivals"
    ]
    assert len(token_times(stream)) == 5


def test_the_mixed_load_has_every_sort_and_leaves_nothing(server):
    ends = asyncio.run(send_mixed(server.url, range(60), 8))

    assert sum(ends.values()) == 60
    assert ends["stream: good"] == 24
    assert ends["whole: good"] == 12
    assert ends["left"] == 12
    assert {name for name in ends if name.startswith("wrong")} == {
        "wrong: HTTP 400",
        "wrong: HTTP 404",
    }
    server.until(server.is_idle)


def test_idle_connections_are_answered_after(server):
    assert asyncio.run(hold_idle(server.url, 20, lambda: "done")) == ("done", 20)
