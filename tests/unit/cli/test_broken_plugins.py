"""A plugin that is wrong is shown by name, with distribution, version and reason; no other is."""

import json

import pytest

from octavo.cli.main import main
from sites import SITE

SIMULATE = (
    *("simulate", "--num-prompts", "2", "--input-len", "8", "--output-len", "2"),
    *("--executor.fixed-ms", "20", "--ops", "torch", "--attention", "torch"),
)

#: folder; its line of the list, behind the distribution; a scheduler of it; what asking says
WHOLE = {
    "importerror": (
        (
            "octavo-foo 0.3 (foo): "
            "ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
            f"({SITE}/importerror/octavo_foo.py:3)"
        ),
        "attentive",
    ),
    "raises": (
        (f"octavo-raises 1.0 (raises): RuntimeError: no device ({SITE}/raises/octavo_raises.py:9)"),
        "raising",
    ),
    "misspelt": (
        (
            "octavo-misspelt 1.0 (misspelt): "
            "unknown hook 'octavo_schedulrs'; did you mean 'octavo_schedulers'?"
        ),
        "never",
    ),
    "other-api": (
        (
            "octavo-other-api 1.0 (other-api): "
            "written for scheduler api 2, this is 1; 'later' needs a newer Octavo"
        ),
        "later",
    ),
    "not-an-instance": (
        (
            "octavo-class 1.0 (class): "
            "the plugin is the class Plugin, not an instance; write: plugin = Plugin()"
        ),
        "classy",
    ),
}
OF_COMPONENT = {
    ("missing-target", "gone"): (
        (
            "octavo-missing 1.0: scheduler 'gone': target not_there_at_all:Gone: "
            "ModuleNotFoundError: No module named 'not_there_at_all'"
        ),
        (
            "cannot import the target of scheduler 'gone' (octavo-missing 1.0)\n"
            "  target: not_there_at_all:Gone\n"
            "  ModuleNotFoundError: No module named 'not_there_at_all'\n"
            "  install what it needs: pip install 'not-there>=1'"
        ),
    ),
    ("missing-target", "renamed"): (
        (
            "octavo-missing 1.0: scheduler 'renamed': target octavo_missing:Renamed: "
            "module 'octavo_missing' has no 'Renamed'"
        ),
        (
            "cannot import the target of scheduler 'renamed' (octavo-missing 1.0)\n"
            "  target: octavo_missing:Renamed\n"
            "  ImportError: module 'octavo_missing' has no 'Renamed'"
        ),
    ),
    ("bad-options", "loose"): (
        (
            "octavo-bad-options 1.0: scheduler 'loose': "
            "LooseOptions must be frozen and forbid unknown keys; "
            "write: class Options(octavo.plugin.options.ComponentOptions)"
        ),
        (
            "scheduler 'loose' (octavo-bad-options 1.0) has invalid options\n"
            "  LooseOptions must be frozen and forbid unknown keys\n"
            "  write: class Options(octavo.plugin.options.ComponentOptions)"
        ),
    ),
    ("no-model", "plain"): (
        (
            "octavo-no-model 1.0: scheduler 'plain': PlainOptions is not a pydantic model; "
            "write: class Options(octavo.plugin.options.ComponentOptions)"
        ),
        (
            "scheduler 'plain' (octavo-no-model 1.0) has invalid options\n"
            "  PlainOptions is not a pydantic model\n"
            "  write: class Options(octavo.plugin.options.ComponentOptions)"
        ),
    ),
}


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("folder", WHOLE)
def test_a_plugin_that_is_wrong_is_listed_with_its_reason(sites, run, folder):
    sites.add(folder, "good")
    line, _ = WHOLE[folder]

    code, out, _ = run("plugins", "list")

    assert code == 0
    assert [one for one in out.splitlines() if "broken" in one.split()] == [f"  broken    {line}"]
    assert "  active    octavo-good 0.2" in out.splitlines()


@pytest.mark.parametrize("folder", WHOLE)
def test_whoever_asks_for_what_a_wrong_plugin_has_is_told(sites, run, folder):
    sites.add(folder)
    line, name = WHOLE[folder]
    provider, _, reason = line.partition(": ")

    code, _, err = run(*SIMULATE, "--scheduler", name)

    assert code == 2
    assert err.startswith(f"error: unknown scheduler '{name}' (--scheduler)\n")
    assert f"  not loaded: {provider.rpartition(' (')[0]}: {reason}\n" in err


@pytest.mark.parametrize(("folder", "name"), OF_COMPONENT)
def test_a_component_that_is_wrong_is_listed_with_its_reason(sites, run, folder, name):
    sites.add(folder, "good")
    line, _ = OF_COMPONENT[folder, name]

    code, out, _ = run("plugins", "list")

    assert code == 0
    assert f"  broken    {line}" in out.splitlines()
    assert not [one for one in out.splitlines() if "broken" in one.split() and "good" in one]


@pytest.mark.parametrize(("folder", "name"), OF_COMPONENT)
def test_whoever_asks_for_a_component_that_is_wrong_is_told(sites, run, folder, name):
    sites.add(folder)

    code, _, err = run(*SIMULATE, "--scheduler", name)

    assert (code, err) == (2, f"error: {OF_COMPONENT[folder, name][1]}\n")


def test_parameters_that_are_no_model_are_listed(sites, run):
    sites.add("no-model")

    _, out, _ = run("plugins", "list", "--json")

    (asking,) = [one for one in json.loads(out)["components"] if one["name"] == "asking"]
    assert asking["problems"] == [
        (
            "PlainOptions is not a RequestParams; "
            "write: class Params(octavo.plugin.options.RequestParams)"
        )
    ]


@pytest.mark.parametrize("action", ["info", "why"])
@pytest.mark.parametrize("name", ["fcfs", "scheduler:fcfs"])
def test_a_name_that_two_have_is_told_by_every_action(sites, run, action, name):
    sites.add("duplicate")

    code, _, err = run("plugins", action, name)

    assert code == 2
    assert err.startswith("error: scheduler 'fcfs' is declared by 2 providers\n")


def test_whoever_asks_for_a_name_that_two_have_is_told_and_nobody_else(sites, run):
    sites.add("duplicate", *WHOLE, *dict.fromkeys(folder for folder, _ in OF_COMPONENT))

    asked, _, err = run(*SIMULATE, "--scheduler", "fcfs")
    other, out, _ = run(*SIMULATE, "--scheduler", "priority", "--json")

    assert asked == 2
    assert err.startswith("error: scheduler 'fcfs' is declared by 2 providers\n")
    assert "  octavo-duplicate 1.0: octavo_duplicate:Fcfs\n" in err
    assert other == 0
    assert json.loads(out)


def test_stock_components_have_no_problem(sites, run):
    _, out, _ = run("plugins", "list", "--json")

    data = json.loads(out)
    assert {one["name"] for one in data["components"] if one["problems"]} == set()
    assert {one["state"] for one in data["plugins"]} == {"active"}
