"""A server reads configs, tokenizers and templates without torch or transformers."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from checkpoints import GgufFile, byte_vocabulary, llama_gguf, random_tensor, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import sys
from pathlib import Path
from octavo.text.chat_template import ChatTemplate
from octavo_plugins.sources.hub import HubSource
from octavo_plugins.sources.local import LocalSource
from octavo_plugins.sources.pypi import PypiSource
from octavo_plugins.tokenizers.gguf import GgufTokenizer
from octavo_plugins.tokenizers.hf import HfTokenizer
from octavo_plugins.weights.dummy import DummyFormat
from octavo_plugins.weights.gguf_format import GgufFormat
from octavo_plugins.weights.safetensors_format import SafetensorsFormat

gguf, folder = map(Path, sys.argv[1:])
model = LocalSource().resolve(str(gguf))
assert GgufFormat().open_config(model).config["hidden_size"] == 32
tokenizer = GgufTokenizer().load(model)
template = ChatTemplate(tokenizer.chat_template, tokenizer.special_tokens)
assert tokenizer.encode(template.render([{"content": "ab"}])) == [256]
# reading the weights themselves needs no torch either
checkpoint = SafetensorsFormat().open(folder)
assert checkpoint.blocks("a").num_bytes == 24
heavy = {"torch", "transformers", "gguf"} & set(sys.modules)
assert not heavy, heavy
"""


def test_neither_torch_nor_transformers_is_imported(tmp_path: Path) -> None:
    file = llama_gguf()
    vocabulary = byte_vocabulary() | {"tokenizer.chat_template": "{{ messages[0].content }}"}
    gguf = GgufFile(file.metadata | vocabulary, file.tensors).write(tmp_path / "m.gguf")
    config = {"architectures": ["LlamaForCausalLM"]}
    folder = write_safetensors(tmp_path / "folder", config, [{"a": random_tensor(2, 3)}])

    result = subprocess.run(
        [sys.executable, "-c", CODE, gguf, folder],
        env={"XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
