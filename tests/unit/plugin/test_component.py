from itertools import product

import pytest

from octavo.errors import InvalidComponentError
from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component, kebab_name
from octavo.plugin.discovery import declare
from octavo.plugin.kinds import KINDS


def test_a_component_needs_only_a_name_and_a_target():
    component = Component(name="sjf", target="my_package.sjf:ShortestJobFirst")

    assert component.target_path == "my_package.sjf:ShortestJobFirst"
    assert component.options_path is None
    assert component.api == 1


def test_a_class_is_a_target_too():
    class Local:
        pass

    component = Component(name="local", target=Local, options=None)

    assert component.target_path.endswith(":test_a_class_is_a_target_too.<locals>.Local")


@pytest.mark.parametrize("name", ["", "Fcfs", "1st", "two words", "under_score", "ends\n", None])
def test_a_malformed_name_is_refused(name):
    with pytest.raises(InvalidComponentError) as caught:
        Component(name=name, target="a:B")

    assert str(caught.value) == (
        f"invalid component {name!r}\n"
        "  a name is lower-case letters, digits and hyphens, and starts with a letter"
    )


@pytest.mark.parametrize(
    ("field", "target"),
    [
        *product(("target", "options", "why_not"), ("a.b.C", "a:", ":B", "a/b:C", "a b:C", 3)),
        ("target", None),
    ],
)
def test_a_malformed_target_is_refused(field, target):
    fields = {"name": "x", "target": "a:B", field: target}

    with pytest.raises(InvalidComponentError) as caught:
        Component(**fields)

    assert str(caught.value) == (
        f"invalid component 'x'\n  {field} must be 'package.module:Name', got {target!r}"
    )


def test_a_component_replaces_its_own_name_or_none():
    with pytest.raises(InvalidComponentError, match="replaces must be its own name, 'x', got 'y'"):
        Component(name="x", target="a:B", replaces="y")


def test_one_string_where_several_are_meant_is_refused():
    with pytest.raises(InvalidComponentError, match="collections of strings, got one string"):
        Component(name="x", target="a:B", offers="cuda")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ShortestJobFirst", "shortest-job-first"),
        ("HTTPSource", "http-source"),
        ("Fcfs", "fcfs"),
        ("Top2Policy", "top2-policy"),
        ("_Hidden", "hidden"),
    ],
)
def test_a_class_without_a_name_is_called_by_its_own_in_kebab_case(name, expected):
    assert kebab_name(type(name, (), {})) == expected


def test_a_class_may_say_its_name():
    assert kebab_name(type("Whatever", (), {"name": "sjf"})) == "sjf"


def test_every_kind_has_a_hook_and_every_hook_a_kind():
    hooks = {name for name in vars(OctavoSpecs) if name.startswith("octavo_")}

    assert {kind.hook for kind in KINDS.values()} == hooks
    assert all(list(getattr(OctavoSpecs(), hook)()) == [] for hook in hooks)


def test_a_hook_may_be_a_generator():
    class Plugin(OctavoSpecs):
        def octavo_evictions(self):
            yield Component(name="a", target="m:A")
            yield Component(name="b", target="m:B")

    assert [(kind, one.name) for kind, one in declare(Plugin())] == [
        ("eviction", "a"),
        ("eviction", "b"),
    ]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (["fcfs"], "octavo_schedulers returned a str, not a Component"),
        (
            [Component(name="a", target="m:A"), Component(name="a", target="m:B")],
            "scheduler 'a' is declared twice",
        ),
        (
            [Component(name="a", target="m:A", api=7)],
            "written for scheduler api 7, this is 1\n  'a' needs a newer Octavo",
        ),
    ],
)
def test_what_is_declared_is_checked(returned, message):
    class Plugin(OctavoSpecs):
        def octavo_schedulers(self):
            return returned

    with pytest.raises(InvalidComponentError) as caught:
        declare(Plugin())

    assert str(caught.value) == message
