"""From random weights to the table, with octavo and transformers themselves."""

from __future__ import annotations

import importlib.util
import json

import pytest

from checkpoints import GgufFile, byte_vocabulary
from octavo import LLM, SamplingParams
from octavo.errors import ConfigError
from octavo_peers import float_copy
from octavo_peers.command import main
from octavo_peers.random_gguf import SHAPES, write_random_gguf

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A GGUF file that has a tokenizer, and nothing else."""
    metadata = {
        "general.architecture": "llama",
        **byte_vocabulary("<s>", "</s>"),
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    return GgufFile(metadata).write(tmp_path_factory.mktemp("tokenizer") / "tokenizer.gguf")


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    assert main(["random-gguf", str(path), "--shape", "tiny", "--tokenizer", str(tokenizer)]) == 0
    return path


def test_a_random_model_is_a_llama_with_the_tokenizer(model, tokenizer):
    reader, source = gguf.GGUFReader(model), gguf.GGUFReader(tokenizer)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}

    for name, field in source.fields.items():
        if name.startswith("tokenizer."):
            assert reader.fields[name].contents() == field.contents()
            assert reader.fields[name].types == field.types
    assert types.pop("token_embd.weight") == "Q8_0"
    assert types["output_norm.weight"] == types["blk.0.attn_norm.weight"] == "F32"
    assert types["blk.1.ffn_down.weight"] == types["blk.0.attn_q.weight"] == "Q4_0"
    assert len(types) == 1 + 2 * 9
    assert reader.fields["llama.vocab_size"].contents() == 259


def test_octavo_runs_a_random_model_of_another_type(tokenizer, tmp_path):
    path = tmp_path / "eight.gguf"
    write_random_gguf(path, "tiny", "Q8_0", tokenizer)
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    with LLM(str(path), ops="torch", num_gpu_blocks_override=16) as llm:
        output = llm.generate([{"prompt_token_ids": [65, 66]}], params, use_tqdm=False)[0]

    assert len(output.outputs[0].token_ids) == 4


def test_the_same_arguments_give_the_same_file(model, tokenizer, tmp_path):
    write_random_gguf(tmp_path / "again.gguf", "tiny", "Q4_0", tokenizer)

    assert (tmp_path / "again.gguf").read_bytes() == model.read_bytes()


@pytest.mark.parametrize(("shape", "billions"), [("llama-1b", 1.07), ("tinyllama-1b", 1.07)])
def test_large_shapes_are_of_the_size_they_are_called(shape, billions):
    """With the 49,152 ids of the demo model."""
    one = SHAPES[shape]
    layer = sum(rows * columns for rows, columns in one.matrices().values())

    assert (one.num_layers * layer + 49_152 * one.width) / 1e9 == pytest.approx(billions, abs=0.02)
    assert all(columns % 32 == 0 for _, columns in one.matrices().values())


def test_unknown_shapes_and_types_are_named(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match=r"unknown shape 'lama-1b' \(--shape\)\n.*'llama-1b'"):
        write_random_gguf(tmp_path / "x", "lama-1b", "Q4_0", tokenizer)
    with pytest.raises(ConfigError, match=r"unknown type 'Q9' \(--type\)"):
        write_random_gguf(tmp_path / "x", "tiny", "Q9", tokenizer)
    without = GgufFile({"general.architecture": "llama"}).write(tmp_path / "without.gguf")
    with pytest.raises(ConfigError, match="has no tokenizer"):
        write_random_gguf(tmp_path / "x", "tiny", "Q4_0", without)


def test_what_transformers_lacks_is_named(model, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "accelerate" else found(name)
    )

    with pytest.raises(ConfigError, match=r"not installed: accelerate\n.*pip install accelerate"):
        float_copy.write_float_copy(model, tmp_path / "float")


def test_engines_with_the_same_weights_agree_and_are_compared(model, tmp_path, capsys):
    folder = tmp_path / "float"
    assert main(["float-copy", str(model), str(folder)]) == 0
    words = [
        *("compare", str(model), "--engines", "transformers", "--json"),
        *("--model-of", f"transformers={folder}", "--octavo-args", "ops=torch", "attention=torch"),
        *("--concurrency", "1,3", "--prompt-tokens", "20", "--output-tokens", "4"),
        *("--prefix-tokens", "32", "--rounds", "1", "--min-s", "0.01", "--max-id", "250"),
        *("--threads", "1"),
    ]
    capsys.readouterr()
    assert main(words) == 0
    kept = capsys.readouterr().out
    rows = json.loads(kept)["summary"]

    assert [(row["engine"], row["phase"], row["num_seqs"]) for row in rows[:4]] == [
        ("octavo", "prefill", 1),
        ("transformers", "prefill", 1),
        ("octavo", "decode", 1),
        ("transformers", "decode", 1),
    ]
    (tmp_path / "kept.json").write_text(kept)
    assert main(["report", str(tmp_path / "kept.json")]) == 0
    table = capsys.readouterr().out
    assert "32 shared + 20 tokens in, 4 out" in table
    same = next(line for line in table.splitlines() if line.startswith("same"))
    assert same.split() == ["same", "-", "100%"]
