"""The documentation as a whole: it builds, every link leads somewhere, nothing is left out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import DOCS
from octavo.plugin.kinds import KINDS
from source_tree import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # a link that leads nowhere is told here
    return folder


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site):
    for page in DOCS.rglob("*.md"):
        name = "index.html" if page.stem == "README" else f"{page.stem}.html"
        html = (site / page.relative_to(DOCS).parent / name).read_text(encoding="utf-8")
        assert re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css)', html) == [], page


def test_code_is_coloured_and_diagrams_are_there(site):
    tutorial = (site / "tutorial" / "first-plugin.html").read_text(encoding="utf-8")

    assert 'class="codehilite"' in tutorial
    assert "<span style=" in tutorial
    assert "<!-- file:" not in re.sub(r"<!--.*?-->", "", tutorial)
    assert (site / "explanation" / "request-lifecycle.svg").exists()


def test_every_kind_has_a_how_to():
    for kind in KINDS:
        text = (DOCS / "how-to" / f"{kind}.md").read_text(encoding="utf-8")
        assert f"../reference/kinds/{kind}.md" in text, kind
        assert f"../reference/invariants.md#{kind}" in text, kind


def test_readme_leads_to_pages_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)

    assert any(link.startswith("docs/tutorial/") for link in links)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_decisions_are_all_listed():
    text = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[\d{4}\]\(([^)]+)\)", text, re.MULTILINE)

    assert sorted(listed) == sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
