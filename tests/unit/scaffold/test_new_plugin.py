"""`octavo plugins new`: names, folders, and what the files of each kind hold."""

import ast
import json
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from octavo import testing
from octavo.cli.main import main
from octavo.errors import ConfigError, UnknownComponentError
from octavo.plugin.kinds import KINDS
from octavo.scaffold.recipes import RECIPES
from octavo.scaffold.writing import files_of, new_names


@pytest.fixture
def new(capsys, tmp_path):
    def call(*words):
        code = main(["plugins", "new", *words, "--into", str(tmp_path)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def code_lines(source: str) -> int:
    """Count what is neither blank, comment, docstring nor import."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in skipped
        for number, line in enumerate(source.splitlines(), 1)
    )


def test_there_is_a_recipe_for_every_kind():
    assert list(RECIPES) == [kind for kind in KINDS if kind in RECIPES]
    assert set(RECIPES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_a_whole_distribution(kind):
    files = files_of(new_names(kind, "two-words"))

    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["name"] == "octavo-two-words"
    assert project["project"]["entry-points"]["octavo"] == {"two-words": "octavo_two_words:plugin"}
    source = ast.parse(files["src/octavo_two_words/two_words.py"])
    classes = [node.name for node in source.body if isinstance(node, ast.ClassDef)]
    assert "TwoWords" in classes
    assert kind == "architecture" or "TwoWordsOptions" in classes
    assert KINDS[kind].hook in files["src/octavo_two_words/__init__.py"]
    assert not [path for path, text in files.items() if "$" in text]
    assert files["README.md"].startswith("# octavo-two-words\n")
    ast.parse(files["tests/test_two_words.py"])


@pytest.mark.parametrize("kind", KINDS)
def test_its_class_says_which_models_it_takes(kind):
    """So that a class that is passed as it is, or checked in its file, gets its own options."""
    source = ast.parse(files_of(new_names(kind, "two-words"))["src/octavo_two_words/two_words.py"])
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef)}
    said = {ast.unparse(one) for one in classes["TwoWords"].body if isinstance(one, ast.Assign)}

    for model in ("Options", "Params"):
        assert f"TwoWords{model}" not in classes or f"{model} = TwoWords{model}" in said


@pytest.mark.parametrize("kind", RECIPES)
def test_its_kit_test_is_six_lines_at_most(kind):
    recipe = RECIPES[kind]
    text = files_of(new_names(kind, "two-words"))["tests/test_two_words_kit.py"]

    assert recipe.suite in testing.__all__
    assert len(text.splitlines()) <= 6 or recipe.sample  # which has to be made, or named
    assert text.count("\nclass TestTwoWords(") == 1


@pytest.mark.parametrize("kind", ["scheduler", "eviction", "sampler-stage"])
def test_a_policy_takes_forty_lines_at_most(kind):
    files = files_of(new_names(kind, "two-words"))

    assert code_lines(files["src/octavo_two_words/two_words.py"]) <= 40


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "schedulers",
            "mine",
            (
                "unknown kind 'schedulers'\n  did you mean 'scheduler'?\n"
                f"  kinds: {', '.join(KINDS)}"
            ),
        ),
        (
            "scheduler",
            "MyOrder",
            (
                "'MyOrder' is no name for a component\n"
                "  a name is lower-case words of letters and digits, joined by single hyphens\n"
                "  for example: my-order"
            ),
        ),
        (
            "scheduler",
            "class",
            "'class' is no name for a new plugin\n  'class' is a word of Python\n  try 'my-class'",
        ),
        (
            "scheduler",
            "none",
            "'none' is no name for a new plugin\n  'None' is a word of Python\n  try 'my-none'",
        ),
        (
            "eviction",
            "eviction",
            (
                "'eviction' is no name for a new plugin\n"
                "  its class would be Eviction, as another that it uses\n  try 'my-eviction'"
            ),
        ),
        (
            "eviction",
            "component",
            (
                "'component' is no name for a new plugin\n"
                "  its class would be ComponentOptions, as another that it uses\n"
                "  try 'my-component'"
            ),
        ),
        (
            "weights",
            "exception",
            (
                "'exception' is no name for a new plugin\n"
                "  its class would be Exception, as another that it uses\n  try 'my-exception'"
            ),
        ),
        (
            "scheduler",
            "x" * 41,
            (f"'{'x' * 41}' is too long for a new plugin\n  it has 41 characters, 40 are taken"),
        ),
    ],
)
def test_a_name_that_will_not_do_is_refused(kind, name, message):
    with pytest.raises((ConfigError, UnknownComponentError)) as caught:
        new_names(kind, name)

    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["a-", "a--b", "-a", "1a", "a_b", "a/b", "../a", "", "ä", "a b"])
def test_a_name_is_words_joined_by_hyphens(name):
    with pytest.raises(ConfigError, match="is no name for a component"):
        new_names("scheduler", name)


def test_it_writes_and_says_what_comes_next(sites, new, tmp_path):
    code, out, err = new("scheduler", "my-order")

    folder = tmp_path / "octavo-my-order"
    assert (code, err) == (0, "")
    assert out == (
        f"wrote {folder}, a distribution with the scheduler 'my-order'\n"
        "  README.md\n  pyproject.toml\n  src/octavo_my_order/__init__.py\n"
        "  src/octavo_my_order/my_order.py\n  src/octavo_my_order/py.typed\n"
        "  tests/test_my_order.py\n  tests/test_my_order_kit.py\n"
        "next\n"
        f"  pip install -e '{folder}[test]'\n"
        "  octavo plugins list scheduler\n"
        "  octavo plugins check scheduler:my-order\n"
        "  octavo simulate --executor.fixed-ms 20 --scheduler my-order\n"
        f"  pytest {folder}\n"
    )
    assert [one.name for one in tmp_path.iterdir()] == ["octavo-my-order"]


@pytest.mark.parametrize("kind", [kind for kind, one in RECIPES.items() if one.sample])
def test_what_comes_next_has_the_sample_that_the_kit_needs(sites, new, kind):
    _, out, _ = new(kind, "mine")

    sample = RECIPES[kind].sample.replace("$name", "mine")
    assert f"\n  octavo plugins check {kind}:mine --sample {sample}\n" in out


def test_no_two_plugins_have_a_test_of_one_name():
    names = [new_names("scheduler", one) for one in ("first", "second")]
    tests = [{path for path in files_of(one) if path.endswith("_kit.py")} for one in names]

    assert len(set.union(*tests)) == 2


def test_it_says_the_same_as_json(sites, new, tmp_path):
    _, out, _ = new("eviction", "mine", "--json")

    data = json.loads(out)
    assert data["folder"] == str(tmp_path / "octavo-mine")
    assert all((tmp_path / "octavo-mine" / file).is_file() for file in data["files"])
    assert (data["kind"], data["name"], data["warnings"]) == ("eviction", "mine", [])


def test_a_folder_that_exists_is_left_alone(sites, new, tmp_path):
    folder = tmp_path / "octavo-mine"
    folder.mkdir()

    code, out, err = new("eviction", "mine")

    assert (code, out) == (2, "")
    assert err == (
        f"error: cannot write {folder}\n  it exists\n"
        "  take another name, or another place: --into DIR\n"
    )
    assert list(folder.iterdir()) == []


def test_a_place_that_is_no_folder_is_refused(sites, new, tmp_path):
    (tmp_path / "file").write_text("")

    code = main(["plugins", "new", "eviction", "mine", "--into", str(tmp_path / "file")])

    assert code == 2
    assert (tmp_path / "file").read_text() == ""


def test_a_failure_leaves_nothing_behind(sites, new, tmp_path, monkeypatch):
    def full(self, text, **how):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)

    code, _, err = new("eviction", "mine")

    assert (code, err.splitlines()[1]) == (2, "  No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_warned_of(sites, new):
    code, _, err = new("scheduler", "fcfs")

    assert code == 0
    assert err == (
        "warning: scheduler 'fcfs' is what octavo 0.1.0 provides; with both installed, neither "
        'can be used (add replaces="fcfs" to take the name over)\n'
    )


def test_a_package_of_somebody_else_is_not_overwritten(sites, new, tmp_path):
    code, _, err = new("scheduler", "plugins")

    assert code == 2
    assert err == (
        "error: 'plugins' is no name for a new plugin\n"
        "  a package octavo_plugins is installed, which it would overwrite\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_older_self_is_warned_of(sites, new, monkeypatch):
    def version(name):
        if name == "octavo-mine":
            return "0.1.0"
        raise PackageNotFoundError(name)

    monkeypatch.setattr("octavo.cli.plugins_new.version", version)

    assert new("scheduler", "mine")[2] == "warning: octavo-mine 0.1.0 is installed already\n"


@pytest.mark.parametrize("words", [(), ("scheduler",)])
def test_what_is_missing_is_said(sites, new, words):
    code, _, err = new(*words)

    assert code == 2
    assert err == (
        "error: octavo plugins new: of which kind, and under what name?\n"
        "  for example: octavo plugins new scheduler my-order\n"
    )


def test_other_actions_take_one_name(sites, capsys):
    assert main(["plugins", "info", "fcfs", "priority"]) == 2
    assert capsys.readouterr().err == "error: octavo plugins info: unexpected argument 'priority'\n"
