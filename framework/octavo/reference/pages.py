"""Which pages there are, which of them are stale, and what is left undocumented.

Knows where each page comes from. Does not know what is on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.plugin.kinds import KINDS
from octavo.reference import components, kinds, messages, settings
from octavo.reference.markdown import NOTE, page

if TYPE_CHECKING:
    from pathlib import Path

_INTRO = "Generated from the code, so that it says what is there."
_CONTENTS = (
    ("kinds.md", "Kinds", "what may be replaced, each with its interface"),
    ("hooks.md", "Hooks", "what a plugin implements to declare components"),
    ("components.md", "Components", "what comes with Octavo, with all options and parameters"),
    ("invariants.md", "Invariants", "what each kind promises, by number"),
    ("config.md", "Config", "every setting, by section, with its flag"),
    ("commands.md", "Commands", "what `octavo` can do"),
    ("vllm-flags.md", "vLLM's flags", "honoured, accepted with a warning, or refused"),
    ("errors.md", "Errors", "every class, with exit code and HTTP status"),
    ("metrics.md", "Metrics", "what `/metrics` shows"),
)


def pages() -> dict[str, str]:
    """Return the text of every page by its path."""
    contents = [f"- [{title}]({name}): {what}" for name, title, what in _CONTENTS]
    texts = {
        "index.md": page("Reference", _INTRO, ["\n".join(contents)]),
        "kinds.md": kinds.kinds_page(),
        "hooks.md": kinds.hooks_page(),
        "components.md": components.components_page(),
        "invariants.md": kinds.invariants_page(),
        "config.md": settings.config_page(),
        "commands.md": settings.commands_page(),
        "vllm-flags.md": settings.vllm_page(),
        "errors.md": messages.errors_page(),
        "metrics.md": messages.metrics_page(),
    }
    return texts | {f"kinds/{one.name}.md": kinds.kind_page(one) for one in KINDS.values()}


def problems() -> list[str]:
    """Return what has no description: hooks, kinds, components, options, commands, errors, ..."""
    parts = (kinds, components, settings, messages)
    return [problem for part in parts for problem in part.problems()]


def write(folder: Path) -> None:
    """Write every page, and remove those that are no longer made."""
    texts = pages()
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for file in folder.rglob("*.md"):
        is_ours = file.read_text(encoding="utf-8").startswith(NOTE)
        if is_ours and str(file.relative_to(folder)) not in texts:
            file.unlink()


def stale(folder: Path) -> list[str]:
    """Return the pages that are missing, that differ, or that are no longer made."""
    texts = pages()
    there = {str(file.relative_to(folder)): file for file in folder.rglob("*.md")}
    return sorted(
        name
        for name in {*texts, *there}
        if name not in texts
        or name not in there
        or there[name].read_text(encoding="utf-8") != texts[name]
    )
