"""Records what llama.cpp makes of the texts in `texts.json`; run by hand, never by the tests.

    python record_ids.py SmolLM2-135M-Instruct.Q4_1.gguf

needs llama-cpp-python (0.3.36 was used) and, for the second file, `tests/support` on the path.

`smollm2_ids.json`: ids, texts of ids and end tokens of the real vocabulary.
`sentencepiece.json`: ids under a small sentencepiece vocabulary, with and without the space that
is put before a text.
`pretokenizers.json`: for each known pre-tokenizer, the ids under a vocabulary whose merges were
learnt from the texts as wholes, so that they would run across every cut a pre-tokenizer makes.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import llama_cpp

from checkpoints import GgufFile
from octavo_plugins.tokenizers.pretokenizers import PRE_TOKENIZERS
from octavo_plugins.tokenizers.token_bytes import byte_characters

HERE = Path(__file__).parent
NUM_MERGES = 1500
MODEL = {
    "general.architecture": "llama",
    "llama.context_length": 64,
    "llama.embedding_length": 64,
    "llama.block_count": 1,
    "llama.attention.head_count": 2,
    "llama.feed_forward_length": 64,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 32,
}


def load(path: Path) -> llama_cpp.Llama:
    return llama_cpp.Llama(str(path), vocab_only=True, verbose=False)


def tokenize(model: llama_cpp.Llama, text: str, *, special: bool = True) -> list[int]:
    return model.tokenize(text.encode(), add_bos=False, special=special)


def pieces(model: llama_cpp.Llama, ids: list[int], *, special: bool) -> bytes:
    """Join what each token adds to the text."""
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    buffer = ctypes.create_string_buffer(512)
    joined = b""
    for token_id in ids:
        size = llama_cpp.llama_token_to_piece(vocab, token_id, buffer, 512, 0, special)
        joined += buffer.raw[:size]
    return joined


def record_smollm2(path: Path, texts: list[str]) -> None:
    model = load(path)
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    ids = [tokenize(model, text) for text in texts]
    num_tokens = model.n_vocab()
    result = {
        "recorded_with": f"llama-cpp-python {llama_cpp.__version__}",
        "file": path.name,
        "end_ids": [i for i in range(num_tokens) if llama_cpp.llama_vocab_is_eog(vocab, i)],
        "special_ids": [i for i in range(num_tokens) if llama_cpp.llama_vocab_is_control(vocab, i)],
        "ids": ids,
        "with_special": [pieces(model, row, special=True).decode() for row in ids],
        "without_special": [pieces(model, row, special=False).decode() for row in ids],
    }
    write("smollm2_ids.json", result)


def learn_merges(words: list[list[str]], count: int) -> list[tuple[str, str]]:
    """Learn merges from whole texts, the most frequent pair first, ties by spelling."""
    merges: list[tuple[str, str]] = []
    known: set[str] = set()
    while len(merges) < count:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
        best = next((pair for pair, _ in ranked if "".join(pair) not in known), None)
        if best is None:
            break
        merges.append(best)
        known.add("".join(best))
        for word in words:
            index = 0
            while index < len(word) - 1:
                if (word[index], word[index + 1]) == best:
                    word[index : index + 2] = ["".join(best)]
                index += 1
    return merges


def record_pretokenizers(texts: list[str]) -> None:
    characters = byte_characters()
    words = [[characters[byte] for byte in text.encode()] for text in texts]
    merges = learn_merges(words, NUM_MERGES)
    tokens = [*byte_characters().values(), *("".join(merge) for merge in merges)]
    groups: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PRE_TOKENIZERS:
            file = GgufFile(
                {
                    **MODEL,
                    "tokenizer.ggml.model": "gpt2",
                    "tokenizer.ggml.pre": name,
                    "tokenizer.ggml.tokens": tokens,
                    "tokenizer.ggml.token_type": [1] * len(tokens),
                    "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
                    "tokenizer.ggml.bos_token_id": 0,
                    "tokenizer.ggml.eos_token_id": 0,
                }
            )
            model = load(file.write(Path(folder) / "vocabulary.gguf"))
            ids = [tokenize(model, text, special=False) for text in texts]
            key = json.dumps(ids)
            groups.setdefault(key, {"names": [], "ids": ids})["names"].append(name)
    write("pretokenizers.json", {"merges": merges, "groups": list(groups.values())})


def record_sentencepiece(texts: list[str]) -> None:
    escaped = [text.replace(" ", "\u2581") for text in texts]
    merges = learn_merges([list(text) for text in escaped], 400)
    characters = sorted({character for text in escaped for character in text} - {"\0"})
    learnt = [*("".join(merge) for merge in merges), *characters]
    learnt = [token for token in dict.fromkeys(learnt) if not token.startswith("<0x")]
    # a few characters are in no token, so that they fall back to bytes
    learnt = [token for token in learnt if not set(token) & set("\u4f60z\U0001f600")]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *learnt]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(learnt))]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(learnt),
    }
    result: dict[str, object] = {"tokens": tokens}
    with tempfile.TemporaryDirectory() as folder:
        for adds_space in (True, False):
            file = GgufFile({**MODEL, **metadata, "tokenizer.ggml.add_space_prefix": adds_space})
            model = load(file.write(Path(folder) / "vocabulary.gguf"))
            result[f"ids_{adds_space}".lower()] = [tokenize(model, text) for text in texts]
    write("sentencepiece.json", result)


def write(name: str, content: object) -> None:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (HERE / name).write_text(text.replace("],[", "],\n[") + "\n", encoding="utf-8")


if __name__ == "__main__":
    all_texts = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))
    record_smollm2(Path(sys.argv[1]), all_texts)
    record_pretokenizers(all_texts)
    record_sentencepiece(all_texts)
