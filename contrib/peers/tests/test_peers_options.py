"""Words of the command line, and what they ask for."""

from __future__ import annotations

import sys

import pytest

from octavo.errors import ConfigError
from octavo_peers import options
from octavo_peers.command import _parser, main
from octavo_peers.engines import ENGINES
from octavo_peers.work import Case


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "demo.gguf"
    path.touch()
    return path


@pytest.fixture(autouse=True)
def only_octavo_and_transformers_are_installed(monkeypatch):
    here = {"octavo", "transformers"}
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda name: name in here or None)


def asked(model, *words):
    return options.comparison(_parser().parse_args(["compare", str(model), *words]))


def test_without_flags_octavo_runs_the_usual_cases(model):
    one = asked(model)

    assert [(c.engine, c.python, c.model) for c in one.contenders] == [
        ("octavo", sys.executable, str(model))
    ]
    assert one.cases == tuple(Case(128, num_seqs, 64) for num_seqs in (1, 4, 16, 64))
    assert one.num_threads >= 1


def test_engines_with_a_python_run_after_octavo(model):
    words = ["--python", f"openvino={sys.executable}", "--python", f"llamacpp={sys.executable}"]

    assert [c.engine for c in asked(model, *words).contenders] == ["octavo", "llamacpp", "openvino"]


def test_a_venv_is_not_looked_through(model, tmp_path):
    link = tmp_path / "python"
    link.symlink_to(sys.executable)

    assert asked(model, "--python", f"llamacpp={link}").contenders[1].python == str(link)


def test_engines_that_read_no_gguf_take_a_folder(model, tmp_path):
    words = ["--model-of", f"transformers={tmp_path}"]

    assert [(c.engine, c.model) for c in asked(model, *words).contenders][1:] == [
        ("transformers", str(tmp_path))
    ]
    assert [c.engine for c in asked(tmp_path, "--engines", "transformers").contenders] == [
        "octavo",
        "transformers",
    ]


def test_cases_are_all_lengths_with_all_numbers_of_sequences(model):
    one = asked(
        model,
        *("--prompt-tokens", "128,2048", "--concurrency", "1,16,1", "--output-tokens", "32"),
        *("--prefix-tokens", "512"),
    )

    assert one.cases == tuple(
        Case(tokens, num_seqs, 32, 512) for tokens in (128, 2048) for num_seqs in (1, 16)
    )


def test_cases_that_take_too_many_tokens_are_left_out(model):
    one = asked(model, "--prompt-tokens", "100,1000", "--max-total-tokens", "1064")

    assert one.cases == (Case(100, 1, 64), Case(100, 4, 64), Case(1000, 1, 64))
    assert len(one.left_out) == 5


def test_options_of_an_engine_are_json_or_text(model):
    words = ["--octavo-args", "ops=cpu", "block_size=32", 'scheduler={"use": "fcfs"}', "seed=null"]

    assert asked(model, *words).contenders[0].options == {
        "ops": "cpu",
        "block_size": 32,
        "scheduler": {"use": "fcfs"},
        "seed": None,
    }


def test_every_engine_has_its_options():
    for name in ENGINES:
        args = _parser().parse_args(["compare", "x", f"--{name}-args", "a=1"])
        assert getattr(args, f"{name}_args") == ["a=1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--python", "lamacpp=/usr/bin/python3"],
            "unknown engine 'lamacpp' (--python)\n  did you mean 'llamacpp'?\n  engines: octavo,",
        ),
        (["--python", "llamacpp"], "--python 'llamacpp' is not written as NAME=VALUE"),
        (
            ["--python", "llamacpp=/nowhere/python"],
            "'/nowhere/python' is no program (--python llamacpp=...)",
        ),
        (
            ["--engines", "llamacpp"],
            "llamacpp is not installed here (--engines)\n  name the Python that has it:",
        ),
        (
            ["--concurrency", "1,x"],
            "--concurrency '1,x' is no list of numbers\n  for example: --concurrency 1,4,16",
        ),
        (["--prompt-tokens", "0"], "--prompt-tokens '0' is no list of numbers"),
        (["--output-tokens", "1"], "--output-tokens must be at least 2"),
        (["--prefix-tokens", "-1"], "--prefix-tokens must not be negative"),
        (["--rounds", "0"], "--rounds must be more than 0"),
        (["--threads", "0"], "--threads must be at least 1"),
        (
            ["--max-total-tokens", "100"],
            "no case has at most 100 tokens in all (--max-total-tokens)\n  the smallest has 192",
        ),
        (["--octavo-args", "ops"], "--octavo-args 'ops' is not written as KEY=VALUE"),
    ],
)
def test_wrong_words_are_named(words, message, model):
    with pytest.raises(ConfigError) as caught:
        asked(model, *words)
    assert str(caught.value).startswith(message)


def test_an_engine_that_needs_a_folder_says_how_to_get_one(model):
    with pytest.raises(ConfigError) as caught:
        asked(model, "--engines", "transformers")
    assert str(caught.value) == (
        "transformers does not read GGUF files\n"
        f"  write its weights to a folder: `float-copy {model} FOLDER`\n"
        "  and name it: --model-of transformers=FOLDER"
    )


def test_an_unknown_model_is_octavos_error(capsys):
    assert main(["compare", "smollm3000"]) == 1
    assert capsys.readouterr().err.startswith("error: unknown model 'smollm3000'\n")


@pytest.mark.parametrize("content", ["no json", "[]", "{}", '{"engines": 3}'])
def test_a_report_of_something_else_is_refused(tmp_path, content, capsys):
    path = tmp_path / "results.json"
    path.write_text(content)

    assert main(["report", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path} is not what `compare --json` prints")


def test_a_report_of_nothing_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith(f"error: cannot read {tmp_path / 'none.json'}\n")
