"""The reader of GGUF headers: what it reads, and how it refuses what is damaged."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from checkpoints import GgufFile, GgufTensor, Typed, f32
from octavo.errors import ModelLoadError
from octavo_plugins.formats.gguf_header import is_gguf, read_header

if TYPE_CHECKING:
    from pathlib import Path


def good_file() -> GgufFile:
    return GgufFile(
        {
            "general.architecture": "llama",
            "llama.block_count": 2,
            "tokenizer.ggml.tokens": ["a", "Ġb", ""],
            "tokenizer.ggml.scores": [0.5, -1.0, 0.0],
            "a.flag": True,
            "a.big": Typed("uint64", 2**40),
            "a.precise": Typed("float64", 0.1),
            "a.flags": [True, False],
        },
        {
            "first": f32(np.arange(6).reshape(2, 3)),
            "second": GgufTensor((2, 32), np.ones((2, 34), np.uint8), "Q8_0"),
        },
    )


def test_reads_metadata_and_tensors(tmp_path: Path) -> None:
    header = read_header(good_file().write(tmp_path / "a.gguf"))

    assert header.text("general.architecture", None) == "llama"
    assert header.integer("llama.block_count", 0) == 2
    assert header.integer("a.big", 0) == 2**40
    assert header.number("a.precise", 0.0) == 0.1
    assert header.flag("a.flag", default=False) is True
    assert header.metadata["a.flags"].tolist() == [True, False]
    assert header.metadata["tokenizer.ggml.scores"].tolist() == [0.5, -1.0, 0.0]
    assert header.strings("tokenizer.ggml.tokens") == ["a", "Ġb", ""]
    assert header.integer("not.there", 7) == 7
    first, second = header.tensors.values()
    assert (first.shape, first.type_name, first.row_bytes) == ((2, 3), "F32", 12)
    assert header.rows(first).view(np.float32).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (second.shape, second.type_name, second.num_bytes) == ((2, 32), "Q8_0", 68)
    assert header.rows(second).shape == (2, 34)


def test_rows_are_views_of_the_file_and_outlive_the_header(tmp_path: Path) -> None:
    path = good_file().write(tmp_path / "a.gguf")
    header = read_header(path)
    rows = header.rows(header.tensors["first"])
    assert np.shares_memory(rows, header.data)
    rows[0, 0] = 255  # a private copy of the page: the file stays as it is
    del header
    assert rows[0, 0] == 255
    assert path.read_bytes() == good_file().to_bytes()


def test_a_value_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    header = read_header(good_file().write(tmp_path / "a.gguf"))
    with pytest.raises(ModelLoadError, match=r"'general.architecture' must be a whole number"):
        header.integer("general.architecture", 0)
    with pytest.raises(ModelLoadError, match=r"'a.flag' must be a whole number"):
        header.integer("a.flag", 0)
    with pytest.raises(ModelLoadError, match=r"'llama.block_count' must be a bool"):
        header.flag("llama.block_count", default=False)


def test_fingerprints_depend_on_the_prefix_alone(tmp_path: Path) -> None:
    file = good_file()
    before = read_header(file.write(tmp_path / "a.gguf")).fingerprint("tokenizer.")
    file.metadata["general.architecture"] = "qwen2"
    same = read_header(file.write(tmp_path / "b.gguf")).fingerprint("tokenizer.")
    file.metadata["tokenizer.ggml.tokens"] = ["a", "Ġb", "c"]
    other = read_header(file.write(tmp_path / "c.gguf")).fingerprint("tokenizer.")
    assert before == same != other


def tensors_with(**changes: object) -> dict[str, GgufTensor]:
    file = good_file()
    return {**file.tensors, "second": replace(file.tensors["second"], **changes)}


DAMAGED = {
    "magic": (GgufFile(magic=b"PK\x03\x04"), "it is no GGUF file", "starts with b'PK"),
    "version 1": (GgufFile(version=1), "its version is 1", "supported are 2 and 3"),
    "big-endian": (GgufFile(version=3 << 24), "it is big-endian", "only little-endian"),
    "tensor count": (GgufFile(num_tensors=2**60), f"claims {2**60} tensors", "do not fit"),
    "value count": (GgufFile(num_values=2**62), f"claims {2**62} metadata values", "do not fit"),
    "alignment 0": (GgufFile({"general.alignment": 0}), "'general.alignment' is 0", "power of two"),
    "alignment 24": (GgufFile({"general.alignment": 24}), "'general.alignment' is 24", "power"),
    "alignment text": (GgufFile({"general.alignment": "x"}), "'general.alignment' is x", "power"),
    "empty key": (GgufFile({"": 1}), "metadata value 0 has an empty name", ""),
    "tensor type": (
        GgufFile(tensors=tensors_with(type_number=77)),
        "tensor 'second' has the unknown type 77",
        "8 (Q8_0)",
    ),
    "odd offset": (
        GgufFile(tensors=tensors_with(offset=33)),
        "tensor 'second' lies at offset 33",
        "multiples of 32",
    ),
    "far offset": (
        GgufFile(tensors=tensors_with(offset=2**50)),
        "tensor 'second' ends outside the file",
        "the file has",
    ),
    "overlap": (
        GgufFile(tensors=tensors_with(offset=0)),
        "tensors 'first' and 'second' overlap",
        "",
    ),
    "huge shape": (
        GgufFile(tensors=tensors_with(shape=(2**40, 2**40))),
        "tensor 'second' ends outside the file",
        "Q8_0",
    ),
    "half a group": (
        GgufFile(tensors=tensors_with(shape=(2, 33))),
        "tensor 'second' has the shape [2, 33]",
        "groups of 32",
    ),
    "zero columns": (
        GgufFile(tensors=tensors_with(shape=(2, 0))),
        "tensor 'second' has the shape [2, 0]",
        "may be 0",
    ),
    "no dimensions": (GgufFile(tensors=tensors_with(shape=())), "has 0 dimensions", "not 1 to 4"),
    "five dimensions": (
        GgufFile(tensors=tensors_with(shape=(1, 1, 1, 2, 32))),
        "has 5 dimensions",
        "not 1 to 4",
    ),
    "no name": (GgufFile(tensors={"": f32(np.ones(3))}), "tensor 0 has an empty name", ""),
    "long name": (GgufFile(tensors={"x" * 999: f32(np.ones(3))}), "has 999 bytes", ""),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, case: str) -> None:
    file, what, fact = DAMAGED[case]
    path = file.write(tmp_path / "bad.gguf")
    with pytest.raises(ModelLoadError) as caught:
        read_header(path)
    message = str(caught.value)
    assert message.startswith(f"GGUF file '{path}' cannot be read: ")
    assert what in message
    assert fact in message


def test_the_whole_text_of_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ModelLoadError) as caught:
        read_header(path)
    assert str(caught.value) == (
        f"GGUF file '{path}' cannot be read: it is no GGUF file\n"
        "  it starts with b'PK\\x03\\x04', not with b'GGUF'\n"
        "  at byte 0 of 14"
    )


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    data = good_file().to_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(ModelLoadError):
            read_header(path)


def test_no_flipped_byte_of_the_header_is_worse_than_an_error(tmp_path: Path) -> None:
    data = good_file().to_bytes()
    rng = np.random.default_rng(3)
    path = tmp_path / "flipped.gguf"
    for position in range(len(data) - 200):
        flipped = bytearray(data)
        flipped[position] ^= int(rng.integers(1, 256))
        path.write_bytes(flipped)
        try:
            header = read_header(path)
            header.strings("tokenizer.ggml.tokens")
        except ModelLoadError:
            continue
        for info in header.tensors.values():
            assert header.rows(info).nbytes == info.num_bytes


@pytest.mark.parametrize(
    ("type_number", "count"),
    [(8, 2**23), (8, 2**63), (4, 2**62), (10, 2**61)],
)
def test_an_absurd_array_costs_neither_time_nor_memory(
    tmp_path: Path, type_number: int, count: int
) -> None:
    start = b"GGUF" + np.array([3], "<u4").tobytes() + np.array([0, 1], "<u8").tobytes()
    key = np.array([1], "<u8").tobytes() + b"k" + np.array([9, type_number], "<u4").tobytes()
    path = tmp_path / "absurd.gguf"
    path.write_bytes(start + key + np.array([count], "<u8").tobytes() + bytes(100_000))

    tracemalloc.start()
    start_s = time.perf_counter()
    with pytest.raises(ModelLoadError, match="'k'"):
        read_header(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert time.perf_counter() - start_s < 1.0
    assert peak_bytes < 1_000_000


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    data = GgufFile({"k1": 1, "k2": 2}).to_bytes().replace(b"k2", b"k1")
    path = tmp_path / "twice.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match="metadata 'k1' is there twice"):
        read_header(path)


def test_a_tensor_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    data = good_file().to_bytes().replace(b"second", b"first2")
    data = data.replace(b"\x06\0\0\0\0\0\0\0first2", b"\x05\0\0\0\0\0\0\0first", 1)
    path = tmp_path / "twice.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelLoadError, match="tensor 'first' is there twice"):
        read_header(path)


def test_strings_that_are_not_utf8_are_located(tmp_path: Path) -> None:
    file = GgufFile({"tokens": [b"ok", b"\xff\xfe"], "general.name": b"\xff"})
    path = file.write(tmp_path / "a.gguf")
    with pytest.raises(ModelLoadError, match=r"'general.name' is not UTF-8"):
        read_header(path)
    del file.metadata["general.name"]
    header = read_header(file.write(path))
    with pytest.raises(ModelLoadError, match="key 'tokens', element 1"):
        header.strings("tokens")


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"cannot open .*missing.gguf.*\n.*No such file"):
        read_header(tmp_path / "missing.gguf")
    with pytest.raises(ModelLoadError, match=r"cannot open .*\n.*it is a folder, not a file"):
        read_header(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelLoadError, match="is empty"):
        read_header(tmp_path / "empty.gguf")


def test_is_gguf_looks_at_the_first_bytes(tmp_path: Path) -> None:
    assert is_gguf(GgufFile().write(tmp_path / "named.bin"))
    (tmp_path / "other.gguf").write_bytes(b"GG")
    assert not is_gguf(tmp_path / "other.gguf")
    assert not is_gguf(tmp_path / "missing.gguf")
