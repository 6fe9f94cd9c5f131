"""Haystack: a chat generator, whole and streamed, and tools."""

import os

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

options = {
    "model": os.environ["MODEL"],
    "api_base_url": os.environ["BASE_URL"],
    "api_key": Secret.from_token("none"),
}
asked = [ChatMessage.from_user("Name a colour.")]
brief = {"temperature": 0, "max_tokens": 12}
whole = OpenAIChatGenerator(**options, generation_kwargs=brief).run(asked)["replies"][0].text
parts = []
stream = OpenAIChatGenerator(
    **options, generation_kwargs=brief, streaming_callback=lambda part: parts.append(part.content)
)
assert stream.run(asked)["replies"][0].text == whole == "".join(parts)
print("ok whole and stream")
weather = Tool(
    name="weather",
    description="the weather of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}},
    function=lambda city: f"rain in {city}",
)
kwargs = {"temperature": 0, "max_tokens": 60, "tool_choice": "required"}
called = OpenAIChatGenerator(**options, generation_kwargs=kwargs, tools=[weather])
(call, *_) = called.run(asked)["replies"][0].tool_calls
assert call.tool_name == "weather"
assert isinstance(call.arguments, dict)
print("ok tools")
