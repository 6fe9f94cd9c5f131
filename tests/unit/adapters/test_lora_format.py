"""PEFT folders: what is read, and all that is refused, with the file, the tensor and the reason."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.errors import AdapterError
from octavo_plugins.adapters.lora import LoraFormat
from peft_folders import CONFIG, WEIGHTS, Lora, write_adapter

MODULE = "model.layers.0.self_attn.q_proj"
KEY = f"base_model.model.{MODULE}"
MODEL = {
    f"{MODULE}.weight": torch.zeros(12, 8),
    "model.layers.0.mlp.down_proj.weight": torch.zeros(8, 20),
    "model.layers.1.self_attn.q_proj.weight": torch.zeros(12, 8),
}


def write(tmp_path, **settings):
    return write_adapter(tmp_path / "adapter", MODEL, Lora(**settings))


def error_of(folder):
    with pytest.raises(AdapterError) as caught:
        LoraFormat().read(folder)
    return caught.value


def change_config(folder, **fields):
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_tensors(folder, change):
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def test_factors_by_the_tensor_that_each_changes(tmp_path):
    folder = write(tmp_path, rank=4, alpha=6)
    weights = LoraFormat().read(folder)
    assert set(weights.deltas) == set(MODEL)
    stored = load_file(folder / WEIGHTS)
    delta = weights.deltas[f"{MODULE}.weight"]
    assert torch.equal(torch.from_numpy(delta.a), stored[f"{KEY}.lora_A.weight"])
    assert torch.equal(torch.from_numpy(delta.b), stored[f"{KEY}.lora_B.weight"])
    assert delta.factor == 1.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_type_is_widened_exactly(tmp_path, dtype):
    folder = write(tmp_path, dtype=dtype)
    stored = load_file(folder / WEIGHTS)[f"{KEY}.lora_A.weight"]
    assert stored.dtype == dtype
    read = LoraFormat().read(folder).deltas[f"{MODULE}.weight"].a
    assert torch.equal(torch.from_numpy(read), stored.float())


def test_names_without_the_prefix_are_read_as_well(tmp_path):
    folder = write(tmp_path)

    def strip(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("base_model.model.")] = tensors.pop(name)

    change_tensors(folder, strip)
    assert set(LoraFormat().read(folder).deltas) == set(MODEL)


@pytest.mark.parametrize(
    ("is_stabilised", "patterns", "factor"),
    [
        (False, {}, 32 / 16),
        (True, {}, 32 / 4),
        (False, {"q_proj": 5}, 5 / 16),
        (True, {"q_proj": 5}, 5 / 4),
        (False, {"model.layers.0.self_attn.q_proj": 5}, 5 / 16),
        (False, {"k_proj": 5, "proj": 7}, 32 / 16),  # a part of a name's last part is no match
        (False, {"layers.1.self_attn.q_proj": 5}, 32 / 16),
        (False, {r"model\.layers\.\d\.self_attn\.q_proj": 5}, 5 / 16),
        (False, {"self_attn.q_proj": 6, "q_proj": 5}, 6 / 16),  # the first that matches
    ],
)
def test_B124_factors(tmp_path, is_stabilised, patterns, factor):
    folder = write(tmp_path, rank=16, alpha=32, is_rank_stabilised=is_stabilised)
    change_config(folder, alpha_pattern=patterns)
    deltas = LoraFormat().read(folder).deltas
    assert math.isclose(deltas[f"{MODULE}.weight"].factor, factor)


def test_B124_ranks_of_patterns_count(tmp_path):
    folder = write(tmp_path, rank=4, alpha=6, ranks={"q_proj": 9}, is_rank_stabilised=True)
    deltas = LoraFormat().read(folder).deltas
    assert deltas[f"{MODULE}.weight"].factor == 2
    assert deltas["model.layers.0.mlp.down_proj.weight"].factor == 3


def test_the_digest_is_of_both_files(tmp_path):
    folder = write(tmp_path)
    digest = LoraFormat().read(folder).digest
    assert len(digest) == hashlib.sha256().digest_size * 2
    assert LoraFormat().read(folder).digest == digest
    change_config(folder, lora_alpha=9)
    assert LoraFormat().read(folder).digest != digest
    write(tmp_path)
    assert LoraFormat().read(folder).digest == digest
    write(tmp_path, seed=1)
    assert LoraFormat().read(folder).digest != digest


def test_what_was_read_does_not_change_with_the_file(tmp_path):
    folder = write(tmp_path)
    delta = LoraFormat().read(folder).deltas[f"{MODULE}.weight"]
    before = delta.a.copy()
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(10)
    assert (delta.a == before).all()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("use_dora", True, "DoRA also scales each output of the weights"),
        ("bias", "lora_only", "biases are not supported, only 'none' is"),
        ("bias", "all", "biases are not supported, only 'none' is"),
        ("lora_bias", True, "it brings biases"),
        ("modules_to_save", ["lm_head"], "it brings whole modules of its own"),
        ("trainable_token_indices", [1, 2], "it changes embeddings of tokens"),
        ("layer_replication", [[0, 1]], "it repeats layers of the model"),
        ("target_parameters", ["experts"], "it changes parameters that are no linear layers"),
        ("alora_invocation_tokens", [1], "it is active after certain tokens only (aLoRA)"),
        ("use_qalora", True, "QALoRA pools the inputs of its layers"),
        ("kasa_config", {"x": 1}, "a field that is not known here, and may matter"),
        ("of_next_year", 1, "a field that is not known here, and may matter"),
    ],
)
def test_B124_what_cannot_be_obeyed_is_refused_by_name(tmp_path, field, value, reason):
    folder = write(tmp_path, config={field: value})
    error = error_of(folder)
    assert error.headline == f"this adapter cannot be served ('{folder / CONFIG}')"
    assert error.facts == (f"{field}: {value!r}: {reason}",)


@pytest.mark.parametrize("value", ["pissa", "pissa_niter_4", "olora", "loftq", "corda", "lora_ga"])
def test_inits_that_change_the_model_are_refused(tmp_path, value):
    error = error_of(write(tmp_path, config={"init_lora_weights": value}))
    (fact,) = error.facts
    assert fact.startswith(f"init_lora_weights: {value!r} changes the model's own weights; ")


@pytest.mark.parametrize("value", [True, False, "gaussian", "eva", "orthogonal"])
def test_other_inits_mean_nothing_here(tmp_path, value):
    LoraFormat().read(write(tmp_path, config={"init_lora_weights": value}))


def test_fields_that_ask_for_nothing_are_no_matter(tmp_path):
    config = {"of_next_year": None, "another": False, "third": {}, "modules_to_save": []}
    LoraFormat().read(write(tmp_path, config=config))


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [
        ("peft_type", "LOHA", "peft_type: 'LOHA' is not supported, only 'LORA' is"),
        ("peft_type", None, "peft_type: None is not supported, only 'LORA' is"),
        ("r", 0, "r: 0 is no whole number above 0"),
        ("r", "4", "r: '4' is no whole number above 0"),
        ("r", True, "r: True is no whole number above 0"),
        ("lora_alpha", "8", "lora_alpha: '8' is no finite number"),
        ("lora_alpha", math.nan, "lora_alpha: nan is no finite number"),
        ("rank_pattern", [1], "rank_pattern: must be an object, not a list"),
        ("rank_pattern", {"q": 1.5}, "rank_pattern: 'q': 1.5 is no valid number"),
        ("alpha_pattern", {"q": None}, "alpha_pattern: 'q': None is no valid number"),
        (
            "alpha_pattern",
            {"(a+)+": 1},
            "alpha_pattern: '(a+)+' is no pattern that can be matched safely",
        ),
        (
            "alpha_pattern",
            {"q(": 1},
            "alpha_pattern: 'q(' is no pattern that can be matched safely",
        ),
    ],
)
def test_values_that_are_wrong(tmp_path, field, value, fact):
    assert error_of(write(tmp_path, config={field: value})).facts == (fact,)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe{}", b"[1]"])
def test_a_config_that_is_no_json_object(tmp_path, content):
    folder = write(tmp_path)
    (folder / CONFIG).write_bytes(content)
    assert f"'{folder / CONFIG}'" in error_of(folder).headline


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "base_model.model.lm_head.weight",
            "a whole weight (modules_to_save, or a larger vocabulary) is not supported",
        ),
        (
            "base_model.model.model.embed_tokens.weight",
            "a whole weight (modules_to_save, or a larger vocabulary) is not supported",
        ),
        (
            "base_model.model.model.embed_tokens.lora_embedding_A",
            "adapters of embeddings are not supported",
        ),
        (f"{KEY}.lora_magnitude_vector", "DoRA is not supported"),
        (f"{KEY}.lora_B.bias", "biases are not supported"),
        (f"{KEY}.base_layer.bias", "biases are not supported"),
        (f"{KEY}.lora_C.weight", "it is no factor of a linear layer"),
    ],
)
def test_B126_tensors_that_are_no_factors_are_refused(tmp_path, name, reason):
    folder = write(tmp_path, tensors={name: torch.zeros(8, 4)})
    error = error_of(folder)
    assert error.headline == f"this adapter cannot be served ('{folder / WEIGHTS}')"
    assert error.facts == (f"{name}: {reason}",)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (
            lambda tensors: tensors.pop(f"{KEY}.lora_B.weight"),
            f"{MODULE}: lora_B is missing",
        ),
        (
            lambda tensors: tensors.update({f"{KEY}.lora_B.weight": torch.zeros(12, 3)}),
            f"{MODULE}: lora_A has rank 4, and lora_B has 3",
        ),
        (
            lambda tensors: tensors.update(
                {
                    f"{KEY}.lora_A.weight": torch.zeros(2, 8),
                    f"{KEY}.lora_B.weight": torch.zeros(12, 2),
                }
            ),
            f"{MODULE}: is of rank 2; adapter_config.json says 4",
        ),
        (
            lambda tensors: tensors[f"{KEY}.lora_A.weight"].fill_(math.nan),
            f"{KEY}.lora_A.weight: holds NaN or infinity",
        ),
        (
            lambda tensors: tensors[f"{KEY}.lora_B.weight"].fill_(-math.inf),
            f"{KEY}.lora_B.weight: holds NaN or infinity",
        ),
        (
            lambda tensors: tensors.update({f"{KEY}.lora_A.weight": torch.zeros(4, 8, 1)}),
            f"{KEY}.lora_A.weight: is [4, 8, 1], not a matrix",
        ),
        (
            lambda tensors: tensors.update({f"{KEY}.lora_A.weight": torch.zeros(0, 8)}),
            f"{KEY}.lora_A.weight: is [0, 8], not a matrix",
        ),
        (
            lambda tensors: tensors.update(
                {f"{KEY}.lora_A.weight": torch.zeros(4, 8, dtype=torch.int8)}
            ),
            f"{KEY}.lora_A.weight: is of type I8; supported are F32, F16, BF16",
        ),
        (lambda tensors: tensors.clear(), "it holds no tensors"),
    ],
)
def test_tensors_that_are_wrong(tmp_path, change, fact):
    folder = write(tmp_path)
    change_tensors(folder, change)
    assert error_of(folder).facts[0] == fact


def test_many_faults_are_named_and_counted(tmp_path):
    tensors = {f"{letter}.bias": torch.zeros(1) for letter in "abcdefghijklmnopqrst"}
    facts = error_of(write(tmp_path, tensors=tensors)).facts
    assert facts[0] == "a.bias: biases are not supported"
    assert facts[-1] == "and 12 more faults"


def test_the_same_fault_of_every_layer_is_one_line(tmp_path):
    tensors = {f"l.{i}.{name}.bias": torch.zeros(1) for i in range(2, 22) for name in "ab"}
    assert error_of(write(tmp_path, tensors=tensors)).facts == (
        "l.2.a.bias (and 19 like it): biases are not supported",
        "l.2.b.bias (and 19 like it): biases are not supported",
    )


class Trap:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was run')",)


def test_pickles_are_not_opened(tmp_path):
    folder = write(tmp_path)
    (folder / WEIGHTS).unlink()
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(Trap()))
    assert str(error_of(folder)) == "\n".join(
        [
            f"'{folder}' holds its weights as a pickle, which can run code",
            "  file: adapter_model.bin",
            "  save it as adapter_model.safetensors: peft's save_pretrained does so by default",
        ]
    )


def test_files_that_are_cut_short_or_not_there(tmp_path):
    folder = write(tmp_path)
    content = (folder / WEIGHTS).read_bytes()
    for length in (0, 7, 100, len(content) - 1):
        (folder / WEIGHTS).write_bytes(content[:length])
        assert f"'{folder / WEIGHTS}' is no valid safetensors file" in error_of(folder).headline
    (folder / WEIGHTS).unlink()
    assert error_of(folder).headline == f"'{folder}' has no {WEIGHTS}"


def test_what_is_an_adapter_and_what_is_not(tmp_path):
    folder = write(tmp_path)
    assert LoraFormat().why_not(folder) == []
    assert LoraFormat().why_not(tmp_path) == [f"'{tmp_path}' has no {CONFIG}"]
    assert LoraFormat().why_not(folder / CONFIG) == [f"'{folder / CONFIG}' is no folder"]


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_only_files_are_opened(tmp_path, name):
    folder = write(tmp_path)
    (folder / name).unlink()
    os.mkfifo(folder / name)  # whoever opens it waits for a writer
    assert str(error_of(folder)) == (f"cannot read '{folder / name}'\n  it is a FIFO, not a file")
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert "it is a device, not a file" in str(error_of(folder))


def test_files_too_large_for_an_adapter_are_not_read(tmp_path):
    folder = write(tmp_path)
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(1 << 42)
    assert f"it has {1 << 42} bytes, and may have" in str(error_of(folder))
    with (folder / CONFIG).open("r+b") as file:
        file.truncate(1 << 21)
    assert f"it has {1 << 21} bytes, and may have {1 << 20} at most" in str(error_of(folder))


def test_a_check_reads_no_weights(tmp_path):
    folder = write(tmp_path)
    (folder / WEIGHTS).write_bytes(b"none")
    LoraFormat().check(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(AdapterError, match=f"has no {WEIGHTS}"):
        LoraFormat().check(folder)
    change_config(folder, use_dora=True)
    with pytest.raises(AdapterError, match="use_dora: True: DoRA"):
        LoraFormat().check(folder)
