"""Streaming with the tokenizers that models bring: byte-level, and sentencepiece with bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from octavo.frontend.detokenizer import BytesDetokenizer, detokenizer_of
from octavo_plugins.sources.pypi import PypiSource
from octavo_plugins.tokenizers.gguf import GgufTokenizer
from octavo_plugins.tokenizers.hf import HfTokenizer

TEXTS = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "texts.json").read_text(encoding="utf-8")
)
FORCED = "Zdravím ďábla 😀👨\u200d👩\u200d👧 漢字 ✓"


@pytest.fixture(scope="module")
def smollm2():
    return GgufTokenizer().load(PypiSource().resolve("smollm2"))


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    """Letters as tokens, every other character as its bytes, a space in front of the text."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    tokens += [chr(i) for i in range(33, 127)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")  # noqa: S106
    )
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
    tokenizer.add_tokens([AddedToken(m, normalized=False) for m in ("<think>", "</think>")])
    folder = tmp_path_factory.mktemp("sentencepiece")
    tokenizer.save(str(folder / "tokenizer.json"))
    return HfTokenizer().load(folder)


@pytest.fixture(params=["smollm2", "sentencepiece"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def _deltas(tokenizer, ids, prompt=(), *, skip=True):
    detokenizer = detokenizer_of(tokenizer, list(prompt), skip_special_tokens=skip)
    assert isinstance(detokenizer, BytesDetokenizer)
    return [*(detokenizer.push([i]) for i in ids), detokenizer.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_deltas_joined_are_the_decode(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    for skip in (True, False):
        deltas = _deltas(tokenizer, ids, skip=skip)
        assert "".join(deltas) == tokenizer.decode(ids, skip_special_tokens=skip)
        assert "\ufffd" in text or not any("\ufffd" in delta for delta in deltas)


def test_B20_forced_text_streams_exactly(tokenizer):
    ids = tokenizer.encode(FORCED, add_special_tokens=False)
    deltas = _deltas(tokenizer, ids)
    assert "".join(deltas) == FORCED
    assert not any("\ufffd" in delta for delta in deltas)


def test_text_that_continues_a_prompt_is_what_the_whole_decodes_to(tokenizer):
    ids = tokenizer.encode(FORCED, add_special_tokens=False)
    for cut in range(1, len(ids)):
        joined = "".join(_deltas(tokenizer, ids[cut:], ids[:cut]))
        whole, before = tokenizer.decode(ids), tokenizer.decode(ids[:cut])
        # a character that the prompt left incomplete belongs to the output
        assert before.rstrip("\ufffd") + joined == whole


def test_any_ids_at_all_stream_to_their_decode(tokenizer):
    draw = random.Random(5)  # noqa: S311 - test data
    for _ in range(200):
        ids = [draw.randrange(tokenizer.vocab_size) for _ in range(12)]
        assert "".join(_deltas(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("skip", [True, False])
def test_B24_markers_have_no_spaces_around(sentencepiece, skip):
    marks = [sentencepiece.token_to_id(t) for t in ("<think>", "h", "m", "</think>", "7")]
    assert "".join(_deltas(sentencepiece, marks, skip=skip)) == "<think>hm</think>7"
