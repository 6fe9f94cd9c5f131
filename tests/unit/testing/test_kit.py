"""The kit itself: titles of docstrings, subjects, suites in pytest, and what needs no model."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from datetime import datetime
from time import monotonic as now

import pytest

from octavo.errors import InvalidComponentError, PluginBrokenError, UnknownComponentError
from octavo.interfaces.allocator import Allocator
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.plugin.component import Component
from octavo.plugin.files import import_target
from octavo.plugin.kinds import KINDS
from octavo.testing import contract
from octavo.testing.census import census
from octavo.testing.checking import invariants_of, try_one
from octavo.testing.clocks import watched_calls
from octavo.testing.engine_traces import Event, play
from octavo.testing.engines import EngineSetup
from octavo.testing.every import every_invariant
from octavo.testing.invariants import PromiseBroken, titles_of
from octavo.testing.kits import KITS, promises_of
from octavo.testing.searching import Story
from octavo.testing.subjects import entry_in_file, kind_of, subject_of

pytest_plugins = ["pytester"]


def test_titles_are_read_from_docstrings():
    assert titles_of(Allocator)["A4"] == (
        "only full blocks are shared, and a hit implies equal tokens and equal `extra`, even "
        "under a forced hash collision"
    )
    assert [*titles_of(contract)] == ["C1", "C2", "C3", "C4", "C5", "C6", "C7"]


@pytest.mark.parametrize("kind", KITS)
def test_every_promise_of_a_kind_is_tried(kind):
    promises = promises_of(kind)
    tried = [one.number for one in promises]

    assert set(tried) == set(promises.titles)
    names = [one.test_name for one in (*every_invariant(promises), *promises)]
    assert len(set(names)) == len(names)


def test_every_kind_has_an_interface_and_a_kit():
    assert set(KITS) == set(KINDS)
    for kind in KINDS.values():
        assert isinstance(import_target(kind.interface), type)


def test_promises_of_what_is_no_kind():
    with pytest.raises(UnknownComponentError, match="unknown kind 'sheduler'\n  did you mean"):
        promises_of("sheduler")


# ---------------------------------------------------------------------- subjects


class Lifo(SchedulerPolicy):
    offers = ("last-first",)

    def order(self, request, view):
        return -request.sequence_number


def test_a_subject_is_a_name_a_class_a_component_or_a_file(tmp_path):
    file = tmp_path / "lifo.py"
    file.write_text(
        "from octavo.hookspecs import OctavoSpecs\n"
        "from octavo.interfaces.scheduler import SchedulerPolicy\n"
        "from octavo.plugin.component import Component\n"
        "class Lifo(SchedulerPolicy):\n    pass\n"
        "class Plugin(OctavoSpecs):\n    def octavo_schedulers(self):\n"
        "        return [Component(name='last', target=Lifo, summary='s')]\n"
    )
    component = Component(name="mine", target=Lifo)

    assert subject_of("scheduler", "fcfs").record.distribution == "octavo"
    assert subject_of("scheduler", Lifo).offers("last-first")
    assert subject_of("scheduler", component).name == "mine"
    assert subject_of("scheduler", f"{file}:Lifo").name == "last"
    assert entry_in_file(f"{file}:Lifo").component.summary == "s"


def test_what_is_no_such_component_is_told(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module_at_all\n")

    with pytest.raises(InvalidComponentError, match=r"scheduler 'str' .* is no SchedulerPolicy"):
        subject_of("scheduler", str)
    with pytest.raises(InvalidComponentError, match="implements no interface of octavo"):
        kind_of(int)
    with pytest.raises(PluginBrokenError, match="No module named 'no_such_module_at_all'"):
        subject_of("scheduler", f"{broken}:Lifo")
    with pytest.raises(UnknownComponentError, match="unknown scheduler 'fcsf'"):
        subject_of("scheduler", "fcsf")


# ---------------------------------------------------------------------- stories, clocks, counts


def test_a_story_tells_the_steps_and_the_number_in_focus_alone():
    story = Story("S2")
    story.tell("add r0")
    story.tell_again("step")
    story.tell_again("step")
    story.play(lambda: story.see("S1", False, "too much"))
    with pytest.raises(PromiseBroken) as caught:
        story.play(lambda: story.see("S2", False, "lost"))

    assert story.broken == {"S1": "too much\nafter\n  1. add r0\n  2. step x2"}
    assert str(caught.value) == "lost\nafter\n  1. add r0\n  2. step x2"


def test_clocks_are_seen_however_they_were_imported():
    for call in (time.perf_counter, now, random.random, lambda: datetime.now().year):  # noqa: DTZ005
        with watched_calls(__name__) as seen:
            call()
            len("not one")
        assert len(seen) == 1
        assert "test_kit.py:" in seen[0]


def test_a_census_counts_what_is_held():
    class Holder:
        def __init__(self):
            self.items = {}

    holder = Holder()
    before = census(holder)
    holder.items["a"] = [1, 2]
    assert census(holder) == before + 4


def test_a_trace_of_the_stock_engine_ends_well():
    story = Story("S6")
    run = play(EngineSetup(num_blocks=14), [Event("burst", 1, 20, 9, 3)] * 2, story)

    assert {one.outcome.finish_reason for one in run.requests.values()} == {"length"}
    assert run.engine.stats().preemptions > 0


# ---------------------------------------------------------------------- suites in pytest


SIX_LINES = """
from octavo.testing import SchedulerSuite
from octavo.interfaces.scheduler import SchedulerPolicy

class Mine(SchedulerPolicy):
    def order(self, request, view):
        return {body}

class TestMine(SchedulerSuite):
    component = Mine
"""


def test_six_lines_are_a_test_class(pytester):
    pytester.makepyfile(SIX_LINES.format(body="-request.priority"))
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "--octavo-effort=0.1")
    promises = promises_of("scheduler")

    result.assert_outcomes(passed=len([*every_invariant(promises), *promises]))


def test_a_broken_promise_is_shown_by_its_counter_example_alone(pytester):
    pytester.makepyfile(SIX_LINES.format(body="view.now_s * request.priority"))
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-k", "s10")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()

    assert "order(r0) was" in text
    assert "1. an engine in the mode" in text
    assert "searching.py" not in text


def test_the_plugin_of_pytest_imports_nothing_of_octavo():
    code = (
        "import sys, octavo.testing.pytest_plugin\n"
        "print([m for m in sys.modules if m.startswith(('octavo.', 'hypothesis', 'torch'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "['octavo.testing', 'octavo.testing.pytest_plugin']\n"


def test_a_number_is_a_promise_of_one_kind():
    kinds = [{one.number for one in promises_of(kind.name)} for kind in KINDS.values()]
    assert sum(map(len, kinds)) == len(set.union(*kinds))


def test_what_checks_share_ends_after_the_last_of_them(new_processes):
    for name in ("llguidance", "xgrammar"):
        subject = subject_of("grammar", name)
        g1 = next(one for one in invariants_of(subject) if one.number == "G1")
        assert try_one(g1, subject).state == "passed"
        assert new_processes(), "what compiles on trial"

        subject.close()
        assert not new_processes()


def test_schedulers_and_allocators_are_tried_without_torch():
    code = (
        "import sys\n"
        "from octavo.testing.checking import invariants_of, outcomes\n"
        "from octavo.testing.subjects import subject_of\n"
        "for kind, name in (('scheduler', 'fcfs'), ('allocator', 'paged'), ('eviction', 'lru')):\n"
        "    subject = subject_of(kind, name)\n"
        "    subject.effort = 0.02\n"
        "    done = outcomes(subject, invariants_of(subject))\n"
        "    assert all(one.state != 'failed' for one in done)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
