import subprocess
import sys
from dataclasses import replace

import pytest

from octavo.errors import PluginBrokenError, UnknownComponentError, UnknownOptionError
from octavo.plugin.catalogue import build_catalogue
from octavo.plugin.discovery import _HOOKS, DiscoverySettings, discover
from octavo.plugin.kinds import KINDS
from octavo.plugin.manager import HookManager
from sites import SITE


def states(settings=None):
    records = discover(settings or DiscoverySettings(), HookManager())
    return {record.distribution or record.name: record for record in records}


def test_stock_comes_first_then_by_name_then_files(sites, tmp_path):
    sites.add("raises", "good", "importerror")
    file = tmp_path / "mine.py"
    file.write_text("from octavo.hookspecs import OctavoSpecs\nplugin = OctavoSpecs()\n")

    records = discover(DiscoverySettings(files=(str(file),)), HookManager())

    names = list(dict.fromkeys(record.provider for record in records))
    assert names == [
        "octavo 0.1.0",
        "octavo-foo 0.3",
        "octavo-good 0.2",
        "octavo-raises 1.0",
        "mine.py",
    ]
    stock = [record.name for record in records if record.distribution == "octavo"]
    assert stock == sorted(stock)


@pytest.mark.parametrize(
    ("folder", "distribution", "reason"),
    [
        (
            "importerror",
            "octavo-foo",
            (
                "ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
                f"({SITE}/importerror/octavo_foo.py:3)"
            ),
        ),
        (
            "raises",
            "octavo-raises",
            f"RuntimeError: no device ({SITE}/raises/octavo_raises.py:9)",
        ),
        (
            "misspelt",
            "octavo-misspelt",
            "unknown hook 'octavo_schedulrs'; did you mean 'octavo_schedulers'?",
        ),
        (
            "other-api",
            "octavo-other-api",
            "written for scheduler api 2, this is 1; 'later' needs a newer Octavo",
        ),
        (
            "older-api",
            "octavo-older-api",
            (
                "written for scheduler api 0, this is 1; "
                "'earlier' needs a newer version of the plugin"
            ),
        ),
        (
            "not-an-instance",
            "octavo-class",
            "the plugin is the class Plugin, not an instance; write: plugin = Plugin()",
        ),
    ],
)
def test_a_plugin_that_fails_is_broken_and_the_rest_goes_on(sites, folder, distribution, reason):
    sites.add(folder, "good")

    found = states()

    assert (found[distribution].state, found[distribution].reason) == ("broken", reason)
    assert found[distribution].components == ()
    assert found["octavo-good"].state == "active"
    build_catalogue().check()  # not fatal by itself


def test_an_older_api_that_is_still_taken_is_told_of(sites, monkeypatch):
    sites.add("older-api", "good")
    kind = replace(KINDS["scheduler"], oldest_api=0)
    monkeypatch.setitem(_HOOKS, kind.hook, kind)
    monkeypatch.setattr("octavo.plugin.discovery.KINDS", {**KINDS, "scheduler": kind})

    found = states()

    assert found["octavo-older-api"].state == "active"
    assert found["octavo-older-api"].deprecations == (
        "scheduler 'earlier' is written for api 0 of its kind, which is deprecated: this is 1",
    )
    assert found["octavo-good"].deprecations == ()


def test_a_distribution_without_metadata_is_named_by_its_folder(sites):
    sites.add("no-metadata", "good")

    found = states()

    assert found["octavo-no-metadata"].provider == "octavo-no-metadata 1.0"
    assert found["octavo-no-metadata"].state == "active"


def test_strict_plugins_make_a_broken_one_fatal(sites):
    sites.add("importerror")

    with pytest.raises(PluginBrokenError) as caught:
        build_catalogue(DiscoverySettings(strict=True)).check()

    assert str(caught.value) == (
        "cannot load plugin octavo-foo 0.3\n"
        "  ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
        f"({SITE}/importerror/octavo_foo.py:3)\n"
        "  from: octavo_foo:plugin"
    )


def test_a_disabled_plugin_is_not_imported(sites):
    sites.add("good")

    record = states(DiscoverySettings(disable=("octavo-good",)))["octavo-good"]

    assert (record.state, record.reason) == ("disabled", "[plugins] disable")
    assert "octavo_good" not in sys.modules


def test_one_entry_point_can_be_disabled(sites):
    records = discover(DiscoverySettings(disable=("octavo:dialects",)), HookManager())

    assert {record.name for record in records if record.state == "disabled"} == {"dialects"}


def test_only_lets_through_what_it_names_and_the_stock(sites):
    sites.add("good", "raises")

    found = states(DiscoverySettings(only=("octavo-good",)))

    assert found["octavo-good"].state == "active"
    assert found["octavo"].state == "active"
    assert found["octavo-raises"].reason == "not in [plugins] only"
    assert "octavo_raises" not in sys.modules


def test_no_plugins_leaves_the_stock(sites):
    sites.add("good")

    found = states(DiscoverySettings(stock_only=True))

    assert (found["octavo-good"].state, found["octavo-good"].reason) == (
        "disabled",
        "OCTAVO_NO_PLUGINS",
    )
    assert found["octavo"].state == "active"


def test_a_block_list_that_names_nothing_is_refused(sites):
    sites.add("good")

    with pytest.raises(UnknownOptionError) as caught:
        discover(DiscoverySettings(disable=("octavo-goood",)), HookManager())

    assert str(caught.value) == (
        "unknown plugin 'octavo-goood' ([plugins] disable)\n"
        "  did you mean 'octavo-good'?\n"
        "  installed: octavo, octavo-good\n"
        "  a plugin is named by its distribution, or distribution:entry-point"
    )


def test_a_file_with_one_subclass_needs_no_plugin_attribute(sites, tmp_path):
    file = tmp_path / "my_policy.py"
    file.write_text(
        "from octavo.hookspecs import OctavoSpecs\n"
        "from octavo.plugin.component import Component\n"
        "class Slow:\n"
        "    def __init__(self, options): self.options = options\n"
        "class Mine(OctavoSpecs):\n"
        "    def octavo_schedulers(self):\n"
        "        return [Component(name='slow', target=Slow)]\n"
    )

    catalogue = build_catalogue(DiscoverySettings(files=(str(file),)))

    entry = catalogue.get("scheduler", "slow")
    assert entry.provider == "my_policy.py"
    assert entry.target == f"{file}:Slow"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "x = 1\n",
            (
                "the file has no subclass of OctavoSpecs and no `plugin`; "
                "write: class Plugin(OctavoSpecs), plugin = Plugin()"
            ),
        ),
        ("plugin = 3\n", "the plugin is a int, not an instance of OctavoSpecs"),
        ("import nothing_here\n", "ModuleNotFoundError: No module named 'nothing_here' (FILE:1)"),
        ("raise SystemExit(3)\n", "SystemExit: 3 (FILE:1)"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 (FILE:2)"),
        ("\nraise KeyboardInterrupt\n", "KeyboardInterrupt (FILE:2)"),
    ],
)
def test_a_file_that_fails_is_fatal_since_it_was_asked_for(sites, tmp_path, source, reason):
    file = tmp_path / "bad.py"
    file.write_text(source)
    catalogue = build_catalogue(DiscoverySettings(files=(str(file),)))

    with pytest.raises(PluginBrokenError) as caught:
        catalogue.check()

    reason = reason.replace("FILE", str(file))
    assert str(caught.value) == f"cannot load plugin bad.py\n  {reason}\n  from: {file}"


def test_a_missing_file_is_fatal(sites):
    with pytest.raises(PluginBrokenError, match=r"there is no file at /nowhere/p\.py"):
        build_catalogue(DiscoverySettings(files=("/nowhere/p.py",))).check()


def test_whoever_misses_a_name_is_told_what_was_not_loaded(sites):
    sites.add("good", "importerror", "raises")
    catalogue = build_catalogue(DiscoverySettings(disable=("octavo-raises",)))

    with pytest.raises(UnknownComponentError) as caught:
        catalogue.get("scheduler", "prioritty", "octavo.toml: [scheduler] use")

    stock = ", ".join(sorted(set(catalogue.entries["scheduler"]) - {"steady"}))
    assert str(caught.value) == (
        "unknown scheduler 'prioritty' (octavo.toml: [scheduler] use)\n"
        "  did you mean 'priority'?\n"
        f"  available: {stock} (octavo 0.1.0), steady (octavo-good 0.2)\n"
        "  not loaded: octavo-foo 0.3: "
        "ModuleNotFoundError: No module named 'flashinfer_that_is_not_there' "
        f"({SITE}/importerror/octavo_foo.py:3)\n"
        "  disabled: octavo-raises 1.0 ([plugins] disable)"
    )


def test_every_active_plugin_fits_the_specs_as_pluggy_sees_them(sites):
    sites.add("good")
    catalogue = build_catalogue()

    declared = [one.name for result in catalogue.manager.hook.octavo_schedulers() for one in result]
    assert sorted(declared) == sorted(catalogue.entries["scheduler"])
    assert "steady" in declared
    assert len(catalogue.manager.get_plugins()) == len(catalogue.plugins)


def test_a_broken_plugin_is_not_registered(sites):
    sites.add("importerror", "misspelt", "raises")

    names = {name for name, plugin in build_catalogue().manager.list_name_plugin() if plugin}

    assert {name.partition(":")[0] for name in names} == {"octavo"}


def test_one_plugin_object_under_two_names_counts_once(sites, tmp_path):
    file = tmp_path / "again.py"
    file.write_text("from octavo_plugins.schedulers import plugin\n")

    with pytest.raises(PluginBrokenError, match="registered already, as octavo:schedulers"):
        build_catalogue(DiscoverySettings(files=(str(file),))).check()


def test_two_catalogues_share_nothing(sites):
    sites.add("good")
    first = build_catalogue()
    second = build_catalogue(DiscoverySettings(disable=("octavo-good",)))

    assert first.get("scheduler", "steady")
    with pytest.raises(UnknownComponentError):
        second.get("scheduler", "steady")
    with pytest.raises(TypeError):
        first.entries["scheduler"]["x"] = first.get("scheduler", "steady")


def test_discovery_imports_neither_torch_nor_a_target():
    code = (
        "import sys\n"
        "from octavo.plugin.catalogue import build_catalogue\n"
        "from octavo.plugin.discovery import DiscoverySettings\n"
        "catalogue = build_catalogue(DiscoverySettings(stock_only=True))\n"
        "targets = {e.target.split(':')[0] for k in catalogue.entries for e in catalogue.all(k)}\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tokenizers', 'litestar', 'jinja2'}\n"
        "print(sorted((targets | heavy) & set(sys.modules)))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
