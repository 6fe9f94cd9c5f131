"""LangChain with langchain-openai: invoke, stream, batch, tools, a structured answer, vectors."""

import os
import sys

# this file is named as what it imports is
sys.path.pop(0)

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

ENDPOINT = {"base_url": os.environ["BASE_URL"], "api_key": "none"}
MODEL = os.environ["MODEL"]
chat = ChatOpenAI(model=MODEL, temperature=0, max_tokens=60, **ENDPOINT)


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


class Colour(BaseModel):
    """A colour."""

    name: str = Field(max_length=12)
    is_warm: bool


whole = chat.invoke("Name a colour.")
assert whole.content
assert whole.usage_metadata["output_tokens"] > 0
assert "".join(part.content for part in chat.stream("Name a colour.")) == whole.content
print("ok invoke and stream")
assert [one.content for one in chat.batch(["Name a colour."] * 4)] == [whole.content] * 4
print("ok batch")
called = chat.bind_tools([weather], tool_choice="weather").invoke("How is it in Oslo?")
assert called.tool_calls[0]["name"] == "weather"
assert isinstance(called.tool_calls[0]["args"]["city"], str)
print("ok tools")
for method in ("json_schema", "function_calling"):
    found = chat.with_structured_output(Colour, method=method).invoke("Name a colour.")
    assert isinstance(found, Colour), method
print("ok structured output")
vectors = OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False, **ENDPOINT)
first, second = vectors.embed_documents(["a cat", "a dog"])
assert len(first) == len(second) == len(vectors.embed_query("a cat")) > 100
print("ok embeddings")
