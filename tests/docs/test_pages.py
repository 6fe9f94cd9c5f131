"""What tutorials and how-tos show is run, block by block, as a reader would."""

import pytest

from doc_pages import DOCS, Block, PageRun, blocks, commands_of, is_as_shown, pages

#: what is tried each time; the other pages are many, and change seldom
OFTEN = ("first-plugin", "sampler-stage", "eviction")


@pytest.mark.timeout(600)  # some load the model several times
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=f"{page.parent.name}/{page.stem}",
            marks=[] if page.stem in OFTEN else [pytest.mark.full],
        )
        for page in pages()
    ],
)
def test_the_code_of_a_page_does_what_the_page_says(page, tmp_path):
    with PageRun(tmp_path) as run:
        for block in blocks(page):
            run.run(block)


def test_what_the_tutorial_writes_takes_forty_lines_at_most():
    page = DOCS / "tutorial" / "first-plugin.md"
    files = [one for one in blocks(page) if one.action == "file"]

    for one in files:
        lines = [line for line in one.text.splitlines() if line.strip()]
        written = [line for line in lines if not line.startswith(("from ", "import "))]
        assert len(written) <= 40, one.where
    assert {one.value for one in files} == {
        "shortest.py", "wrong.py", "at_most.py", "one_timers.py",
    }  # fmt: skip


def test_what_is_only_shown_has_a_reason():
    shown = [one for page in pages() for one in blocks(page) if one.action == "not run"]

    assert [one.where for one in shown if len(one.value.split()) < 3] == []


def block(text: str, language: str = "console", action: str = "", value: str = "") -> Block:
    return Block(DOCS / "page.md", 1, language, text, action, value)


def test_blocks_are_found_with_what_is_to_be_done(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n<!-- file: a.py -->\n```python\nx = 1\n```\n\n```console\n$ ls\n```\n"
        "<!-- not run: it takes hours -->\n\n```console\n$ make world\n```\n"
    )

    found = [(one.line, one.language, one.text, one.action, one.value) for one in blocks(page)]

    assert found == [
        (4, "python", "x = 1\n", "file", "a.py"),
        (8, "console", "$ ls\n", "", ""),
        (13, "console", "$ make world\n", "not run", "it takes hours"),
    ]


def test_commands_are_told_from_what_they_print():
    shown = "$ echo one \\\n  two\none two\n$ true\n$ echo 'a\nb'\na\nb\n"

    assert list(commands_of(block(shown))) == [
        ("echo one \\\n  two", "one two\n"),
        ("true", ""),
        ("echo 'a\nb'", "a\nb\n"),
    ]


def test_a_page_that_is_wrong_fails(tmp_path):
    with PageRun(tmp_path) as run:
        run.run(block("hello\n", action="file", value="folder/a.txt"))
        run.run(block("$ cat folder/a.txt\nhel...\n$ false || true\n"))
        run.run(block("x = 1\n", language="python"))
        run.run(block("assert x == 1\n", language="python"))
        run.run(block("$ false\n[exit code 1]\n"))
        with pytest.raises(AssertionError, match=r"page.md:1: \$ cat folder/a.txt"):
            run.run(block("$ cat folder/a.txt\ngoodbye\n"))
        with pytest.raises(AssertionError, match="exit code 1"):
            run.run(block("$ false\n"))
        with pytest.raises(AssertionError, match="say what is to be done"):
            run.run(block("a = 1\n", language="toml"))
        with pytest.raises(NameError):
            run.run(block("y\n", language="python"))


def test_dots_stand_for_anything():
    assert is_as_shown("3 passed in ... s\n", "3  passed in 1.5 s\n")
    assert is_as_shown("NAME ... KIND\n...\n", "NAME KIND\nx\n")
    assert not is_as_shown("3 passed in ... s\n", "2 passed in 1.5 s\n")
    assert not is_as_shown("... in ... s\n", "3 passed in 1.5 s\n[exit code 1]\n")
