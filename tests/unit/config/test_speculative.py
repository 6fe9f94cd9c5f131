"""vLLM's `speculative_config`, from keywords, flags and files, to a proposer with options."""

import json

import pytest

from octavo.config.flags import Parser, add_config_arguments, resolve_arguments
from octavo.config.resolve import resolve
from octavo.errors import ConfigError, UnknownComponentError, UnknownOptionError


def chosen(value):
    return resolve(overrides={"speculative_config": value}).chosen["proposer"]


def test_method_and_number_of_tokens():
    proposer = chosen({"method": "ngram", "num_speculative_tokens": 7})

    assert proposer.name == "ngram"
    assert proposer.options["num-drafts"] == 7
    assert proposer.why == "speculative_config= method"


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 4}, 2, 4),
        ({"prompt_lookup_max": 2}, 2, 2),
        ({"prompt_lookup_min": 7}, 7, 7),
        ({"prompt_lookup_max": 2, "prompt_lookup_min": None}, 2, 2),
        ({}, 3, 5),
    ],
)
def test_one_end_of_the_lookup_stands_for_both_as_in_vllm(given, low, high):
    config = resolve(overrides={"speculative_config": {"method": "ngram", **given}})
    proposer = config.build("proposer")

    assert (proposer.options.min_ngram, proposer.options.max_ngram) == (low, high)


@pytest.mark.parametrize("model", ["ngram", "[ngram]"])
def test_ngram_may_be_written_as_the_model(model):
    assert chosen({"model": model, "num_speculative_tokens": 3}).name == "ngram"


def test_the_own_names_of_options_may_be_used():
    proposer = chosen({"method": "ngram", "num-drafts": 4, "max_ngram": 6})

    assert (proposer.options["num-drafts"], proposer.options["max-ngram"]) == (4, 6)


def test_none_is_no_speculation():
    assert chosen(None).name == "none"


def test_flag_and_file(tmp_path):
    config = {"method": "ngram", "num_speculative_tokens": 2}
    parser = Parser(prog="octavo serve")
    add_config_arguments(parser)
    args = parser.parse_args(["--speculative-config", json.dumps(config)])
    file = tmp_path / "c.yaml"
    file.write_text(json.dumps({"speculative-config": config}))

    for resolved in (resolve_arguments(args), resolve(file=file)):
        assert resolved.chosen["proposer"].name == "ngram"
        assert resolved.chosen["proposer"].options["num-drafts"] == 2
    assert "--speculative-config JSON" in parser.format_help()


def test_keys_that_change_nothing_are_noted():
    settings = {"method": "ngram", "draft_tensor_parallel_size": 1}
    config = resolve(overrides={"speculative_config": settings})

    (note,) = config.notes
    assert note.startswith("speculative_config= draft_tensor_parallel_size has no effect: ")


def test_an_unknown_method_is_refused_with_the_valid_ones():
    with pytest.raises(UnknownComponentError) as caught:
        chosen({"method": "ngrams"})

    lines = str(caught.value).splitlines()
    assert lines[0] == "unknown proposer 'ngrams' (speculative_config= method)"
    assert "  did you mean 'ngram'?" in lines
    assert any("draft-model, ngram, none" in line for line in lines[2:])


def test_an_unknown_key_is_refused_with_the_valid_ones():
    with pytest.raises(UnknownOptionError) as caught:
        chosen({"method": "ngram", "quantization": "fp8"})

    assert str(caught.value) == (
        "unknown option 'quantization' of proposer 'ngram' (speculative_config= quantization)\n"
        "  options: num-drafts, min-ngram, max-ngram"
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{", "it is no JSON"),
        ("[1]", "it is no table of settings"),
        (["ngram"], "it is no table of settings"),
        ({"num_speculative_tokens": 5}, "no method (speculative_config=)"),
        ({"method": 5}, "invalid value 5 (speculative_config= method)"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "greater than or equal to 1"),
        ({"method": "ngram", "num_speculative_tokens": "many"}, "valid integer"),
    ],
)
def test_what_makes_no_sense_is_refused(value, reason):
    with pytest.raises(ConfigError) as caught:
        chosen(value)

    assert reason in str(caught.value)


def flags(*words):
    parser = Parser(prog="octavo serve")
    add_config_arguments(parser)
    return resolve_arguments(parser.parse_args(words)).chosen["proposer"]


SAYS_NGRAM = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')


def test_another_proposer_beside_it_is_refused_whatever_the_order():
    for words in ((*SAYS_NGRAM, "--proposer", "none"), ("--proposer", "none", *SAYS_NGRAM)):
        with pytest.raises(ConfigError) as caught:
            flags(*words)
        headline, *facts, advice = str(caught.value).splitlines()
        assert headline == "two values for proposer"
        assert sorted(facts) == [
            "  --proposer: 'none'",
            "  --speculative-config method: 'ngram'",
        ]
        assert advice == "  give one of them"


def test_another_value_of_an_option_beside_it_is_refused():
    with pytest.raises(ConfigError, match=r"two values for proposer\.num-drafts") as caught:
        flags(*SAYS_NGRAM, "--proposer.num-drafts", "5")
    assert "--speculative-config num_speculative_tokens: 4" in str(caught.value)
    assert "--proposer.num-drafts: '5'" in str(caught.value)
    both = {"method": "ngram", "num_speculative_tokens": 4, "num-drafts": 5}
    with pytest.raises(ConfigError, match="two values for num-drafts"):
        chosen(both)
    with pytest.raises(ConfigError, match="two values for proposer"):
        resolve(overrides={"proposer": "none", "speculative_config": {"method": "ngram"}})


def test_the_same_said_twice_is_no_matter():
    proposer = flags(*SAYS_NGRAM, "--proposer", "ngram", "--proposer.num-drafts", "4")
    assert (proposer.name, proposer.options["num-drafts"]) == ("ngram", 4)


def test_a_flag_wins_over_a_file_that_says_it_otherwise(tmp_path):
    file = tmp_path / "octavo.json"
    file.write_text(json.dumps({"speculative-config": {"method": "ngram"}}))
    assert resolve(file=file, flags={"proposer": "draft-model"}).chosen["proposer"].name == (
        "draft-model"
    )


def test_two_names_of_one_setting_are_refused_too(tmp_path):
    with pytest.raises(ConfigError, match="two values for scheduler"):
        resolve(flags={"scheduling-policy": "priority", "scheduler": "fcfs"})
    file = tmp_path / "octavo.toml"
    file.write_text('api-key = "abc"\n[server]\napi-key = "xyz"\n')
    with pytest.raises(ConfigError, match=r"two values for server\.api-key") as caught:
        resolve(file=file)
    assert "abc" not in str(caught.value)
    assert "xyz" not in str(caught.value)
