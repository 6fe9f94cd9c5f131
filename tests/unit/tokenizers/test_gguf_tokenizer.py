"""Tokenizers from GGUF metadata: ids recorded from llama.cpp, markers, special ids, the cache."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from checkpoints import GgufFile, Typed, byte_vocabulary
from octavo.errors import ModelLoadError
from octavo_plugins.formats.gguf_header import read_header
from octavo_plugins.formats.gguf_vocabulary import read_vocabulary
from octavo_plugins.sources.pypi import PypiSource
from octavo_plugins.tokenizers import gguf
from octavo_plugins.tokenizers.gguf import GgufTokenizer
from octavo_plugins.tokenizers.gguf_builder import build
from octavo_plugins.tokenizers.pretokenizers import PRE_TOKENIZERS

if TYPE_CHECKING:
    from octavo_plugins.tokenizers.fast_tokenizer import FastTokenizer

DATA = Path(__file__).resolve().parents[2] / "data"


def recorded(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


TEXTS = recorded("texts.json")
# llama.cpp has no case classes, and so drops combining marks from these patterns; the models' own
# tokenizer.json keeps them, and so do we
KEEPS_MARKS = ("tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2")
WITH_MARKS = ("नमस्ते दुनिया", "தமிழ்", "e\u0301", "a\u0323\u0307 Z\u0351\u036b\u0343")


@pytest.fixture(autouse=True)
def own_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of made-up vocabularies keep nothing in the user's cache."""
    if "smollm2" not in request.fixturenames:
        folder = request.getfixturevalue("tmp_path") / "cache"
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


@pytest.fixture(scope="module")
def smollm2() -> FastTokenizer:
    return GgufTokenizer().load(PypiSource().resolve("smollm2"))


def load(tmp_path: Path, metadata: dict[str, Any]) -> FastTokenizer:
    return GgufTokenizer().load(GgufFile(metadata).write(tmp_path / "vocabulary.gguf"))


@pytest.mark.parametrize("index", range(len(TEXTS)))
def test_smollm2_ids_and_texts_are_llama_cpps(smollm2: FastTokenizer, index: int) -> None:
    expected = recorded("smollm2_ids.json")
    ids = smollm2.encode(TEXTS[index])
    assert ids == expected["ids"][index]
    assert smollm2.decode(ids, skip_special_tokens=False) == expected["with_special"][index]
    assert smollm2.decode(ids) == expected["without_special"][index]
    joined = b"".join(smollm2.token_bytes(token_id) for token_id in ids)
    assert joined.decode() == expected["with_special"][index] == TEXTS[index]


def test_smollm2_special_and_end_tokens_are_llama_cpps(smollm2: FastTokenizer) -> None:
    expected = recorded("smollm2_ids.json")
    assert smollm2.eos_token_ids == frozenset(expected["end_ids"])
    assert smollm2.special_ids == frozenset(expected["special_ids"])


def test_smollm2_facts(smollm2: FastTokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert (smollm2.bos_token_id, smollm2.eos_token_id) == (1, 2)
    assert smollm2.special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }
    assert smollm2.id_to_token(905) == "Ġworld"
    assert smollm2.token_to_id("Ġworld") == 905
    assert smollm2.token_text(905) == " world"
    assert smollm2.has_exact_bytes
    assert not smollm2.strips_leading_space
    assert smollm2.chat_template is not None
    assert smollm2.chat_template.startswith("{% for message in messages %}")


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_each_pre_tokenizer_cuts_as_llama_cpp_does(tmp_path: Path, name: str) -> None:
    record = recorded("pretokenizers.json")
    group = next(group for group in record["groups"] if name in group["names"])
    metadata = byte_vocabulary(merges=[tuple(merge) for merge in record["merges"]])
    file = GgufFile({**metadata, "tokenizer.ggml.pre": name})
    header = read_header(file.write(tmp_path / "v.gguf"))
    vocabulary = read_vocabulary(header)
    # some learnt tokens look like markers; the record was made without looking for any
    library = build(header, replace(vocabulary, types=np.ones_like(vocabulary.types)))
    for text, ids in zip(TEXTS, group["ids"], strict=True):
        actual = library.encode(text, add_special_tokens=False).ids
        if name in KEEPS_MARKS and text in WITH_MARKS:
            assert len(actual) <= len(ids), text
        else:
            assert actual == ids, text


@pytest.mark.parametrize("adds_space", [True, False])
def test_sentencepiece_ids_are_llama_cpps(tmp_path: Path, adds_space: bool) -> None:
    record = recorded("sentencepiece.json")
    tokens = record["tokens"]
    num_learnt = len(tokens) - 259
    tokenizer = load(
        tmp_path,
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0] * 259 + [-float(rank) for rank in range(num_learnt)],
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * num_learnt,
            "tokenizer.ggml.add_space_prefix": adds_space,
        },
    )
    assert tokenizer.encode("") == [1]  # BOS, by default
    assert tokenizer.strips_leading_space is adds_space
    for text, ids in zip(TEXTS, record[f"ids_{adds_space}".lower()], strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text
        # U+2581 comes back as the space that it stands for; markers end the text, or start one
        if "\u2581" not in text and "<|" not in text:
            assert tokenizer.decode(ids) == text


MARKERS = ("<|user|>", "<|think|>", "<|end|>")


def test_B129_markers_are_one_id_and_settings_are_kept(tmp_path: Path) -> None:
    metadata = byte_vocabulary(*MARKERS, merges=[("<", "|"), ("<|", "u")])
    user, think, end = (metadata["tokenizer.ggml.tokens"].index(marker) for marker in MARKERS)
    metadata["tokenizer.ggml.token_type"][think] = 4  # user-defined: a marker, and visible
    metadata |= {
        "tokenizer.ggml.bos_token_id": user,
        "tokenizer.ggml.eos_token_id": user,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
    }
    tokenizer = load(tmp_path, metadata)

    text = "a<|user|> <|think|><<|end|>"
    ids = tokenizer.encode(text, add_special_tokens=False)

    a, space, less = (tokenizer.token_to_id(token) for token in "aĠ<")
    assert ids == [a, user, space, think, less, end]
    assert tokenizer.encode("a") == [user, a, user]
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == "a <|think|><"
    assert tokenizer.special_ids == {user, end}
    assert tokenizer.eos_token_ids == {user, end}  # "<|end|>" is known by its text
    assert tokenizer.chat_template == "{{ messages }}"


def test_B24_no_spaces_come_between_or_around_added_tokens(tmp_path: Path) -> None:
    metadata = byte_vocabulary("<think>", "</think>", "<s>")
    metadata["tokenizer.ggml.token_type"][-3:-1] = [4, 4]
    tokenizer = load(tmp_path, metadata)
    text = "<think>hm</think>7"
    ids = tokenizer.encode(text)
    for skip_special_tokens in (True, False):
        assert tokenizer.decode(ids, skip_special_tokens) == text
        joined = b"".join(tokenizer.token_bytes(token_id) for token_id in ids)
        assert joined.decode() == text


@pytest.mark.parametrize("bad_id", [10**6, 2**32 - 1, "vocab_size"])
@pytest.mark.parametrize("key", ["eos", "bos"])
def test_B131_special_ids_out_of_range_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, bad_id: int | str
) -> None:
    metadata = byte_vocabulary("<|im_end|>")
    num_tokens = len(metadata["tokenizer.ggml.tokens"])
    value = num_tokens if isinstance(bad_id, str) else bad_id
    metadata |= {f"tokenizer.ggml.{key}_token_id": value, "tokenizer.ggml.add_bos_token": True}
    with caplog.at_level(logging.WARNING):
        tokenizer = load(tmp_path, metadata)
    assert f"'tokenizer.ggml.{key}_token_id' is {value}, outside the vocabulary" in caplog.text
    assert tokenizer.eos_token_id is tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == {num_tokens - 1}
    assert tokenizer.decode(tokenizer.encode("hi")) == "hi"


def test_B131_a_negative_special_id_is_ignored(tmp_path: Path) -> None:
    metadata = byte_vocabulary() | {"tokenizer.ggml.eos_token_id": Typed("int32", -1)}
    assert load(tmp_path, metadata).eos_token_id is None


def test_ids_outside_the_vocabulary_give_no_text(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_vocabulary())
    ids = tokenizer.encode("hi")
    assert tokenizer.decode([-1, *ids, tokenizer.vocab_size, 2**40]) == "hi"
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    assert tokenizer.id_to_token(-1) is None
    assert tokenizer.token_to_id("not there") is None


def test_half_a_character_decodes_to_the_replacement_character(tmp_path: Path) -> None:
    tokenizer = load(tmp_path, byte_vocabulary())
    ids = tokenizer.encode("😀")
    assert len(ids) == 4
    assert tokenizer.decode(ids[:3]) == "\ufffd"
    assert [tokenizer.token_bytes(token_id) for token_id in ids] == [
        bytes([byte]) for byte in "😀".encode()
    ]


@pytest.mark.parametrize(
    ("text", "read_as"), [("a\ud83d", "a\ufffd"), ("\ude00b", "\ufffdb"), ("\ud83d\ude00", "😀")]
)
def test_surrogates_do_not_fail(tmp_path: Path, text: str, read_as: str) -> None:
    tokenizer = load(tmp_path, byte_vocabulary())
    assert tokenizer.decode(tokenizer.encode(text)) == read_as


def test_an_unknown_pre_tokenizer_is_an_error_that_lists_the_known(tmp_path: Path) -> None:
    path = GgufFile(byte_vocabulary() | {"tokenizer.ggml.pre": "smolm"}).write(tmp_path / "v.gguf")
    with pytest.raises(ModelLoadError) as caught:
        GgufTokenizer().load(path)
    assert str(caught.value) == (
        f"unknown pre-tokenizer 'smolm' (GGUF file '{path}', 'tokenizer.ggml.pre')\n"
        "  did you mean 'smollm'?\n"
        f"  known are {', '.join(sorted(PRE_TOKENIZERS))}\n"
        "  give the folder of the model's own tokenizer.json with --tokenizer"
    )


BAD = {
    "no tokenizer": ({"tokenizer.ggml.model": None}, "holds no tokenizer"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, "holds no tokenizer"),
    "model": ({"tokenizer.ggml.model": "bert"}, "unknown tokenizer model 'bert'"),
    "no merges": ({"tokenizer.ggml.merges": None}, "has no 'tokenizer.ggml.merges'"),
    "alien merge": ({"tokenizer.ggml.merges": ["a zz"]}, "merge 0 is 'a zz'"),
    "merge of one": ({"tokenizer.ggml.merges": ["ab"]}, "merge 0 is 'ab'"),
    "few types": ({"tokenizer.ggml.token_type": [1, 1]}, "it is an array of 2"),
    "types as text": ({"tokenizer.ggml.token_type": "1"}, "it is of type str"),
    "no scores": ({"tokenizer.ggml.model": "llama"}, "has no 'tokenizer.ggml.scores'"),
    "eos as text": ({"tokenizer.ggml.eos_token_id": "2"}, "must be a whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_metadata_is_named(tmp_path: Path, case: str) -> None:
    changes, fault = BAD[case]
    metadata = byte_vocabulary() | changes
    metadata = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(ModelLoadError) as caught:
        load(tmp_path, metadata)
    assert fault in str(caught.value)
    assert str(tmp_path / "vocabulary.gguf") in str(caught.value)


def test_a_token_that_is_there_twice_is_named(tmp_path: Path) -> None:
    metadata = byte_vocabulary("<x>", "<x>")
    with pytest.raises(ModelLoadError, match=r"ids 257 and 258 are both '<x>'"):
        load(tmp_path, metadata)


def test_the_second_load_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = byte_vocabulary("<|im_end|>") | {"tokenizer.ggml.eos_token_id": 257}
    first = load(tmp_path, metadata)
    monkeypatch.setattr(gguf, "build", lambda *_: pytest.fail("built again"))
    second = load(tmp_path, metadata)
    assert second.encode("ab<|im_end|>") == first.encode("ab<|im_end|>") == [256, 257]
    assert second.eos_token_ids == first.eos_token_ids == {257}
    folder = tmp_path / "cache" / "octavo" / "tokenizers"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 1


def test_another_vocabulary_has_another_place_in_the_cache(tmp_path: Path) -> None:
    load(tmp_path, byte_vocabulary())
    tokenizer = load(tmp_path, byte_vocabulary(merges=[("b", "a")]))
    assert tokenizer.encode("ba") == [256]


def test_a_damaged_cache_is_built_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(tmp_path, byte_vocabulary())
    (cached,) = (tmp_path / "cache" / "octavo" / "tokenizers").iterdir()
    cached.write_text("{")
    assert load(tmp_path, byte_vocabulary()).encode("ab") == [256]
    assert "is damaged, built anew" in caplog.text
    assert cached.stat().st_size > 1000


def test_without_a_cache_the_tokenizer_still_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load(tmp_path, byte_vocabulary()).encode("ab") == [256]
    assert "the tokenizer is built anew at each start" in caplog.text


def test_named_chat_templates(tmp_path: Path) -> None:
    metadata = byte_vocabulary() | {
        "tokenizer.chat_template": "usual",
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "with tools",
    }
    tokenizer = load(tmp_path, metadata)
    assert tokenizer.chat_templates == {"default": "usual", "tool_use": "with tools"}


def test_a_split_model_is_loaded_by_any_of_its_files(tmp_path: Path) -> None:
    GgufFile(byte_vocabulary()).write(tmp_path / "m-00001-of-00002.gguf")
    path = GgufFile({"split.no": 1}).write(tmp_path / "m-00002-of-00002.gguf")
    assert GgufTokenizer().why_not(path) == []
    assert GgufTokenizer().load(path).encode("ab") == [256]


def test_gpt_oss_ends_with_return_and_not_with_end(tmp_path: Path) -> None:
    metadata = byte_vocabulary("<|end|>", "<|return|>", "<|call|>", "<|channel|>")
    tokenizer = load(tmp_path, metadata)
    assert tokenizer.eos_token_ids == {258, 259}
    assert tokenizer.decode([260]) == "<|channel|>"  # a reader of the answer needs it
