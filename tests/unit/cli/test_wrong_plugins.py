"""Components that are wrong: every command says so, in the same words, and where in their code."""

import json

import pytest

from octavo.cli.columns import columns, fitted
from octavo.cli.main import main

SIMULATE = (
    *("simulate", "--num-prompts", "2", "--rate", "4", "--input-len", "8", "--output-len", "2"),
    *("--executor.fixed-ms", "20", "--ops", "torch", "--attention", "torch"),
)
HEAD = """\
import sys
from octavo import Component, ComponentOptions, OctavoSpecs
from octavo.interfaces.scheduler import SchedulerPolicy
class Policy(SchedulerPolicy):
    def __init__(self, options=None):
        START
class Loose: pass
class Forward(ComponentOptions):
    one: "NotThere" = 1
class Plugin(OctavoSpecs):
    def octavo_schedulers(self):
        return [Component(name="x", summary=SUMMARY, ARGS)]
"""
#: what is wrong as it is declared, and how every command says it
DECLARED = {
    "target='nowhere.at_all:Policy'": "ModuleNotFoundError: No module named 'nowhere'",
    "target=Loose": "is no SchedulerPolicy",
    "target=Policy, options=dict": "dict is not a pydantic model",
    "target=Policy, options=Forward": "name 'NotThere' is not defined",
}
STARTS = {
    "raise RuntimeError('no init')": "RuntimeError: no init",
    "sys.exit(4)": "SystemExit: 4",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
}


@pytest.fixture
def run(sites, capsys):
    del sites

    def call(*words):
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def plugin(folder, args="target=Policy", start="pass", summary="''", before=""):
    file = folder / "wrong.py"
    text = HEAD.replace("ARGS", args).replace("START", start).replace("SUMMARY", summary)
    file.write_text(before + text)
    return str(file)


@pytest.mark.parametrize("args", DECLARED)
def test_every_command_says_the_same_of_a_wrong_component(run, tmp_path, args):
    file = plugin(tmp_path, args)

    listed, out, _ = run("plugins", "list", "scheduler", "--plugin", file)
    data = json.loads(run("plugins", "list", "--json", "--plugin", file)[1])
    why = run("plugins", "why", "scheduler:x", "--plugin", file)[1]
    explained, table, _ = run("explain", "--scheduler", "x", "--plugin", file)
    broken = json.loads(run("explain", "--scheduler", "x", "--plugin", file, "--json")[1])["broken"]

    (line,) = [one for one in out.splitlines() if one.startswith("  broken")]
    assert DECLARED[args] in line
    assert "  active    wrong.py" not in out
    assert ["scheduler", "x", "wrong.py", "(broken)"] in map(str.split, out.splitlines())
    (record,) = [one for one in data["plugins"] if one["name"] == "wrong.py"]
    assert record["state"] == "broken"
    assert listed == 0
    assert why.startswith("scheduler 'x' (wrong.py) is broken: ")
    assert DECLARED[args] in why
    assert explained == 1
    assert f"\n  {broken[0]}\n" in table
    assert DECLARED[args] in broken[0]


@pytest.mark.parametrize("start", STARTS)
def test_a_constructor_that_fails_is_told_with_its_line(run, tmp_path, start):
    file = plugin(tmp_path, start=start)

    code, _, err = run(*SIMULATE, "--scheduler", "x", "--plugin", file)

    assert code == 2
    assert err == (
        "error: cannot build scheduler 'x' (wrong.py)\n"
        f"  target: {file}:Policy\n  {STARTS[start]}\n  at {file}:6\n"
    )


@pytest.mark.parametrize("start", ["raise KeyboardInterrupt\n", "sys.exit(3)\n", "1 / 0\n"])
def test_an_import_that_fails_is_told_with_its_line(run, tmp_path, start):
    file = plugin(tmp_path, before="import sys\n" + start)

    code, _, err = run("explain", "--plugin", file)

    assert code == 2
    assert err.startswith("error: cannot load plugin wrong.py\n")
    assert f"({file}:2)" in err


def test_what_a_plugin_prints_is_no_part_of_the_output(run, tmp_path):
    file = plugin(tmp_path, before="print('HELLO')\n")

    _, out, err = run("plugins", "list", "--json", "--plugin", file)

    assert json.loads(out)
    assert err == "HELLO\n"


def test_a_summary_cannot_move_the_cursor(run, tmp_path):
    file = plugin(tmp_path, summary=r"'\x1b[31mred\nfoo'")

    _, out, _ = run("plugins", "list", "scheduler", "--plugin", file)

    assert r"\x1b[31mred\nfoo" in out
    assert "\x1b" not in out


def test_info_of_a_kind_lists_its_components(run):
    code, out, _ = run("plugins", "info", "attention")

    lines = out.splitlines()
    assert code == 0
    assert lines[0] == (
        "'attention' is a kind of component: attention over blocks of KV (default: auto)"
    )
    assert {line.split()[0] for line in lines[1:-1]} >= {"torch", "cpu"}
    assert lines[-1] == "octavo plugins info attention:NAME shows one of them"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_rows_fit_the_terminal(width):
    text = "a summary of several words that is longer than what one line of a terminal holds " * 2
    rows = [("KIND", "NAME", "PROVIDER", "SUMMARY"), ("kind-of-it", "name", "octavo-x 0.1.0", text)]

    lines = columns(rows, width)
    lines += fitted(f"  broken    {text}", width, indent=12)

    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).count(" ".join(text.split())) == 2
