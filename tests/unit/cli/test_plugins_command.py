import json
from importlib import metadata

import pytest

from octavo.cli.main import main
from sites import SITE


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main(["plugins", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_list_shows_components_and_the_state_of_plugins(sites, run):
    sites.add("good", "importerror")

    code, out, _ = run("list", "--disable-plugin", "octavo:dialects")

    lines = out.splitlines()
    stock = metadata.distribution("octavo").entry_points.select(group="octavo")
    assert code == 0
    assert lines[0].split() == ["KIND", "NAME", "PROVIDER", "SUMMARY"]
    assert ["scheduler", "steady", "octavo-good", "0.2", "for", "tests"] in map(str.split, lines)
    assert lines[-5:] == [
        "plugins",
        f"  active    octavo 0.1.0 ({len(stock) - 1} entry points)",
        "  active    octavo-good 0.2",
        "  disabled  octavo 0.1.0 (dialects): [plugins] disable",
        (
            "  broken    octavo-foo 0.3 (foo): "
            "ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
            f"({SITE}/importerror/octavo_foo.py:3)"
        ),
    ]


def test_list_of_one_kind(sites, run):
    _, out, _ = run("list", "scheduler")

    rows = [line.split()[:2] for line in out.partition("\n\n")[0].splitlines()[1:]]
    assert {kind for kind, _ in rows} == {"scheduler"}
    assert {"fcfs", "priority"} <= {name for _, name in rows}
    assert "allocator  " not in out


def test_list_of_an_unknown_kind(sites, run):
    code, out, err = run("list", "schedulers")

    assert (code, out) == (2, "")
    assert err.splitlines()[:2] == [
        "error: unknown kind 'schedulers'",
        "  did you mean 'scheduler'?",
    ]


def test_list_shows_conflicts_and_fails(sites, run):
    sites.add("duplicate")

    code, out, _ = run("list")

    assert code == 1
    assert "\nscheduler 'fcfs' is declared by 2 providers\n" in out


def test_list_as_json(sites, run):
    sites.add("good", "raises")

    code, out, _ = run("list", "--json")

    data = json.loads(out)
    assert code == 0
    (steady,) = [one for one in data["components"] if one["name"] == "steady"]
    assert steady == {
        "kind": "scheduler",
        "name": "steady",
        "provider": "octavo-good 0.2",
        "target": "octavo_good_impl:Steady",
        "options": "octavo_good_impl:SteadyOptions",
        "summary": "for tests",
        "offers": [],
        "params": None,
        "requires": [],
        "replaces": None,
        "api": 1,
        "rank": 0,
        "problems": [],
    }
    (broken,) = [one for one in data["plugins"] if one["state"] == "broken"]
    assert broken == {
        "name": "raises",
        "distribution": "octavo-raises",
        "version": "1.0",
        "value": "octavo_raises:plugin",
        "origin": "entry-point",
        "state": "broken",
        "reason": f"RuntimeError: no device ({SITE}/raises/octavo_raises.py:9)",
        "deprecations": [],
    }
    assert data["conflicts"] == []


def test_info_shows_the_options(sites, run):
    sites.add("good")

    code, out, _ = run("info", "steady")

    assert code == 0
    assert out == (
        "scheduler 'steady': for tests\n"
        "  provider  octavo-good 0.2\n"
        "  target    octavo_good_impl:Steady\n"
        "  options\n"
        "    ageing-s  default 1.0    seconds until a waiting request moves up\n"
        "    is-fair   default False  whether to be fair\n"
    )


def test_info_as_json_has_the_schema_of_the_options(sites, run):
    sites.add("good")

    _, out, _ = run("info", "scheduler:steady", "--json")

    (data,) = json.loads(out)
    assert set(data["options-schema"]["properties"]) == {"ageing-s", "is-fair"}
    assert data["options-schema"]["additionalProperties"] is False


def test_info_shows_what_single_requests_may_set(sites, run):
    code, out, _ = run("info", "xtc")
    _, json_out, _ = run("info", "xtc", "--json")

    assert code == 0
    lines = out.splitlines()
    assert lines[3:5] == ["  no options", "  parameters of a request"]
    assert [line.split()[0] for line in lines[5:]] == ["xtc_probability", "xtc_threshold"]
    (data,) = json.loads(json_out)
    assert data["params"] == "octavo_plugins.samplers.parameters:XtcParams"
    assert set(data["params-schema"]["properties"]) == {"xtc_probability", "xtc_threshold"}


def test_info_of_a_name_that_two_kinds_have(sites, run):
    _, out, _ = run("info", "torch")

    heads = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert [head.split(":")[0] for head in heads] == ["ops 'torch'", "attention 'torch'"]


def test_info_of_what_is_not_there(sites, run):
    sites.add("importerror")

    code, _, err = run("info", "prioritty")

    assert code == 2
    assert err == (
        "error: no component is called 'prioritty'\n"
        "  did you mean 'priority'?\n"
        "  not loaded: octavo-foo 0.3: "
        "ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
        f"({SITE}/importerror/octavo_foo.py:3)\n"
        "  octavo plugins list shows all\n"
    )


@pytest.mark.parametrize("action", ["info", "why"])
def test_an_action_that_needs_a_name_says_so(sites, run, action):
    code, _, err = run(action)

    assert code == 2
    assert err.startswith(f"error: octavo plugins {action}: of what?\n")


def test_why_of_a_plugin_gives_its_error(sites, run):
    sites.add("importerror")

    assert run("why", "octavo-foo") == (
        0,
        (
            "octavo-foo 0.3 (foo): broken: "
            "ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
            f"({SITE}/importerror/octavo_foo.py:3)\n"
        ),
        "",
    )


def test_why_of_a_component(sites, run):
    assert run("why", "scheduler:fcfs")[1] == (
        "scheduler 'fcfs' is there: octavo 0.1.0 provides it\n"
    )


def test_why_of_a_kind_is_what_auto_thinks(sites, run, monkeypatch):
    sites.add("picky")
    reasons = "octavo_plugins.platforms.triton_reasons.why_not"
    monkeypatch.setattr(reasons, lambda context: ["it is no"])
    kernels = "octavo_plugins.native.cpu_reasons.why_not_ops"
    monkeypatch.setattr(kernels, lambda context: ["there is no compiler"])

    code, out, _ = run("why", "ops")

    assert code == 0
    assert out.splitlines()[1:] == [
        "quantum: qubits>=2 is not installed",
        "gpu: no GPU is here, threads is None".replace(", t", "; t"),
        "triton: it is no",
        "cpu: there is no compiler",
        "odd: its why_not failed: ValueError: cannot tell",
        "torch: nothing speaks against it",
    ]
    assert out.startswith(
        "ops 'torch' is in use: auto: first of quantum, gpu, triton, cpu, odd, torch; not "
    )


def test_why_of_a_kind_of_which_none_can_run(sites, run):
    sites.add("picky")

    code, out, _ = run("why", "ops", "--disable-plugin", "octavo:ops")

    assert code == 0
    assert out.splitlines()[0] == "no ops can run here (default)"
    assert out.splitlines()[-1] == "odd: its why_not failed: ValueError: cannot tell"


def test_why_of_a_set_names_all(sites, run):
    lines = run("why", "dialect", "--dialect", "ops")[1].splitlines()

    assert lines[0] == "dialect 'ops' is in use: --dialect"


def test_why_as_json(sites, run):
    assert json.loads(run("why", "paged", "--json")[1]) == {
        "why": ["allocator 'paged' is there: octavo 0.1.0 provides it"]
    }


def test_an_unknown_action_is_an_error(sites, run):
    code, _, err = run("lst")

    assert code == 2
    assert "invalid choice: 'lst'" in err


def test_a_plugin_file_takes_part(sites, run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from octavo.hookspecs import OctavoSpecs\n"
        "from octavo.plugin.component import Component\n"
        "from octavo.interfaces.eviction import Eviction\n"
        "class Mine(Eviction):\n"
        "    add = remove = pop = __len__ = lambda self, *_: 0\n"
        "class Plugin(OctavoSpecs):\n"
        "    def octavo_evictions(self):\n"
        "        return [Component(name='mine', target=Mine, summary='from a file')]\n"
    )

    code, out, _ = run("list", "eviction", "--plugin", str(file))

    assert code == 0
    assert ["eviction", "mine", "mine.py", "from", "a", "file"] in map(str.split, out.splitlines())
    assert "  active    mine.py" in out
