import subprocess
import sys

import pytest

from octavo.cli.explanation import explain
from octavo.config.resolve import resolve
from octavo.config.resolved import ResolvedConfig
from octavo.errors import (
    ConfigError,
    ConfigFileError,
    NoCandidateError,
    UnknownComponentError,
    UnknownOptionError,
)
from octavo.interfaces.scheduler import SchedulerPolicy
from octavo.plugin.component import Component
from octavo.plugin.options import ComponentOptions


class Passed(SchedulerPolicy):
    """A scheduler that a test passes as it is."""

    class Options(ComponentOptions):
        slack_ms: int = 3

    def __init__(self, options):
        self.options = options


#: asked, it would compile
KERNELS = "octavo_plugins.native.cpu_reasons.why_not_ops"


def test_defaults_need_no_config(sites, monkeypatch):
    monkeypatch.setattr(KERNELS, lambda context: [])
    config = resolve()

    assert (config.engine.max_num_seqs, config.engine.max_step_ms) == (64, 250.0)
    assert (config.engine.block_size, config.engine.depth) == (16, 0)
    assert {kind: one.name for kind, one in config.chosen.items()} == {
        "platform": "cpu",
        "ops": "cpu",
        "attention": "cpu",
        "executor": "inline",
        "scheduler": "fcfs",
        "allocator": "paged",
        "eviction": "lru",
        "proposer": "none",
        "grammar": "llguidance",
    }
    assert [one.name for one in config.active["source"]] == ["local", "pypi", "hub"]
    assert config.engine.max_num_batched_tokens == 512
    assert config.origins == {"engine.max-num-batched-tokens": "default of platform 'cpu'"}


class Accelerator:
    """A platform that a test passes as it is."""


@pytest.mark.parametrize(
    ("defaults", "written", "tokens", "origin"),
    [
        ({"max-num-batched-tokens": 8192}, {}, 8192, "default of platform 'gpu'"),
        ({"max-num-batched-tokens": 8192}, {"max_num_batched_tokens": 9}, 9, None),
        ({}, {}, 2048, None),
    ],
)
def test_a_platform_has_defaults_of_its_own(sites, defaults, written, tokens, origin):
    platform = Component(name="gpu", target=Accelerator, defaults=defaults)
    config = resolve(overrides={"platform": platform, "ops": "torch", **written})

    assert config.engine.max_num_batched_tokens == tokens
    key = "engine.max-num-batched-tokens"
    assert config.origins.get(key) == ("max_num_batched_tokens=" if written else origin)
    assert ("default of platform 'gpu'" in explain(config, show_all=True)) == (origin is not None)
    assert "default of platform" not in explain(config)


def test_a_default_that_cannot_be_names_its_component(sites):
    platform = Component(name="gpu", target=Accelerator, defaults={"max-num-batched-tokens": 0})
    with pytest.raises(ConfigError, match=r"^invalid value 0 \(default of platform 'gpu'\)"):
        resolve(overrides={"platform": platform, "ops": "torch"})


@pytest.mark.parametrize("keys", ["", " ", ["secret", ""]])
def test_an_empty_key_is_refused_since_every_request_would_match_it(sites, keys):
    with pytest.raises(ConfigError, match=r"\(--api-key\)\n  a key must not be empty"):
        resolve(flags={"api-key": keys})
    assert resolve(flags={"api-key": "secret"}).server.api_key == ("secret",)


@pytest.mark.parametrize("keys", [["k3y", ""], {"k3y": "k3y"}, [5, "k3y"], [["k3y"]]])
def test_a_wrong_value_of_a_secret_is_not_shown(sites, keys):
    with pytest.raises(ConfigError, match=r"^invalid value \(hidden\) \(--api-key\)\n") as caught:
        resolve(flags={"api-key": keys})
    assert "k3y" not in str(caught.value)


def test_a_config_file_that_cannot_be_read_is_not_shown(sites, tmp_path):
    file = tmp_path / "octavo.yaml"
    file.write_text("server:\n  port: 1\n  api-key: [k3y\n")
    with pytest.raises(ConfigFileError) as caught:
        resolve(file=file)
    assert "k3y" not in str(caught.value)
    assert "line 4" in str(caught.value)


def test_keywords_win_over_flags_and_flags_over_the_file(sites, tmp_path):
    file = tmp_path / "octavo.toml"
    file.write_text("[engine]\nseed = 1\nblock-size = 1\nmax-num-seqs = 1\n")

    config = resolve(
        file=file, flags={"seed": "2", "block-size": "2"}, overrides={"block_size": 32}
    )

    assert (config.engine.max_num_seqs, config.engine.seed, config.engine.block_size) == (1, 2, 32)
    assert config.origins == {
        "engine.max-num-batched-tokens": "default of platform 'cpu'",
        "engine.max-num-seqs": f"{file}: [engine] max-num-seqs",
        "engine.seed": "--seed",
        "engine.block-size": "block_size=",
    }


def test_the_environment_may_name_the_file(sites, tmp_path):
    file = tmp_path / "octavo.toml"
    file.write_text("[engine]\nseed = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[engine]\nseed = 2\n")

    assert resolve(environ={"OCTAVO_CONFIG": str(file)}).engine.seed == 1
    assert resolve(file=other, environ={"OCTAVO_CONFIG": str(file)}).engine.seed == 2


def test_the_environment_may_block_third_parties(sites):
    sites.add("good")

    assert resolve(flags={"scheduler": "steady"}, environ={}).chosen["scheduler"].name == "steady"
    with pytest.raises(UnknownComponentError, match=r"disabled: octavo-good 0\.2 \(OCTAVO_NO_PLUG"):
        resolve(flags={"scheduler": "steady"}, environ={"OCTAVO_NO_PLUGINS": "1"})


@pytest.mark.parametrize(
    ("written", "expected"),
    [("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("auto", None), (-1, None), ("-1", None)],
)
def test_lengths_may_be_written_as_for_vllm(sites, written, expected):
    assert resolve(flags={"max-model-len": written}).engine.max_model_len == expected


@pytest.mark.parametrize("written", ["off", "none", "None", False, None])
def test_the_time_budget_can_be_switched_off(sites, written):
    assert resolve(overrides={"max_step_ms": written}).engine.max_step_ms is None


def test_one_wrong_value_is_explained(sites):
    with pytest.raises(ConfigError) as caught:
        resolve(flags={"max-num-seqs": "0"})

    assert str(caught.value) == (
        "invalid value '0' (--max-num-seqs)\n  input should be greater than or equal to 1"
    )
    assert caught.value.exit_code == 2


def test_all_wrong_values_are_explained_at_once(sites):
    with pytest.raises(ConfigError) as caught:
        resolve(flags={"max-num-seqs": "some"}, overrides={"dtype": "int3"})

    assert str(caught.value) == (
        "2 invalid values\n"
        "  invalid value 'some' (--max-num-seqs): "
        "input should be a valid integer, unable to parse string as an integer\n"
        "  invalid value 'int3' (dtype=): input should be "
        "'auto', 'float32', 'float16', 'bfloat16', 'float' or 'half'"
    )


def test_a_resolved_config_cannot_be_changed(sites):
    config = resolve()

    with pytest.raises(ValueError, match="frozen"):
        config.engine.seed = 1
    with pytest.raises(ValueError, match="frozen"):
        config.engine = None
    assert config.with_changes(engine={"seed": 7}).engine.seed == 7
    assert config.engine.seed is None


def test_a_chosen_component_has_its_options_and_its_reason(sites):
    sites.add("good")

    config = resolve(flags={"scheduler": "steady", "scheduler.ageing-s": "5"})

    chosen = config.chosen["scheduler"]
    assert chosen.options == {"ageing-s": 5.0, "is-fair": False}
    assert (chosen.why, chosen.provider) == ("--scheduler", "octavo-good 0.2")
    assert chosen.target == "octavo_good_impl:Steady"
    assert config.build("scheduler", tick=1).options.ageing_s == 5.0


def test_an_option_of_the_wrong_component_is_refused(sites):
    with pytest.raises(UnknownOptionError) as caught:
        resolve(flags={"scheduler.ageing-s": "5"})

    assert str(caught.value) == (
        "unknown option 'ageing-s' of scheduler 'fcfs' (--scheduler.ageing-s)\n  it has no options"
    )


def test_auto_takes_the_first_that_has_no_reason_against_it(sites, monkeypatch):
    sites.add("picky")
    reasons = "octavo_plugins.platforms.triton_reasons.why_not"
    monkeypatch.setattr(reasons, lambda context: ["it is no"])
    monkeypatch.setattr(KERNELS, lambda context: ["there is no compiler"])

    chosen = resolve(flags={"threads": "3"}).chosen["ops"]

    assert chosen.name == "torch"
    assert chosen.why == (
        "auto: first of quantum, gpu, triton, cpu, odd, torch; "
        "not quantum: qubits>=2 is not installed; "
        "not gpu: no GPU is here, threads is 3; "
        "not triton: it is no; "
        "not cpu: there is no compiler; "
        "not odd: its why_not failed: ValueError: cannot tell"
    )


def test_auto_without_a_candidate_prints_the_whole_table(sites):
    sites.add("picky")

    with pytest.raises(NoCandidateError) as caught:
        resolve(flags={"ops": "auto", "disable-plugin": ["octavo:ops"]})

    assert str(caught.value) == (
        "no ops can run here (--ops)\n"
        "  quantum: qubits>=2 is not installed\n"
        "  gpu: no GPU is here, threads is None\n"
        "  odd: its why_not failed: ValueError: cannot tell"
    )


def test_a_mistake_is_told_before_auto_asks_which_may_take_time(sites, monkeypatch):
    asked = []
    monkeypatch.setattr(KERNELS, lambda context: asked.append(context) or [])
    for flags in ({"scheduler.ageing-s": "5"}, {"eviction": "mru"}, {"source": "moon"}):
        with pytest.raises((ConfigError, UnknownComponentError)):
            resolve(flags=flags)

    assert not asked
    resolve(flags={})
    assert asked


def test_a_kind_nobody_provides_says_so(sites):
    with pytest.raises(UnknownComponentError, match="no ops is loaded"):
        resolve(flags={"disable-plugin": ["octavo:ops"]})


def test_a_name_is_taken_even_if_auto_would_not(sites):
    sites.add("picky")

    assert resolve(flags={"ops": "gpu"}).chosen["ops"].why == "--ops"


@pytest.mark.parametrize("use", [["openai"], "openai", ("openai",)])
def test_a_set_may_be_narrowed(sites, use):
    config = resolve(overrides={"dialect": use})

    assert [one.name for one in config.active["dialect"]] == ["openai"]


def test_a_set_keeps_the_order_of_the_list(sites):
    config = resolve(flags={"source": "hub, local"})

    assert [one.name for one in config.active["source"]] == ["hub", "local"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"scheduler": ["fcfs", "priority"]},
            (
                "invalid value ['fcfs', 'priority'] (scheduler=)\n"
                "  a scheduler is chosen by one name, or 'auto'"
            ),
        ),
        (
            {"dialect": 3},
            "invalid value 3 (dialect=)\n  dialects are chosen by a list of names, or 'all'",
        ),
        (
            {"dialect": ["opnai"]},
            (
                "unknown dialect 'opnai' (dialect=)\n"
                "  did you mean 'openai'?\n"
                "  available: anthropic, openai, ops, pooling, text (octavo 0.1.0)"
            ),
        ),
        (
            {"dialect": {"use": ["ops"], "openai": {"x": 1}}},
            ("options of dialect 'openai', which is not in use (dialect= openai.x)\n  in use: ops"),
        ),
        (
            {"load_format": "ggfu"},
            (
                "unknown weights 'ggfu' (load_format=)\n"
                "  did you mean 'gguf'?\n"
                "  in use: dummy, gguf, safetensors"
            ),
        ),
        (
            {"tokenizer_mode": "mistral"},
            "unknown tokenizer 'mistral' (tokenizer_mode=)\n  in use: gguf, hf",
        ),
    ],
)
def test_a_choice_that_cannot_be_is_explained(sites, overrides, message):
    with pytest.raises((ConfigError, UnknownComponentError)) as caught:
        resolve(overrides=overrides)

    assert str(caught.value) == message


def test_a_class_is_chosen_and_built_in_this_process(sites):
    config = resolve(overrides={"scheduler": Passed})

    assert config.chosen["scheduler"].name == "passed"
    assert config.chosen["scheduler"].provider == "passed in Python"
    assert type(config.build("scheduler")) is Passed
    assert config.build("scheduler").options.slack_ms == 3


def test_a_class_may_be_passed_with_options(sites):
    config = resolve(overrides={"scheduler": {"use": Passed, "slack-ms": "9"}})

    assert config.build("scheduler").options.slack_ms == 9


def test_a_local_class_cannot_be_sent_elsewhere(sites):
    class Local(SchedulerPolicy):
        def __init__(self, options):
            pass

    config = resolve(overrides={"scheduler": Local})

    assert type(config.build("scheduler")) is Local
    with pytest.raises(ConfigError) as caught:
        config.to_json()
    assert str(caught.value) == (
        "scheduler 'local' cannot be sent to another process\n"
        f"  its class {__name__}:test_a_local_class_cannot_be_sent_elsewhere.<locals>.Local "
        "cannot be imported there\n"
        "  put it into a file and name that: --plugin FILE.py"
    )


def test_a_config_travels_as_json(sites):
    sites.add("good")
    config = resolve(
        flags={"scheduler": "steady", "scheduler.ageing-s": "5", "api-key": ["a"]},
        overrides={"max_step_ms": None, "model": "smollm2"},
    )

    again = ResolvedConfig.from_json(config.to_json())

    assert again == config
    assert again.build("scheduler").options.ageing_s == 5.0


def test_another_process_builds_from_it_without_discovery(sites, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from octavo.hookspecs import OctavoSpecs\n"
        "from octavo.interfaces.scheduler import SchedulerPolicy\n"
        "from octavo.plugin.component import Component\n"
        "from octavo.plugin.options import ComponentOptions\n"
        "class Options(ComponentOptions):\n"
        "    speed: int = 1\n"
        "class Mine(SchedulerPolicy):\n"
        "    def __init__(self, options): self.options = options\n"
        "class Plugin(OctavoSpecs):\n"
        "    def octavo_schedulers(self):\n"
        "        return [Component(name='mine', target=Mine, options=Options)]\n"
    )
    config = resolve(flags={"plugin": [str(file)], "scheduler": "mine", "scheduler.speed": "4"})
    code = (
        "import sys\n"
        "from octavo.config.resolved import ResolvedConfig\n"
        "config = ResolvedConfig.from_json(sys.stdin.read())\n"
        "policy = config.build('scheduler')\n"
        "print(type(policy).__name__, policy.options.speed)\n"
        "print('octavo_plugins' in sys.modules, 'torch' in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=config.to_json(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "Mine 4\nFalse False\n"


def test_asking_for_a_component_that_is_not_in_use_names_those_that_are(sites):
    config = resolve()

    assert config.component("weights", "gguf").name == "gguf"
    with pytest.raises(UnknownComponentError) as caught:
        config.component("weights", "ggfu", "model.bin")
    assert str(caught.value) == (
        "unknown weights 'ggfu' (model.bin)\n"
        "  did you mean 'gguf'?\n"
        "  in use: dummy, gguf, safetensors"
    )
