"""What `octavo plugins new` writes installs, is listed, keeps its promises and runs: every kind."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

from installed import TINY, WORDS, install, make_tiny_model, octavo, serving
from octavo.plugin.kinds import KINDS
from octavo.scaffold.writing import files_of, new_names
from octavo_plugins.weights.dummy import DummyFormat
from source_tree import ROOT

#: their kit tests make samples, which are folders as none stands anywhere else
OWN_SAMPLES = {"weights", "source", "tokenizer"}
QUICK = ("scheduler", "eviction", "sampler-stage")
SLOW = tuple(kind for kind in KINDS if kind not in QUICK)
full = pytest.mark.full
EVERY = [*QUICK, *(pytest.param(kind, marks=full) for kind in SLOW)]
TORCH = ("--ops", "torch", "--attention", "torch")
SIMULATE = ("simulate", "--executor.fixed-ms", "20", "--num-prompts", "4", *TORCH)
LLM_SCRIPT = """
import sys
from octavo import LLM, SamplingParams
with LLM(sys.argv[1], load_format="dummy", ops="torch", attention="torch", max_num_seqs=2) as llm:
    asked = SamplingParams(max_tokens=4, ignore_eos=True, extra_args={"new_stage_strength": 1.0})
    print(len(llm.generate("w1 w2", asked, use_tqdm=False)[0].outputs[0].token_ids))
"""


def name_of(kind: str) -> str:
    return {"sampler-stage": "new-stage"}.get(kind, f"new-{kind}")


class Machine:
    """Where plugins of some kinds were written and then installed."""

    def __init__(self, folder: Path, kinds: tuple[str, ...]) -> None:
        for kind in kinds:
            words = ["plugins", "new", kind, name_of(kind), "--into", str(folder / "written")]
            done = octavo(words, {})
            assert done.returncode == 0, done.stderr
        self.folder = folder
        self.projects = {kind: folder / "written" / f"octavo-{name_of(kind)}" for kind in kinds}
        self.environment = install(folder / "site", *self.projects.values())

    def run(self, *words: str) -> str:
        """Run `octavo`, which must go well; return what it prints."""
        done = octavo([*words], self.environment)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def model(self, name: str) -> Path:
        """Return a tiny model of that name."""
        (self.folder / "models" / name).mkdir(parents=True, exist_ok=True)
        return make_tiny_model(self.folder / "models" / name)


@pytest.fixture(scope="module")
def quick_machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def full_machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("full"), SLOW)


@pytest.fixture
def machine(request, kind) -> Machine:
    """The machine that has the kind."""
    return request.getfixturevalue("quick_machine" if kind in QUICK else "full_machine")


@pytest.mark.parametrize("kind", EVERY)
def test_it_is_listed_without_a_problem(machine, kind):
    listed = json.loads(machine.run("plugins", "list", kind, "--json"))

    (component,) = [one for one in listed["components"] if one["name"] == name_of(kind)]
    assert component["provider"] == f"octavo-{name_of(kind)} 0.1.0"
    assert component["problems"] == []
    assert {one["state"] for one in listed["plugins"]} == {"active"}


def sample_of(kind: str, folder: Path) -> list[str]:
    """What `octavo plugins check` needs beside the component."""
    if kind == "architecture":
        config = files_of(new_names(kind, name_of(kind)))["tests/config.json"]
        (folder / "config.json").write_text(config)
        return ["--sample", str(folder / "config.json")]
    if kind == "adapter":
        noise = np.random.default_rng(0)
        factors = {"a": noise.normal(size=(2, 6)), "b": noise.normal(size=(4, 2))}
        np.savez(
            folder / "adapter.npz", **{f"m.weight.{name}": one for name, one in factors.items()}
        )
        return ["--sample", json.dumps({"good": str(folder)})]
    return []


@pytest.mark.parametrize(
    "kind", [one for one in EVERY if getattr(one, "values", (one,))[0] not in OWN_SAMPLES]
)
def test_it_keeps_the_promises_of_its_kind(machine, kind, tmp_path):
    words = ["plugins", "check", f"{kind}:{name_of(kind)}", "--json", *sample_of(kind, tmp_path)]
    report = json.loads(machine.run(*map(str, words)))

    assert report["passed"]
    assert report["invariants"]


@pytest.mark.parametrize("kind", EVERY)
def test_its_own_tests_pass(machine, kind):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    # its kit test is what `octavo plugins check` does, but for a third party's pytest
    is_tried = kind == "eviction" or kind in OWN_SAMPLES
    command += [] if is_tried else ["--deselect", new_names(kind, name_of(kind)).kit_test]
    where = machine.projects[kind]

    done = subprocess.run(
        command, cwd=where, env=machine.environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", EVERY)
def test_it_is_formatted_and_linted(machine, kind):
    ruff, where = Path(sys.executable).with_name("ruff"), machine.projects[kind]
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    in_tests = 'lint.per-file-ignores={"**/tests/*"=["S101","PLR2004","INP001","D"]}'
    rules = ["--select", "ALL", "--ignore", ",".join(ours["ignore"]), "--config", in_tests]
    rules += ["--config", 'lint.pydocstyle.convention="google"']

    for command in (["format", "--check"], ["check", *rules]):
        done = subprocess.run(
            [ruff, *command, "--no-cache", "."],
            cwd=where,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", [QUICK, SLOW])
def test_its_types_are_right(request, kinds):
    machine = request.getfixturevalue("quick_machine" if kinds is QUICK else "full_machine")

    for project in machine.projects.values():
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "src", "tests"],
            cwd=project,
            env={**machine.environment, "MYPYPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{project.name}\n{done.stdout}"


def test_a_scheduler_and_an_eviction_order_run(quick_machine):
    out = quick_machine.run(
        *(*SIMULATE, "--json", "--scheduler", "new-scheduler", "--eviction", "new-eviction")
    )

    assert json.loads(out)


def test_a_request_asks_for_a_sampler_stage(quick_machine):
    command = [sys.executable, "-c", LLM_SCRIPT, quick_machine.model("tiny")]

    done = subprocess.run(
        command, env=quick_machine.environment, capture_output=True, text=True, check=False
    )

    assert done.stdout == "4\n", done.stderr


def complete(machine: Machine, model: object, *words: str) -> str:
    """Continue a prompt by four tokens."""
    return machine.run(
        *("complete", str(model), "--prompt", "w1 w2", "--max-tokens", "4", "--threads", "1"),
        *words,
    )


@full
@pytest.mark.parametrize(
    "words",
    [
        ("--platform", "new-platform"),
        ("--ops", "new-ops", "--attention", "torch"),
        (*("--ops", "torch", "--attention", "new-attention"), "--attention.max-window", "2"),
        ("--executor", "new-executor", "--executor.slow-ms", "0"),
        ("--proposer", "new-proposer"),
        ("--allocator", "new-allocator"),
    ],
    ids=lambda words: words[0] + "-" + words[1],
)
def test_what_runs_a_model_runs(full_machine, words):
    others = () if "--ops" in words else TORCH

    complete(full_machine, full_machine.model("tiny"), "--load-format", "dummy", *words, *others)


@full
def test_a_source_leads_to_a_model(full_machine):
    shelf = full_machine.model("tiny").parent
    words = ("--source.new-source.shelf", str(shelf), "--load-format", "dummy")

    complete(full_machine, "new-source:tiny", *words, *TORCH)


@full
def test_a_tokenizer_is_found_by_its_file(full_machine):
    folder = full_machine.model("worded")
    (folder / "tokenizer.json").unlink()
    (folder / "words.txt").write_text("\n".join(WORDS))

    complete(full_machine, folder, "--load-format", "dummy", *TORCH)


@full
def test_weights_are_found_by_their_file(full_machine):
    folder = full_machine.model("archived")
    np.savez(folder / "weights.npz", **arrays_of(folder))

    complete(full_machine, folder, *TORCH)


@full
def test_an_architecture_is_found_by_its_name(full_machine):
    folder = full_machine.model("renamed")
    save_file(arrays_of(folder), folder / "model.safetensors")
    names = {"dim": "hidden_size", "n_layers": "num_hidden_layers"}
    config = {**TINY, "architectures": ["NewArchitectureForCausalLM"]}
    config |= {new: config.pop(old) for new, old in names.items()}
    (folder / "config.json").write_text(json.dumps(config))

    complete(full_machine, folder, *TORCH)


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """Return made-up weights for the config of a folder."""
    checkpoint = DummyFormat().open(folder)
    blocks = [checkpoint.blocks(name) for name in checkpoint.names()]
    assert {one.block_type for one in blocks} == {"F32"}
    return {one.name: one.data.view(np.float32).reshape(one.shape) for one in blocks}


@full
def test_a_dialect_answers(full_machine, tmp_path):
    words = [str(full_machine.model("tiny")), "--load-format", "dummy", *TORCH]
    words += ["--served-model-name", "tiny"]

    with serving(words, full_machine.environment, tmp_path / "log") as address:
        answer = httpx.get(f"{address}/new-dialect", timeout=30)

    assert answer.json() == {"tiny": 128}


@full
@pytest.mark.parametrize("kind", ["grammar", "adapter"])
def test_what_only_single_requests_ask_for_can_be_chosen(full_machine, kind):
    out = full_machine.run("explain", "smollm2", f"--{kind}", name_of(kind), *TORCH)

    assert f"{kind:14} {name_of(kind)}" in out
