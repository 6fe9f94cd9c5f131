"""The generated pages say what is there: none is stale, nothing is left out or undescribed."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from octavo.cli.main import COMMANDS, module_of
from octavo.config.fields import SETTINGS
from octavo.config.vllm import FOREIGN
from octavo.errors import OctavoError
from octavo.plugin.build import load_options, load_params
from octavo.plugin.catalogue import build_catalogue
from octavo.plugin.component import Component
from octavo.plugin.discovery import DiscoverySettings
from octavo.plugin.kinds import KINDS
from octavo.reference import markdown, members, messages
from octavo.reference.fields import field_rows
from octavo.reference.pages import pages, problems, stale, write
from source_tree import ROOT, classes, modules

INTERFACES = {kind.name: kind.interface for kind in KINDS.values()}
REFERENCE = ROOT / "docs" / "reference"
HOW = f"write them again: {markdown.COMMAND}"


def text(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def test_no_page_is_stale():
    assert stale(REFERENCE) == [], HOW


def test_nothing_is_left_undescribed():
    assert problems() == [], "describe it where it is declared"


def test_every_hook_has_an_entry():
    source = (ROOT / "framework/octavo/hookspecs.py").read_text()
    hooks = re.findall(r"^    def (octavo_\w+)", source, re.MULTILINE)

    assert len(hooks) == len(KINDS)
    assert re.findall(r"^## `(octavo_\w+)`", text("hooks.md"), re.MULTILINE) == hooks, HOW


def test_every_kind_and_interface_has_an_entry():
    listed = re.findall(r"^\| \[([\w-]+)\]\(kinds/\1\.md\)", text("kinds.md"), re.MULTILINE)

    assert listed == list(KINDS), HOW
    assert {path.stem for path in (REFERENCE / "kinds").glob("*.md")} == set(KINDS)
    for kind, interface in ((kind.name, kind.interface) for kind in KINDS.values()):
        assert f"## `{interface.partition(':')[2]}`" in text(f"kinds/{kind}.md"), HOW


def stock() -> list:
    catalogue = build_catalogue(DiscoverySettings(stock_only=True))
    return [one for kind in KINDS for one in catalogue.all(kind)]


@pytest.mark.parametrize("entry", stock(), ids=lambda one: f"{one.kind}:{one.name}")
def test_every_component_option_and_parameter_has_an_entry(entry):
    _, found, after = text("components.md").partition(f"\n### {entry.kind} `{entry.name}`\n")
    assert found, HOW
    section = after.partition("\n### ")[0]
    params = load_params(entry)
    keys = [field.alias or name for name, field in load_options(entry).model_fields.items()]

    for key in [*keys, *(params.model_fields if params else ())]:
        assert f"\n| `{key}` | " in section, HOW


def test_every_setting_has_an_entry():
    for setting in SETTINGS.values():
        assert f"\n| `{setting.key}` | `--{setting.flag}` | " in text("config.md"), HOW
    for kind in KINDS:
        assert f"\n| `[{kind}]` | " in text("config.md"), HOW


def test_every_flag_of_vllm_has_an_entry():
    for flag in FOREIGN:
        assert f"\n| `--{flag}` | " in text("vllm-flags.md"), HOW


def test_every_command_has_an_entry():
    names = {path.stem for path in (ROOT / "framework/octavo/cli").glob("*.py")}

    assert {module_of(name).rpartition(".")[2] for name in COMMANDS} <= names
    for name in COMMANDS:
        assert f"\n## `octavo {name}`\n" in text("commands.md"), HOW
        actions = getattr(importlib.import_module(module_of(name)), "ACTIONS", ())
        for action in actions:
            assert f"\n| `{action}` | " in text("commands.md"), HOW


def errors_in_source() -> set[str]:
    """Return every class that derives from OctavoError, by its text, wherever it is."""
    bases = {
        node.name: {ast.unparse(base) for base in node.bases}
        for module in modules()
        for node in classes(module)
    }
    found = {"OctavoError"}
    while True:
        more = {name for name, theirs in bases.items() if theirs & found} - found
        if not more:
            return found
        found |= more


def test_every_error_has_an_entry():
    listed = re.findall(r"^## `(\w+)`", text("errors.md"), re.MULTILINE)

    assert set(listed) == errors_in_source(), HOW


def test_every_invariant_has_an_entry():
    for kind, interface in ((kind.name, kind.interface) for kind in KINDS.values()):
        module = importlib.import_module(interface.partition(":")[0])
        source = Path(module.__file__).read_text()
        numbers = re.findall(r"^    ([A-Z]\d+) {2}\S", source, re.MULTILINE)
        section = text("invariants.md").partition(f"\n## {kind}\n")[2].partition("\n## ")[0]

        assert re.findall(r"^\| ([A-Z]\d+) \|", section, re.MULTILINE) == [
            *dict.fromkeys(numbers)
        ], HOW


def test_a_stale_page_is_seen_and_written_again(tmp_path):
    write(tmp_path)
    assert stale(tmp_path) == []
    (tmp_path / "errors.md").write_text("old")
    (tmp_path / "kinds.md").unlink()
    (tmp_path / "gone.md").write_text(markdown.page("Gone", "A kind that was.", []))
    (tmp_path / "mine.md").write_text("written by hand")

    assert stale(tmp_path) == ["errors.md", "gone.md", "kinds.md", "mine.md"]
    write(tmp_path)
    assert stale(tmp_path) == ["mine.md"]


def test_what_has_no_description_is_seen(monkeypatch):
    class UndescribedError(OctavoError):
        __doc__ = None

    assert list(messages.problems()) == []
    monkeypatch.setattr(UndescribedError, "__module__", "octavo.errors")
    assert list(messages.problems()) == ["error UndescribedError: no docstring"]
    monkeypatch.undo()  # the class may outlive this test


def test_no_page_tells_of_this_machine():
    everything = "\n".join(pages().values())

    for trace in (str(Path.home()), str(ROOT), "site-packages", " at 0x"):
        assert trace not in everything


def test_fields_are_shown_with_their_limits():
    entry = next(one for one in stock() if (one.kind, one.name) == ("scheduler", "qos"))
    rows = {row.key: row for row in field_rows(load_options(entry))}

    assert rows["reserved"][1:3] == ("number, at least 0, at most 0.4", "`0.1`")


def test_comments_of_fields_are_found():
    rows = {row.signature: row.text for row in members.members(Component)}

    assert rows["name: str"].startswith("Lower-case words joined by hyphens")
    assert rows["rank: int = 0"] == "`auto` asks candidates of higher rank first."


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("a < b", "a &lt; b"),
        ("`a < b`", "`a < b`"),
        ("2 * 3 * 4", r"2 \* 3 \* 4"),
        ("*policy only*", "*policy only*"),
        ("*.gguf", r"\*.gguf"),
    ],
)
def test_text_is_no_markup_by_accident(source, shown):
    assert markdown.inline(source) == shown


def test_promises_are_lists():
    doc = "One.\n\n    A1  first\n        goes on.\n    A2  second.\n\nRest."

    assert markdown.prose(doc) == ["One.", "- **A1** first goes on.\n- **A2** second.", "Rest."]
