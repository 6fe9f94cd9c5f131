import argparse

import pytest

from octavo.cli.explanation import as_data, explain
from octavo.config.fields import KIND_FLAGS, SETTINGS
from octavo.config.flags import (
    Parser,
    add_config_arguments,
    flags_of,
    given_models,
    resolve_arguments,
)
from octavo.config.vllm import FOREIGN
from octavo.errors import ConfigError, ConfigFileError, UnknownOptionError


def parse(*words, models="?"):
    parser = Parser(prog="octavo serve")
    add_config_arguments(parser, models=models)
    return parser.parse_args(words)


@pytest.fixture
def vllm_yaml(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: from-file\nmax-num-seqs: 5\nport: 8001\n")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["MODEL", "--config={file}"],
        ["MODEL", "--config", "{file}"],
        ["--config", "{file}", "MODEL"],
        ["--config={file}", "MODEL"],
        ["--config", "{file}", "--model", "MODEL"],
        ["--model=MODEL", "--config={file}"],
    ],
)
def test_B146_all_forms_of_config_are_equal(sites, vllm_yaml, words):
    args = parse(*(word.format(file=vllm_yaml) for word in words))

    config = resolve_arguments(args)

    assert config.model.name == "MODEL"
    assert (config.engine.max_num_seqs, config.server.port) == (5, 8001)


@pytest.mark.parametrize("words", [["--config", "{file}"], ["--config={file}"]])
def test_B146_the_model_may_be_in_the_file(sites, vllm_yaml, words):
    args = parse(*(word.format(file=vllm_yaml) for word in words))

    assert resolve_arguments(args).model.name == "from-file"


@pytest.mark.parametrize(
    "words",
    [
        ["--max-num-seqs", "7", "--config", "{file}"],
        ["--config={file}", "--max-num-seqs=7"],
        ["--config={file}", "--max_num_seqs", "7"],
    ],
)
def test_B146_a_flag_wins_over_the_file_wherever_it_stands(sites, vllm_yaml, words):
    config = resolve_arguments(parse(*(word.format(file=vllm_yaml) for word in words)))

    assert (config.engine.max_num_seqs, config.server.port) == (7, 8001)
    assert config.origins["engine.max-num-seqs"] == "--max-num-seqs"


def test_B146_an_unknown_key_or_a_missing_file_is_an_error_with_its_name(sites, tmp_path):
    bad = tmp_path / "c.yaml"
    bad.write_text("max-num-seqs: 5\nmax-nun-seqs: 6\n")

    with pytest.raises(UnknownOptionError, match="'max-nun-seqs'") as unknown:
        resolve_arguments(parse("MODEL", f"--config={bad}"))
    with pytest.raises(ConfigFileError, match=r"missing\.yaml") as missing:
        resolve_arguments(parse("MODEL", "--config", "missing.yaml"))

    assert (unknown.value.exit_code, missing.value.exit_code) == (2, 2)


def test_every_setting_and_kind_is_a_flag(sites):
    words = []
    for setting in SETTINGS.values():
        words.append(f"--{setting.flag}")
        words += [] if setting.shape == "switch" else ["value"]
    for kind in KIND_FLAGS:
        words += [f"--{kind}", "value"]

    given = flags_of(parse(*words, models=None))

    assert set(given) == {*SETTINGS, *KIND_FLAGS}
    assert given["enable-prefix-caching"] is True
    assert given["api-key"] == ["value"]


def test_what_is_not_given_is_not_set():
    assert flags_of(parse()) == {}


def test_switches_can_be_turned_off(sites):
    assert resolve_arguments(parse()).engine.enable_prefix_caching is True
    config = resolve_arguments(parse("--no-enable-prefix-caching"))
    assert config.engine.enable_prefix_caching is False


def test_a_list_is_given_by_repeating_the_flag(sites):
    config = resolve_arguments(parse("--api-key", "a", "MODEL", "--api-key=b"))

    assert config.server.api_key == ("a", "b")
    assert config.model.name == "MODEL"


def test_a_model_may_be_served_under_several_names(sites):
    for words in (
        ["--served-model-name", "a", "b"],
        ["--served-model-name=a", "--served-model-name=b"],
    ):
        config = resolve_arguments(parse("MODEL", *words, "--port", "1"))

        assert config.model.served_model_name == ("a", "b")
        assert config.model.name == "MODEL"


@pytest.mark.parametrize(
    "words",
    [
        ["--scheduler.ageing-s", "5", "MODEL"],
        ["MODEL", "--scheduler.ageing_s=5"],
        ["--scheduler.ageing-s=5", "--", "MODEL"],
    ],
)
def test_options_of_components_are_dotted_and_never_eat_the_model(sites, words):
    sites.add("good")

    config = resolve_arguments(parse("--scheduler", "steady", *words))

    assert config.model.name == "MODEL"
    assert config.chosen["scheduler"].options["ageing-s"] == 5.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--max-num-seq", "3"],
            (
                "octavo serve: unknown flag '--max-num-seq'\n"
                "  did you mean '--max-num-seqs'?\n"
                "  see: octavo serve --help"
            ),
        ),
        (
            ["--schduler.x=1"],
            (
                "octavo serve: unknown flag '--schduler.x'\n"
                "  did you mean '--scheduler'?\n"
                "  see: octavo serve --help"
            ),
        ),
        (
            ["--scheduler.ageing-s"],
            (
                "octavo serve: argument --scheduler.ageing-s: "
                "expected a value, as in --scheduler.ageing-s=VALUE\n"
                "  see: octavo serve --help"
            ),
        ),
        (
            ["--scheduler.ageing-s", "--port", "1"],
            (
                "octavo serve: argument --scheduler.ageing-s: "
                "expected a value, as in --scheduler.ageing-s=VALUE\n"
                "  see: octavo serve --help"
            ),
        ),
        (
            ["--port"],
            ("octavo serve: argument --port: expected one argument\n  see: octavo serve --help"),
        ),
        (
            ["a", "b"],
            "octavo serve: unexpected argument 'b'\n  see: octavo serve --help",
        ),
        (
            ["a", "--api-key", "one", "two", "--port", "1"],
            (
                "octavo serve: unexpected argument after --api-key, which takes one word and may "
                "be given again\n  see: octavo serve --help"
            ),
        ),
    ],
)
def test_a_command_line_that_cannot_be_is_explained(words, message):
    with pytest.raises(ConfigError) as caught:
        parse(*words)

    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_a_text_that_begins_with_hyphens_is_a_value():
    parser = Parser(prog="octavo complete")
    parser.add_argument("--prompt")

    assert parser.parse_args(["--prompt", "-- and then?"]).prompt == "-- and then?"
    assert parser.parse_args(["--prompt=--x\n-- y"]).prompt == "--x\n-- y"


def test_abbreviations_are_not_guessed():
    with pytest.raises(UnknownOptionError, match="unknown flag '--max-num-batched'"):
        parse("--max-num-batched", "1")


def test_several_models_can_be_named():
    assert given_models(parse("a", "b", models="*")) == ("a", "b")
    assert given_models(parse("--model", "a", models="*")) == ("a",)
    assert given_models(parse(models="*")) == ()
    assert given_models(parse("a", "--model", "a")) == ("a",)


def test_two_different_models_are_an_error():
    with pytest.raises(ConfigError) as caught:
        given_models(parse("a", "--model", "b"))

    assert str(caught.value) == "two models: 'a' and --model 'b'\n  give the model once"


def test_a_command_may_have_settings_of_its_own(sites):
    config = resolve_arguments(parse("a"), model="b", max_num_seqs=3)

    assert (config.model.name, config.engine.max_num_seqs) == ("b", 3)


def foreign(verdict):
    return [
        pytest.param([f"--{name}", *([] if one.is_switch else ["nonsense"])], one.text, id=name)
        for name, one in FOREIGN.items()
        if one.verdict == verdict
    ]


@pytest.mark.parametrize(("words", "reason"), foreign("accepted"))
def test_flags_of_vllm_that_change_nothing_are_accepted_with_a_note(sites, capsys, words, reason):
    resolve_arguments(parse(*words))

    assert capsys.readouterr().err == f"note: {words[0]} has no effect: {reason}\n"


@pytest.mark.parametrize(("words", "reason"), foreign("refused"))
def test_flags_of_vllm_that_cannot_be_honoured_are_refused(sites, words, reason):
    with pytest.raises(ConfigError) as caught:
        resolve_arguments(parse(*words))

    assert str(caught.value) == f"{words[0]} is not supported\n  {reason}"


def test_renamed_flags_lead_somewhere():
    targets = [one.text for one in FOREIGN.values() if one.verdict == "renamed"]

    assert {target.partition(".")[0] for target in targets} <= {*SETTINGS, *KIND_FLAGS}
    assert not {*FOREIGN} & {*SETTINGS, *KIND_FLAGS}


def test_every_setting_has_a_description_that_help_shows():
    parser = Parser(prog="octavo serve")
    add_config_arguments(parser)

    text = " ".join(parser.format_help().split())

    assert all(setting.description for setting in SETTINGS.values())
    assert "sequences in one step, at most (default: 64)" in text
    assert "--gpu-memory-utilization" not in text
    assert isinstance(parser, argparse.ArgumentParser)


def test_explain_says_where_everything_comes_from(sites):
    sites.add("good")
    config = resolve_arguments(
        parse("smollm2", "--scheduler=steady", "--scheduler.ageing-s=5", "--api-key", "secret")
    )

    lines = explain(config).splitlines()

    assert lines[:5] == [
        "settings (other than defaults; --all shows every one)",
        "  model.name      smollm2   --model",
        "  server.api-key  (hidden)  --api-key",
        "",
        "components",
    ]
    chosen = [line.split() for line in lines if line.startswith("  scheduler")]
    assert chosen == [
        ["scheduler", "steady", "octavo-good", "0.2", "octavo_good_impl:Steady", "--scheduler"]
    ]
    options = lines.index("options of scheduler 'steady'")
    assert lines[options + 1 : options + 3] == [
        "  ageing-s  5.0    --scheduler.ageing-s",
        "  is-fair   false  default",
    ]
    assert "secret" not in explain(config, show_all=True)
    assert as_data(config)["server"]["api-key"] == ["(hidden)"]


def test_explain_shows_options_that_nobody_set(sites):
    sites.add("good")
    lines = explain(resolve_arguments(parse("--scheduler=steady"))).splitlines()

    options = lines.index("options of scheduler 'steady'")
    assert [line.split()[::2] for line in lines[options + 1 : options + 3]] == [
        ["ageing-s", "default"], ["is-fair", "default"]
    ]  # fmt: skip


def test_explain_can_show_the_defaults_too(sites):
    lines = explain(resolve_arguments(parse()), show_all=True).splitlines()

    assert "settings" in lines
    row = next(line.split() for line in lines if "engine.depth" in line)
    assert row == ["engine.depth", "0", "default"]
