import builtins
import json

import pytest

from octavo.config.load import layer_of_file, layer_of_flags, layer_of_keywords, merge
from octavo.errors import ConfigError, ConfigFileError, UnknownOptionError

TOML = """
[engine]
max-num-seqs = 8
[scheduler]
use = "priority"
ageing-s = 5
[dialect]
use = ["openai"]
[dialect.openai]
greeting = "hello"
"""


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def plain(layer):
    return {path: written.value for path, written in layer.values.items()}


def test_sections_and_kinds_of_a_toml_file(tmp_path):
    layer = layer_of_file(write(tmp_path, "octavo.toml", TOML))

    assert plain(layer) == {
        ("engine", "max-num-seqs"): 8,
        ("scheduler", "use"): "priority",
        ("scheduler", "ageing-s"): 5,
        ("dialect", "use"): ["openai"],
        ("dialect", "openai", "greeting"): "hello",
    }
    where = layer.values["scheduler", "ageing-s"].where
    assert where == f"{tmp_path}/octavo.toml: [scheduler] ageing-s"


def test_flat_keys_as_in_yaml_files_of_vllm(tmp_path):
    text = "model: smollm2\nmax_num_seqs: 8\nport: 8001\napi-key: [a, b]\nscheduler: priority\n"

    layer = layer_of_file(write(tmp_path, "c.yaml", text))

    assert plain(layer) == {
        ("model", "name"): "smollm2",
        ("engine", "max-num-seqs"): 8,
        ("server", "port"): 8001,
        ("server", "api-key"): ["a", "b"],
        ("scheduler", "use"): "priority",
    }


def test_one_name_may_be_a_setting_and_a_section(tmp_path):
    flat = layer_of_file(write(tmp_path, "a.json", json.dumps({"tokenizer": "some/folder"})))
    table = layer_of_file(write(tmp_path, "b.json", json.dumps({"tokenizer": {"use": ["hf"]}})))

    assert plain(flat) == {("model", "tokenizer"): "some/folder"}
    assert plain(table) == {("tokenizer", "use"): ["hf"]}


def test_an_empty_yaml_file_says_nothing(tmp_path):
    assert plain(layer_of_file(write(tmp_path, "c.yml", "# nothing yet\n"))) == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "c.toml",
            "[engine]\nmax-num-seq = 1\n",
            (
                "unknown setting 'max-num-seq' ({path}: [engine] max-num-seq)\n"
                "  did you mean 'max-num-seqs'?\n"
                "  settings of [engine]: max-num-seqs, max-num-batched-tokens, max-step-ms, "
                "max-model-len, max-num-queued-reqs, block-size, enable-prefix-caching, "
                "num-gpu-blocks-override, kv-cache-memory-bytes, dtype, seed, max-logprobs, "
                "depth, enable-lora, max-loras, max-lora-rank, tensor-parallel-size, threads"
            ),
        ),
        (
            "c.toml",
            "[shceduler]\nuse = 'fcfs'\n",
            (
                "unknown section 'shceduler' ({path})\n"
                "  did you mean 'scheduler'?\n"
                "  sections: engine, model, server, plugins, platform, ops, attention, executor, "
                "scheduler, allocator, eviction, sampler-stage, proposer, grammar, adapter, "
                "architecture, weights, source, tokenizer, parser, dialect"
            ),
        ),
        (
            "c.yaml",
            "max-num-seq: 1\n",
            "unknown setting 'max-num-seq' ({path}: max-num-seq)\n  did you mean 'max-num-seqs'?",
        ),
        (
            "c.toml",
            "[dialect]\nuses = 'openai'\n",
            (
                "unknown setting 'uses' ({path}: [dialect] uses)\n"
                "  did you mean 'use'?\n"
                "  [dialect] has `use`, and one table of options for each component"
            ),
        ),
    ],
)
def test_an_unknown_name_in_a_file_is_an_error(tmp_path, name, text, message):
    path = write(tmp_path, name, text)

    with pytest.raises(UnknownOptionError) as caught:
        layer_of_file(path)

    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.toml", None, "cannot read config file '{path}'\n  there is no such file"),
        (
            "c.ini",
            "",
            "cannot read config file '{path}'\n  its name must end in .toml, .yaml, .yml or .json",
        ),
        (
            "c.json",
            "[1]",
            "config file '{path}' is not a table of settings\n  it holds one list",
        ),
        (
            "c.json",
            "{",
            (
                "config file '{path}' is not valid JSON\n"
                "  Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
            ),
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigFileError) as caught:
        layer_of_file(path)

    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize(("name", "text"), [("c.toml", "a = "), ("c.yaml", "a: [")])
def test_a_file_that_does_not_parse_names_its_format(tmp_path, name, text):
    with pytest.raises(ConfigFileError, match=f"is not valid {name[2:].upper()}\n"):
        layer_of_file(write(tmp_path, name, text))


def test_a_folder_and_bytes_that_are_no_text_are_errors(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigFileError, match="IsADirectoryError"):
        layer_of_file(tmp_path / "folder.toml")
    with pytest.raises(ConfigFileError, match="UnicodeDecodeError"):
        layer_of_file(tmp_path / "bytes.toml")


def test_yaml_without_pyyaml_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path, "c.yaml", "seed: 1\n")
    real = builtins.__import__

    def without_yaml(name, *args, **kwargs):
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_yaml)

    with pytest.raises(ConfigFileError) as caught:
        layer_of_file(path)

    assert str(caught.value) == (
        f"cannot read config file '{path}'\n"
        "  YAML needs PyYAML: pip install pyyaml; or write the same as .toml or .json"
    )


def test_keywords_may_hold_a_name_a_class_or_a_table():
    layer = layer_of_keywords(
        {"scheduler": {"use": "fcfs", "ageing_s": 1}, "eviction": dict, "max_num_seqs": 2}
    )

    assert plain(layer) == {
        ("scheduler", "use"): "fcfs",
        ("scheduler", "ageing-s"): 1,
        ("eviction", "use"): dict,
        ("engine", "max-num-seqs"): 2,
    }


def test_flags_are_dotted_for_options():
    layer = layer_of_flags(
        {"scheduler.ageing-s": "5", "dialect.openai.greeting": "hi", "engine.seed": "3"}
    )

    assert plain(layer) == {
        ("scheduler", "ageing-s"): "5",
        ("dialect", "openai", "greeting"): "hi",
        ("engine", "seed"): "3",
    }
    assert layer.values["scheduler", "ageing-s"].where == "--scheduler.ageing-s"


def test_vllm_names_of_the_same_thing_are_taken():
    layer = layer_of_flags({"scheduling-policy": "priority", "attention-backend": "torch"})

    assert plain(layer) == {("scheduler", "use"): "priority", ("attention", "use"): "torch"}


def test_what_changes_nothing_is_accepted_with_a_note():
    layer = layer_of_flags({"enforce-eager": True, "data-parallel-size": "1"})

    assert plain(layer) == {}
    assert layer.notes == [
        (
            "--enforce-eager has no effect: "
            "what can be recorded is recorded, and what cannot runs directly"
        )
    ]


@pytest.mark.parametrize("value", [2, "2", True])
def test_what_would_silently_differ_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        layer_of_keywords({"data_parallel_size": value})

    assert str(caught.value) == (
        "data_parallel_size= is not supported\n"
        "  this version splits a model by --tensor-parallel-size alone"
    )


def test_a_switch_that_is_off_is_not_refused():
    assert plain(layer_of_keywords({"trust_remote_code": False, "quantization": None})) == {}


def test_later_layers_win():
    merged = merge(layer_of_keywords({"seed": 1, "port": 1}), layer_of_flags({"seed": "2"}))

    assert plain(merged) == {("engine", "seed"): "2", ("server", "port"): 1}


def test_options_of_a_component_that_was_replaced_are_dropped():
    file = layer_of_keywords({"scheduler": {"use": "priority", "ageing-s": 5}})

    assert plain(merge(file, layer_of_flags({"scheduler": "fcfs"}))) == {
        ("scheduler", "use"): "fcfs"
    }
    assert plain(merge(file, layer_of_flags({"scheduler": "priority"}))) == plain(file)
