import pytest

from octavo.errors import (
    ComponentConflictError,
    ConfigError,
    InvalidComponentError,
    PluginBrokenError,
    UnknownComponentError,
    UnknownOptionError,
)
from octavo.interfaces.eviction import Eviction
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.plugin.build import build, load, load_options, validate_options
from octavo.plugin.catalogue import build_catalogue
from octavo.plugin.component import Component
from octavo.plugin.discovery import DiscoverySettings
from octavo.plugin.options import ComponentOptions, NoOptions


def test_two_providers_of_one_name_are_an_error_that_names_both(sites):
    sites.add("duplicate")
    catalogue = build_catalogue()

    with pytest.raises(ComponentConflictError) as caught:
        catalogue.get("scheduler", "fcfs")

    assert str(caught.value) == (
        "scheduler 'fcfs' is declared by 2 providers\n"
        "  octavo 0.1.0: octavo_plugins.schedulers.fcfs:Fcfs\n"
        "  octavo-duplicate 1.0: octavo_duplicate:Fcfs\n"
        '  to keep only one: [plugins] disable = ["octavo-duplicate"]\n'
        "  neither says replaces='fcfs', so neither can take the name over"
    )


def test_a_conflict_disturbs_only_those_who_ask_for_what_it_is_about(sites):
    sites.add("duplicate")
    catalogue = build_catalogue()

    catalogue.check()
    catalogue.require_whole("dialect")
    assert catalogue.get("scheduler", "priority").provider == "octavo 0.1.0"
    with pytest.raises(ComponentConflictError):
        catalogue.require_whole("scheduler")
    with pytest.raises(ComponentConflictError):
        catalogue.with_component("scheduler", Component(name="fcfs", target="a:B"))
    with pytest.raises(ComponentConflictError):
        build_catalogue(DiscoverySettings(strict=True)).check()


def test_wanting_to_replace_is_not_enough(sites):
    sites.add("replaces")

    with pytest.raises(ComponentConflictError) as caught:
        build_catalogue().get("scheduler", "fcfs")

    assert str(caught.value).endswith(
        '  to let octavo-replaces 2.0 take the name over: [plugins] allow-replace = ["fcfs"]'
    )


@pytest.mark.parametrize("allowed", ["fcfs", "scheduler:fcfs"])
def test_being_allowed_to_replace_and_wanting_to_is(sites, allowed):
    sites.add("replaces")
    catalogue = build_catalogue(DiscoverySettings(allow_replace=(allowed,)))

    catalogue.check()

    assert catalogue.get("scheduler", "fcfs").provider == "octavo-replaces 2.0"


def test_being_allowed_to_replace_is_not_enough(sites):
    sites.add("duplicate")

    with pytest.raises(ComponentConflictError):
        build_catalogue(DiscoverySettings(allow_replace=("fcfs",))).get("scheduler", "fcfs")


def test_which_is_found_first_decides_nothing(sites):
    sites.add("duplicate", "replaces")

    with pytest.raises(ComponentConflictError, match="is declared by 3 providers"):
        build_catalogue(DiscoverySettings(allow_replace=("fcfs",))).get("scheduler", "fcfs")


def test_a_class_is_added_under_its_name_and_the_old_catalogue_stays(sites):
    class ShortestJobFirst(SchedulerPolicy):
        class Options(ComponentOptions):
            weight: float = 1.0

        def __init__(self, options):
            self.options = options

    before = build_catalogue()
    after = before.with_class("scheduler", ShortestJobFirst)

    entry = after.get("scheduler", "shortest-job-first")
    assert load(entry) is ShortestJobFirst
    assert build(entry, {"weight": "2"}).options == ShortestJobFirst.Options(weight=2.0)
    with pytest.raises(UnknownComponentError):
        before.get("scheduler", "shortest-job-first")


def test_a_class_that_is_nothing_of_its_kind_is_refused_before_it_is_built(sites):
    class Idle:
        def __init__(self, options):
            pytest.fail("it was built")

    class Half(Eviction):
        def add(self, block_id):
            pass

    catalogue = build_catalogue().with_class("scheduler", Idle).with_class("eviction", Half)

    with pytest.raises(InvalidComponentError) as caught:
        build(catalogue.get("scheduler", "idle"))
    lines = str(caught.value).splitlines()
    assert lines[0] == "scheduler 'idle' (passed in Python) is no SchedulerPolicy"
    assert lines[2] == ("  write: class Idle(SchedulerPolicy), from octavo.interfaces.scheduler")
    with pytest.raises(InvalidComponentError, match="Half does not implement __len__, pop, remove"):
        build(catalogue.get("eviction", "half"))


def test_a_class_may_not_take_a_name_that_is_taken(sites):
    class Fcfs:
        pass

    with pytest.raises(ComponentConflictError) as caught:
        build_catalogue().with_class("scheduler", Fcfs)

    lines = str(caught.value).splitlines()
    assert lines[0] == "scheduler 'fcfs' is declared by 2 providers"
    assert lines[2].startswith("  passed in Python: ")
    assert lines[3] == "  give the class passed in Python another `name`"


def test_the_same_class_again_is_no_conflict(sites):
    catalogue = build_catalogue()
    cls = load(catalogue.get("scheduler", "fcfs"))

    assert catalogue.with_class("scheduler", cls) is catalogue


def test_a_name_of_another_kind_is_recognised(sites):
    with pytest.raises(UnknownComponentError) as caught:
        build_catalogue().get("scheduler", "paged")

    assert "'paged' is a component of kind allocator" in caught.value.facts


def test_candidates_come_by_rank_then_name(sites):
    sites.add("picky")

    names = [one.name for one in build_catalogue().all("ops")]
    assert names == ["quantum", "gpu", "triton", "cpu", "odd", "torch"]


def test_facts_find_their_component(sites):
    catalogue = build_catalogue()

    assert [e.name for e in catalogue.offering("architecture", "Qwen3ForCausalLM")] == ["llama"]
    assert catalogue.offering("architecture", "NoSuchForCausalLM") == ()


def test_options_are_validated_and_handed_to_the_constructor(sites):
    sites.add("good")
    entry = build_catalogue().get("scheduler", "steady")

    steady = build(entry, {"ageing-s": "2.5", "is_fair": True}, clock="none")

    assert (steady.options.ageing_s, steady.options.is_fair) == (2.5, True)
    assert steady.context == {"clock": "none"}
    assert build(entry).options.ageing_s == 1.0


def test_an_unknown_option_is_refused_with_the_nearest(sites):
    sites.add("good")
    entry = build_catalogue().get("scheduler", "steady")

    with pytest.raises(UnknownOptionError) as caught:
        validate_options(entry, {"agein-s": 1}, "octavo.toml: [scheduler] agein-s")

    assert str(caught.value) == (
        "unknown option 'agein-s' of scheduler 'steady' (octavo.toml: [scheduler] agein-s)\n"
        "  did you mean 'ageing-s'?\n"
        "  options: ageing-s, is-fair"
    )


def test_a_wrong_value_is_refused(sites):
    sites.add("good")
    entry = build_catalogue().get("scheduler", "steady")

    with pytest.raises(ConfigError) as caught:
        validate_options(entry, {"ageing-s": 0, "is-fair": "perhaps"}, "--scheduler.ageing-s")

    assert str(caught.value) == (
        "invalid options of scheduler 'steady' (--scheduler.ageing-s)\n"
        "  ageing-s: input should be greater than 0, got 0\n"
        "  is-fair: input should be a valid boolean, unable to interpret input, got 'perhaps'"
    )


def test_a_component_without_options_takes_none(sites):
    entry = build_catalogue().get("scheduler", "fcfs")

    assert load_options(entry) is NoOptions
    with pytest.raises(UnknownOptionError, match="it has no options"):
        validate_options(entry, {"x": 1})


def test_options_that_let_anything_through_are_refused(sites):
    sites.add("bad-options")
    entry = build_catalogue().get("scheduler", "loose")

    with pytest.raises(InvalidComponentError) as caught:
        build(entry)

    assert str(caught.value) == (
        "scheduler 'loose' (octavo-bad-options 1.0) has invalid options\n"
        "  LooseOptions must be frozen and forbid unknown keys\n"
        "  write: class Options(octavo.plugin.options.ComponentOptions)"
    )


@pytest.mark.parametrize(
    ("name", "what"), [("plain", "PlainOptions"), ("function", "make_options")]
)
def test_options_that_are_no_model_are_refused(sites, name, what):
    sites.add("no-model")

    with pytest.raises(InvalidComponentError) as caught:
        build(build_catalogue().get("scheduler", name))

    assert str(caught.value) == (
        f"scheduler '{name}' (octavo-no-model 1.0) has invalid options\n"
        f"  {what} is not a pydantic model\n"
        "  write: class Options(octavo.plugin.options.ComponentOptions)"
    )


def test_a_component_of_another_api_is_refused_in_python_too(sites):
    component = Component(name="later", target="octavo_plugins.schedulers.fcfs:Fcfs", api=2)

    with pytest.raises(InvalidComponentError) as caught:
        build_catalogue().with_component("scheduler", component)

    assert str(caught.value) == (
        "scheduler 'later' (passed in Python)\n  written for scheduler api 2, this is 1"
    )


def test_a_target_that_is_not_there_says_what_to_install(sites):
    sites.add("missing-target")
    catalogue = build_catalogue()
    catalogue.check()

    with pytest.raises(PluginBrokenError) as caught:
        build(catalogue.get("scheduler", "gone"))

    assert str(caught.value) == (
        "cannot import the target of scheduler 'gone' (octavo-missing 1.0)\n"
        "  target: not_there_at_all:Gone\n"
        "  ModuleNotFoundError: No module named 'not_there_at_all'\n"
        "  install what it needs: pip install 'not-there>=1'"
    )


def test_a_target_that_was_renamed_is_named(sites):
    sites.add("missing-target")

    with pytest.raises(PluginBrokenError, match="module 'octavo_missing' has no 'Renamed'"):
        load(build_catalogue().get("scheduler", "renamed"))


def test_two_instances_share_no_state(sites):
    sites.add("good")
    entry = build_catalogue().get("scheduler", "steady")

    first, second = build(entry), build(entry)

    assert first is not second
    assert first.options is not second.options


def test_a_component_passed_in_python_is_added(sites):
    component = Component(name="other", target="octavo_plugins.schedulers.fcfs:Fcfs")

    catalogue = build_catalogue().with_component("scheduler", component)

    assert catalogue.get("scheduler", "other").provider == "passed in Python"


def test_without_the_stock_octavo_is_not_installed(monkeypatch):
    monkeypatch.setattr("octavo.plugin.discovery.entry_points", lambda **_: [])

    with pytest.raises(PluginBrokenError) as caught:
        build_catalogue().check()

    assert str(caught.value) == (
        "octavo's own components are not found\n"
        "  octavo is not installed in this environment: pip install octavo\n"
        "  in a checkout: pip install -e ."
    )
