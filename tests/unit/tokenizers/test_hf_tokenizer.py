"""Tokenizers from model folders, compared with what transformers makes of the same folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from octavo.errors import ModelLoadError
from octavo_plugins.tokenizers.hf import HfTokenizer
from octavo_plugins.tokenizers.hf_decoder import decoding_of
from octavo_plugins.tokenizers.token_bytes import byte_characters

TEXTS = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "texts.json").read_text(encoding="utf-8")
)
# as mappings, because linters take a `token=` argument for a password
END = {"eos_token": "</s>"}
NAMED = {"bos_token": "<s>", **END}
PAD = {"pad_token": "<|pad|>"}
UNKNOWN = {"unk_token": "<unk>"}
EXTRA_TEXTS = ["<think>hm</think>7", "<s>a</s> b<s>", " <think> x", "<|pad|>"]


def byte_level() -> Tokenizer:
    tokens = [*byte_characters().values(), "th", "the", "Ġthe", "<s>", "</s>", "<|pad|>"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken("</think>")])
    return tokenizer


def sentencepiece() -> Tokenizer:
    letters = sorted({character for text in TEXTS for character in text if character < "\u0250"})
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁t"]
    tokens += [letter for letter in letters if letter != " "]
    vocabulary = {token: token_id for token_id, token in enumerate(dict.fromkeys(tokens))}
    model = models.BPE(
        vocab=vocabulary, merges=[("▁", "t")], fuse_unk=True, byte_fallback=True, **UNKNOWN
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    # a marker that is looked for after normalising gets a dummy space of its own
    tokenizer.add_tokens(
        [AddedToken(marker, normalized=False) for marker in ("<think>", "</think>")]
    )
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    return tokenizer


def write(folder: Path, tokenizer: Tokenizer, **config: Any) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("kind", [byte_level, sentencepiece])
@pytest.mark.parametrize(
    "config", [{}, {"add_bos_token": True}, {"add_bos_token": False, "add_eos_token": True}]
)
def test_ids_and_texts_are_those_of_transformers(
    tmp_path: Path, kind: Any, config: dict[str, bool]
) -> None:
    folder = write(tmp_path, kind(), **NAMED, **config)
    ours = HfTokenizer().load(folder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert ours.has_exact_bytes
    for text in TEXTS + EXTRA_TEXTS:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(
            text, add_special_tokens=False
        )
        for skip in (True, False):
            expected = theirs.decode(
                ids, skip_special_tokens=skip, spaces_between_special_tokens=False
            )
            assert ours.decode(ids, skip) == expected, text


@pytest.mark.parametrize("kind", [byte_level, sentencepiece])
def test_B24_no_spaces_come_around_added_tokens(tmp_path: Path, kind: Any) -> None:
    tokenizer = HfTokenizer().load(write(tmp_path, kind(), **END))
    ids = [
        token_id
        for part in ("<think>", "hm", "</think>", "7")
        for token_id in tokenizer.encode(part, add_special_tokens=False)
        if tokenizer.token_bytes(token_id) != b" "  # sentencepiece's dummy prefix
    ]
    for skip in (True, False):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == "<think>hm</think>7"


def test_end_tokens_come_from_all_configs(tmp_path: Path) -> None:
    folder = write(tmp_path, byte_level(), **END)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 999999]}')
    (folder / "config.json").write_text('{"eos_token_id": 7}')
    tokenizer = HfTokenizer().load(folder)
    end = tokenizer.token_to_id("</s>")
    assert tokenizer.eos_token_id == end
    assert tokenizer.eos_token_ids == {end, 5, 7}


def test_named_tokens_may_be_objects_or_in_a_file_of_their_own(tmp_path: Path) -> None:
    folder = write(tmp_path, byte_level(), eos_token={"content": "</s>", "lstrip": False})
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": "<s>"}')
    tokenizer = HfTokenizer().load(folder)
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_named_token_becomes_a_marker_if_the_tokenizer_forgot(tmp_path: Path) -> None:
    plain = HfTokenizer().load(write(tmp_path, byte_level()))
    named = HfTokenizer().load(write(tmp_path, byte_level(), **PAD))
    assert len(plain.encode("<|pad|>")) == 7
    assert len(named.encode("<|pad|>")) == 1
    assert named.decode(named.encode("a<|pad|>b")) == "ab"


@pytest.mark.parametrize(
    "further",
    [
        {"additional_special_tokens": ["<|pad|>", "<|not in the vocabulary|>"]},
        {"extra_special_tokens": {"image_token": {"content": "<|pad|>"}}},
    ],
)
def test_further_special_tokens_become_markers(tmp_path: Path, further: dict[str, Any]) -> None:
    tokenizer = HfTokenizer().load(write(tmp_path, byte_level(), **further))
    assert len(tokenizer.encode("<|pad|>")) == 1
    assert tokenizer.token_to_id("<|not in the vocabulary|>") is None


def test_truncation_and_padding_of_the_file_are_not_applied(tmp_path: Path) -> None:
    library = byte_level()
    library.enable_truncation(4)
    library.enable_padding(length=16)
    tokenizer = HfTokenizer().load(write(tmp_path, library))
    assert len(tokenizer.encode("x" * 10)) == 10


def test_chat_templates_from_every_place(tmp_path: Path) -> None:
    folder = write(tmp_path, byte_level(), chat_template="in the config")
    assert HfTokenizer().load(folder).chat_template == "in the config"
    named = [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]
    write(tmp_path, byte_level(), chat_template=named)
    assert HfTokenizer().load(folder).chat_templates == {"default": "d", "rag": "r"}
    (folder / "chat_template.jinja").write_text("own file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert HfTokenizer().load(folder).chat_templates == {
        "default": "own file",
        "rag": "r",
        "tool_use": "tools",
    }


def test_no_template_is_none(tmp_path: Path) -> None:
    assert HfTokenizer().load(write(tmp_path, byte_level())).chat_template is None


DECODERS = {
    "byte level": (decoders.ByteLevel(), True, False),
    "gemma": (
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        True,
        False,
    ),
    "metaspace": (decoders.Metaspace(), True, True),
    "metaspace, never": (decoders.Metaspace(prepend_scheme="never"), True, False),
    "word piece": (decoders.WordPiece(), False, False),
    "byte level and more": (
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip("a", 1, 0)]),
        False,
        False,
    ),
    "none": (None, False, False),
}


@pytest.mark.parametrize("case", DECODERS)
def test_which_decoders_are_joins_of_bytes(case: str) -> None:
    decoder, is_exact, strips = DECODERS[case]
    library = byte_level()
    if decoder is None:
        library = Tokenizer(models.BPE())
    else:
        library.decoder = decoder
    decoding = decoding_of(library)
    assert (decoding.spelling is not None) is is_exact
    assert decoding.strips_leading_space is strips


def test_other_decoders_are_left_to_the_library(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "un": 1, "##known": 2, "words": 3}
    library = Tokenizer(models.WordPiece(vocab=vocabulary, **UNKNOWN))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.WordPiece()
    tokenizer = HfTokenizer().load(write(tmp_path, library))
    assert not tokenizer.has_exact_bytes
    assert tokenizer.decode([1, 2, 3, 99]) == "unknown words"
    assert tokenizer.token_bytes(3) == b"words"


def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path) -> None:
    assert HfTokenizer().why_not(tmp_path / "x") == [f"'{tmp_path / 'x'}' is no folder"]
    assert HfTokenizer().why_not(tmp_path) == [f"'{tmp_path}' has no tokenizer.json"]
    (tmp_path / "tokenizer.model").touch()
    assert "only tokenizer.model: convert it once" in HfTokenizer().why_not(tmp_path)[0]
    with pytest.raises(ModelLoadError, match="no tokenizer in"):
        HfTokenizer().load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"tokenizer.json' is no valid tokenizer"):
        HfTokenizer().load(tmp_path)
