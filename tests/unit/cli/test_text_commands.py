"""`octavo complete` and `octavo chat` against a scripted engine, and against a server."""

from __future__ import annotations

import io
import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo.cli.main import main
from octavo.engine.messages import EngineInfo
from octavo.errors import ConfigError
from octavo.frontend.chat import ChatRenderer
from octavo.frontend.preprocess import Preprocessor
from octavo.frontend.request_params import DeclaredParams
from octavo.local_model import LocalModel
from octavo.plugin.options import RequestParams
from scripted import EOS, VOCAB_SIZE, BytesTokenizer, ScriptedEngine

TOKENIZER = BytesTokenizer()
INFO = EngineInfo(VOCAB_SIZE, max_model_len=256, capacity_tokens=4096)


@pytest.fixture
def engine(monkeypatch):
    """The engine that the commands find instead of a model; repeats the prompt."""
    engine = ScriptedEngine(lambda r: [*r.prompt_token_ids, EOS], INFO)

    def open_scripted(config):
        chat = ChatRenderer(TOKENIZER, config.model)
        return LocalModel(config, engine, TOKENIZER, Preprocessor(TOKENIZER, INFO), chat)

    monkeypatch.setattr("octavo.local_model.open_model", open_scripted)
    return engine


class _Handler(BaseHTTPRequestHandler):
    """The few answers of an OpenAI server that the commands read."""

    def do_GET(self):
        self._send(200, {"data": [{"id": "first-model"}, {"id": "other"}]})

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        self.server.seen.append((self.path, self.headers.get("Authorization"), body))
        if body["model"] == "missing":
            self._send(404, {"error": {"message": "no such model 'missing'", "code": 404}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in self.server.events:
            data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
            self.wfile.write(f": keep-alive\n\ndata: {data}\n\n".encode())

    def _send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.seen = []
    server.events = [
        {"choices": [{"text": "čau"}]},
        {"choices": [{"text": " světe", "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        "[DONE]",
    ]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_complete_prints_the_text_as_it_comes(engine, capsys):
    assert main(["complete", "any", "--prompt", "ahoj 😀"]) == 0
    assert capsys.readouterr().out == "ahoj 😀\n"
    assert engine.added[0].max_tokens == 128
    assert engine.is_closed


@pytest.mark.parametrize(("words", "wanted"), [((), None), (("--max-step-ms", "100"), 100.0)])
def test_steps_are_not_bounded_in_time_unless_that_is_asked_for(monkeypatch, words, wanted):
    opened = []

    def stop(config):
        opened.append(config.engine.max_step_ms)
        raise ConfigError("no model today")

    monkeypatch.setattr("octavo.local_model.open_model", stop)

    assert main(["complete", "smollm2", "--prompt", "x", *words]) == 2
    assert opened == [wanted]


def test_complete_passes_what_was_given_and_reports_json(engine, capsys):
    words = ["--max-tokens", "2", "--temperature", "0", "--top-k", "5", "--stop", "x", "--json"]
    assert main(["complete", "any", "--prompt", "abc", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    params = engine.added[0].params
    assert (params.temperature, params.top_k, params.stop) == (0.0, 5, ["x"])
    assert report["first_text_s"] <= report["total_s"]
    del report["first_text_s"], report["total_s"]
    assert report == {
        "model": "any", "prompt": "abc", "text": "ab", "finish_reason": "length",
        "prompt_tokens": 3, "completion_tokens": 2,
    }  # fmt: skip


def test_complete_reads_a_piped_prompt_and_can_echo_it(engine, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("ab"))
    assert main(["complete", "any", "--echo"]) == 0
    assert capsys.readouterr().out == "abab\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--prompt", ""], 1, "the prompt is empty"),
        (["--prompt", "x", "--temperature", "nan"], 1, "temperature must be a finite number"),
        (["--prompt", "x", "--temperature", "9"], 1, "temperature must be between 0 and 2"),
        (["--prompt", "x" * 300], 1, "maximum context length is 256 tokens"),
        (["--prompt", "x", "--max-token", "9"], 2, "did you mean '--max-tokens'?"),
        (["--prompt", "x", "--max-tokens", "many"], 2, "invalid int value: 'many'"),
        (["--prompt", "x", "--api-key", "k"], 2, "--api-key is for a server"),
    ],
)
def test_complete_refuses_with_one_clear_error(engine, capsys, words, code, message):
    assert main(["complete", "any", *words]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert engine.is_closed or not engine.added


def test_ctrl_c_ends_complete_with_the_shells_code(engine, capsys):
    engine.on_step = lambda n: signal.raise_signal(signal.SIGINT) if n == 3 else None
    assert main(["complete", "any", "--prompt", "abcdefgh"]) == 130
    assert capsys.readouterr().out == "ab\n"
    assert engine.aborted == ["cli-1-0"]
    assert engine.is_closed


def test_complete_against_a_server(server, capsys):
    words = ["--url", server.url, "--prompt", "hi", "--max-tokens", "5", "--seed", "7"]
    assert main(["complete", *words, "--api-key", "secret"]) == 0
    assert capsys.readouterr().out == "čau světe\n"
    path, key, body = server.seen[0]
    assert (path, key) == ("/v1/completions", "Bearer secret")
    assert body == {
        "model": "first-model", "prompt": "hi", "max_tokens": 5, "seed": 7, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert (
        main(["complete", "other", "--url", f"{server.url}/v1/", "--prompt", "hi", "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert (report["model"], report["text"]) == ("other", "čau světe")
    assert (report["prompt_tokens"], report["completion_tokens"]) == (3, 2)
    assert report["finish_reason"] == "stop"


class Cooling(RequestParams):
    cooldown: int = 0
    style: str = ""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--param", "cooldown=5"], {"cooldown": 5}),
        (["--param", "style=plain", "--param", "cooldown=1"], {"style": "plain", "cooldown": 1}),
        (["--param", 'style="5"'], {"style": "5"}),
    ],
)
def test_parameters_that_components_declare_are_given_by_name(monkeypatch, words, wanted):
    seen = []
    engine = ScriptedEngine(lambda r: [*(seen.append(r) or ()), EOS], INFO)
    declared = DeclaredParams(dict.fromkeys(Cooling.model_fields, Cooling))

    def open_scripted(config):
        chat = ChatRenderer(TOKENIZER, config.model)
        preprocessor = Preprocessor(TOKENIZER, INFO, declared=declared)
        return LocalModel(config, engine, TOKENIZER, preprocessor, chat)

    monkeypatch.setattr("octavo.local_model.open_model", open_scripted)

    assert main(["complete", "m", "--prompt", "x", *words]) == 0
    assert [one.params.extra_args for one in seen] == [wanted]


def test_parameters_are_fields_of_the_body_for_a_server(server, capsys):
    words = ["--url", server.url, "--param", "cooldown=5", "--param", "style=plain"]

    assert main(["complete", "--prompt", "x", *words]) == 0

    body = server.seen[-1][2]
    assert (body["cooldown"], body["style"]) == (5, "plain")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--param", "cooldown"], 2, "--param cooldown: no parameter\n  write --param NAME=VALUE"),
        (["--param", "a=1", "--param", "a=2"], 2, "--param a is given twice"),
        (["--param", "nobody=1"], 1, "no component in use declares a parameter 'nobody'"),
    ],
)
def test_parameters_that_cannot_be_read_are_refused(engine, capsys, words, code, message):
    assert main(["complete", "m", "--prompt", "x", *words]) == code
    assert message in capsys.readouterr().err


def test_servers_errors_are_shown(server, capsys):
    assert main(["complete", "missing", "--url", server.url, "--prompt", "hi"]) == 1
    assert capsys.readouterr().err == (
        "error: the server answered 404\n  no such model 'missing'\n"
    )
    server.events = [{"choices": [{"text": "a"}]}, {"error": {"message": "engine died"}}]
    assert main(["complete", "m", "--url", server.url, "--prompt", "hi"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "a\n"
    assert captured.err == "error: the server ended the answer\n  engine died\n"


def test_server_that_is_not_there(server, capsys):
    server.server_close()
    assert main(["complete", "--url", server.url, "--prompt", "hi"]) == 1
    assert "cannot reach a server at 127.0.0.1:" in capsys.readouterr().err
    assert main(["complete", "--url", "ftp://x", "--prompt", "hi"]) == 2
    assert "invalid --url 'ftp://x'" in capsys.readouterr().err


def _type(monkeypatch, *lines):
    """Feed lines to `input`; a line that is an exception is raised."""
    rest = iter(lines)

    def fake_input(_):
        line = next(rest, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", fake_input)


def test_chat_keeps_the_conversation_until_reset(engine, capsys, monkeypatch):
    engine.script = lambda _: [*b"yes", EOS]
    _type(monkeypatch, "hi", "", "/reset", "again", "/help", "/nonsense", "/quit", "never")
    assert main(["chat", "any", "--system-prompt", "Be brief"]) == 0
    prompts = [TOKENIZER.decode(r.prompt_token_ids) for r in engine.added]
    assert prompts == [
        "[system] Be brief\n[user] hi\n[assistant] ",
        "[system] Be brief\n[user] again\n[assistant] ",
    ]
    # an answer may go on to the end of the context
    assert [r.max_tokens + len(r.prompt_token_ids) for r in engine.added] == [256, 256]
    out = capsys.readouterr().out
    assert out.count("yes") == 2
    assert "/reset    forget the conversation" in out
    assert "unknown command /nonsense" in out


def test_chat_sends_earlier_turns_along(engine, capsys, monkeypatch):
    engine.script = lambda _: [*b"yes", EOS]
    _type(monkeypatch, "one", "two")
    assert main(["chat", "any"]) == 0
    assert TOKENIZER.decode(engine.added[1].prompt_token_ids) == (
        "[user] one\n[assistant] yes\n[user] two\n[assistant] "
    )


def test_ctrl_c_ends_the_answer_and_not_the_chat(engine, capsys, monkeypatch):
    engine.script = lambda _: [*b"endless"] * 10
    engine.on_step = lambda n: signal.raise_signal(signal.SIGINT) if n == 4 else None
    _type(monkeypatch, "one", KeyboardInterrupt(), "two")
    assert main(["chat", "any", "--max-tokens", "5"]) == 0
    assert TOKENIZER.decode(engine.added[1].prompt_token_ids) == (
        "[user] one\n[assistant] end\n[user] two\n[assistant] "
    )
    assert "/quit or Ctrl-D leaves" in capsys.readouterr().out
    assert engine.aborted == ["cli-1-0"]


def test_turn_that_is_refused_is_taken_back(engine, capsys, monkeypatch):
    engine.script = lambda _: [*b"ok", EOS]
    _type(monkeypatch, "x" * 300, "hi")
    assert main(["chat", "any"]) == 0
    assert "maximum context length is 256 tokens" in capsys.readouterr().err
    assert TOKENIZER.decode(engine.added[0].prompt_token_ids) == "[user] hi\n[assistant] "


def test_chat_against_a_server(server, capsys, monkeypatch):
    server.events = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": "ano"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    ]
    _type(monkeypatch, "one", "two")
    assert main(["chat", "--url", server.url]) == 0
    assert capsys.readouterr().out == "ano\nano\n"
    path, key, body = server.seen[1]
    assert (path, key) == ("/v1/chat/completions", None)
    assert body["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "ano"},
        {"role": "user", "content": "two"},
    ]
    assert "max_tokens" not in body


def test_collect_env_has_versions_and_plugins_and_no_secrets(capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["collect-env", "--json"]) == 0
    out = capsys.readouterr().out
    facts = json.loads(out)
    assert facts["versions"]["torch"].startswith("2.")
    assert facts["environment"]["OMP_NUM_THREADS"] == "3"
    assert facts["machine"]["threads"]
    assert any("octavo:" in name for name in facts["plugins"])
    assert "hf_secret" not in out
    assert main(["collect-env"]) == 0
    assert "versions:\n  octavo " in capsys.readouterr().out
