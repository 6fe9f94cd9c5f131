import json

import pytest

from octavo.cli.main import main


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "octavo.toml"
    file.write_text(
        '[engine]\nmax-num-seqs = 7\n[scheduler]\nuse = "steady"\nageing-s = 2.5\n'
        '[ops]\nuse = "torch"\n[attention]\nuse = "torch"\n'
    )
    return file


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main(["explain", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_config_file_needs_no_flag(sites, run, config):
    sites.add("good")

    code, out, _ = run(str(config), "--scheduler.is-fair", "true")

    lines = [" ".join(line.split()) for line in out.splitlines()]
    where = f"{config}: [scheduler]"
    assert code == 0
    assert f"engine.max-num-seqs 7 {config}: [engine] max-num-seqs" in lines
    assert f"scheduler steady octavo-good 0.2 octavo_good_impl:Steady {where} use" in lines
    assert f"ageing-s 2.5 {where} ageing-s" in lines
    assert "is-fair true --scheduler.is-fair" in lines


def test_json_has_every_option_and_where_it_comes_from(sites, run, config):
    sites.add("good")

    _, out, _ = run(str(config), "--json")

    steady = json.loads(out)["chosen"]["scheduler"]
    assert steady["name"] == "steady"
    assert steady["provider"] == "octavo-good 0.2"
    assert steady["target"] == "octavo_good_impl:Steady"
    assert steady["why"] == f"{config}: [scheduler] use"
    assert steady["options"] == {"ageing-s": 2.5, "is-fair": False}
    assert steady["option-origins"] == {
        "ageing-s": f"{config}: [scheduler] ageing-s",
        "is-fair": "default",
    }


def test_a_model_is_a_model(sites, run):
    _, out, _ = run("some/model", "--ops", "torch", "--attention", "torch", "--json")

    assert json.loads(out)["model"]["name"] == "some/model"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("a.toml", "--config", "b.toml"),
            "two config files: 'a.toml' and --config 'b.toml'\n  give the file once",
        ),
        (("a", "--model", "b"), "two models: 'a' and --model 'b'\n  give the model once"),
    ],
)
def test_what_is_given_twice_is_refused(sites, run, words, message):
    assert run(*words) == (2, "", f"error: {message}\n")
