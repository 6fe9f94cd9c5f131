"""LlamaIndex with an OpenAI-like server: complete, chat, stream."""

import os
import sys

# this file is named as what it imports is
sys.path.pop(0)

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model=os.environ["MODEL"],
    api_base=os.environ["BASE_URL"],
    api_key="none",
    is_chat_model=True,
    temperature=0,
    max_tokens=12,
)
asked = [ChatMessage(role="user", content="Name a colour.")]
whole = llm.chat(asked).message.content
assert whole
assert "".join(part.delta or "" for part in llm.stream_chat(asked)) == whole
assert llm.complete("Name a colour.").text
print("ok chat, stream, complete")
plain = OpenAILike(
    model=os.environ["MODEL"], api_base=os.environ["BASE_URL"], api_key="none", max_tokens=8
)
assert plain.complete("One, two,").text
print("ok completions")
